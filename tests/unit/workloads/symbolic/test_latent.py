"""Latent attention, shared experts and dense first layers: closed forms, and what ranks share."""

from dataclasses import replace
from typing import Any

import pytest
from symbolic_jobs import DEEPSEEK, DEEPSEEK_LITE, sizes, small

import layerdag as ld
from layerdag.workloads.symbolic import ModelShape, SymbolicJob, job, model
from layerdag.workloads.symbolic.costs import rank_parameters

TOKENS = 8 * 128
BOTH = pytest.mark.parametrize("shape", [DEEPSEEK, DEEPSEEK_LITE], ids=lambda shape: shape.name)


def _norms(shape: ModelShape) -> int:
    """Return the weights of all norms."""
    latent = shape.latent
    assert latent is not None
    each = 2 * shape.hidden + latent.norm_parameters
    return shape.layers * each + shape.hidden


def _matrices(shape: ModelShape) -> int:
    """Return the weights that a token is multiplied with: all that it passes but look-ups."""
    return shape.active_parameters - _norms(shape) - shape.vocabulary * shape.hidden


def _of_stages(made: SymbolicJob, *names: str) -> int:
    """Return the operations of nodes of all stages whose names begin with one of the words."""
    total = 0
    for trace in made.stages:
        operations_N, _ = trace.integers("num_ops")
        for row, name in enumerate(trace.name_N.tolist()):
            if trace.strings[name].startswith(names):
                total += int(operations_N[row])
    return total


@BOTH
def test_a_training_step_takes_6_operations_a_weight_that_a_token_passes(
    shape: ModelShape,
) -> None:
    """Scores are of 16 + 8 numbers, weighted sums of 24: 2 x 3 x 48 per pair, head and layer."""
    attention = 2 * 3 * 48 * shape.heads * shape.layers * 128 * TOKENS
    made = small(shape).summary()
    assert made["matrix_flops"] == 6 * _matrices(shape) * TOKENS + attention


@pytest.mark.parametrize(
    ("name", "weights"), [("deepseek-v3", 36_624_596_992), ("deepseek-v2-lite", 2_451_308_544)]
)
def test_operations_of_published_models_follow_from_what_a_token_passes(
    name: str, weights: int
) -> None:
    shape = model(name)
    bias = 58 * 256 if name == "deepseek-v3" else 0
    assert _matrices(shape) - bias == weights
    span, pair = 4096, 2 * (192 + 128)
    attention = 3 * pair * shape.heads * shape.layers * span * span
    made = job(name, sequence=span, batch=1).summary()
    assert made["matrix_flops"] == 6 * weights * span + attention


PLANS: list[dict[str, Any]] = [
    {"data": 4}, {"data": 4, "expert": 4}, {"data": 2, "expert": 2, "zero": 3}, {"pipeline": 4},
    {"context": 2}, {"micro_batches": 4}, {"tensor": 4, "sequence_parallel": True},
    {"pipeline": 2, "schedule": "zb-h1", "micro_batches": 2},
    {"pipeline": 2, "virtual_stages": 2, "micro_batches": 2},
    {"data": 2, "tensor": 2, "pipeline": 2, "expert": 2, "sequence_parallel": True},
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_splitting_changes_no_matrix_operation(shape: ModelShape, plan: dict[str, Any]) -> None:
    whole, split = small(shape).summary(), small(shape, **plan).summary()
    assert split["matrix_flops"] == whole["matrix_flops"]


@BOTH
def test_tensor_ranks_repeat_routers_and_compression_only(shape: ModelShape) -> None:
    whole, split = small(shape), small(shape, tensor=4)
    repeated = _of_stages(whole, "mm.router", "mm.compress")
    width = 32 + 8 + (48 if shape.latent and shape.latent.query_rank else 0)
    layers = shape.layers * width + (shape.layers - shape.dense_layers) * shape.experts
    assert repeated == 6 * shape.hidden * layers * TOKENS
    more = split.summary()["matrix_flops"] - whole.summary()["matrix_flops"]
    assert more == 3 * repeated


@BOTH
@pytest.mark.parametrize(
    "plan",
    [{}, {"tensor": 4}, {"pipeline": 4}, {"tensor": 2, "pipeline": 2}, {"data": 4, "expert": 4},
     {"data": 2, "tensor": 2, "expert": 2}],
    ids=str,
)  # fmt: skip
def test_ranks_together_hold_every_parameter(shape: ModelShape, plan: dict[str, int]) -> None:
    """Up to what all tensor ranks hold: norms, routers, compression; dense ones on data ranks."""
    tensor, expert = plan.get("tensor", 1), plan.get("expert", 1)
    made = small(shape, **plan)
    held = [rank_parameters(made.costs, stage) for stage in range(plan.get("pipeline", 1))]
    dense, experts = tensor * sum(d for d, _ in held), tensor * expert * sum(e for _, e in held)
    assert shape.latent is not None
    again = _norms(shape) + shape.layers * shape.hidden * shape.latent.compressed_width
    again += (shape.layers - shape.dense_layers) * shape.router_parameters
    assert dense + experts == shape.parameters + (tensor - 1) * again


def test_the_cache_of_deepseek_v3_holds_576_numbers_a_token_and_layer_on_each_tensor_rank() -> None:
    for tensor in (1, 8):
        made = job("deepseek-v3", phase="decode", tensor=tensor, sequence=1023, batch=2)
        assert made.summary()["memory"][0]["kv_cache"] == 2 * 1024 * 61 * 576 * 2
    assert model("llama3-8b").cached_width == 2 * 8 * 128  # keys and values of 8 heads


def test_decode_attends_in_the_latent_space_with_the_same_weights() -> None:
    made = job(DEEPSEEK, phase="decode", sequence=1000, batch=4)
    assert made.summary()["matrix_flops"] == 2 * _matrices(DEEPSEEK) * 4 + _of_stages(
        made, "attention."
    )
    pair = 2 * ((32 + 8) + 32)  # scores of compressed and rotary numbers, sum of compressed ones
    attention = pair * DEEPSEEK.heads * DEEPSEEK.layers * 1001 * 4
    assert _of_stages(made, "attention.") == attention
    split = job(DEEPSEEK, phase="decode", sequence=1000, batch=4, tensor=4)
    assert 4 * _of_stages(split, "attention.", "mm.absorb", "mm.value_up") == _of_stages(
        made, "attention.", "mm.absorb", "mm.value_up"
    )


def test_all_tensor_ranks_read_the_whole_cache() -> None:
    for tensor in (1, 8):
        made = job(DEEPSEEK, phase="decode", sequence=999, batch=4, tensor=tensor)
        assert made.costs.latent is not None
        heads = 4 * (8 // tensor) * (40 + 32)
        assert made.costs.latent.attention()[1] == (heads + 4 * 1000 * 40) * 2


def test_prefill_makes_keys_and_values_of_all_heads() -> None:
    made = small(DEEPSEEK, phase="prefill")
    ups = _of_stages(made, "mm.kv_up")
    assert ups == 2 * TOKENS * DEEPSEEK.layers * 32 * 8 * (16 + 24)
    assert made.summary()["memory"][0]["kv_cache"] == TOKENS * DEEPSEEK.layers * (32 + 8) * 2


def test_dense_layers_come_first_and_shared_experts_travel_nowhere() -> None:
    made = small(DEEPSEEK, data=4, expert=4)
    copies = TOKENS // 4 * 2 * 256 * 2
    assert sizes(made, "dispatch", "combine") == [copies] * 4 * 3  # of the 3 mixtures
    names = {made.stages[0].strings[row] for row in made.stages[0].name_N.tolist()}
    assert "mm.router.1.F0" in names
    assert "mm.shared_up.1.F0" in names
    assert not names & {"mm.router.0.F0", "mm.shared_up.0.F0"}
    assert made.costs.of_layer(0).up.outputs == 2 * 512
    assert made.costs.of_layer(1).shared_up.outputs == 2 * 2 * 64


def test_shared_and_routed_experts_are_summed_over_tensor_ranks_together() -> None:
    plain = replace(DEEPSEEK, shared_experts=0)
    for shape in (DEEPSEEK, plain):
        made = small(shape, tensor=4)
        assert len(sizes(made, "sum2", "sum_dx2")) == 2 * shape.layers
        assert not sizes(made, "sum_shared", "sum_dx_shared")
    split = small(DEEPSEEK, tensor=4, sequence_parallel=True)
    assert sizes(split, "sum_shared", "sum_dx_shared") == [TOKENS * 256 * 2] * 2 * 3


def test_sequence_parallel_ranks_gather_compressed_tokens_instead_of_the_stream() -> None:
    made = small(DEEPSEEK, tensor=4, sequence_parallel=True)
    assert sizes(made, "gather_latent") == [TOKENS // 4 * (48 + 32 + 8) * 2] * DEEPSEEK.layers
    assert len(sizes(made, "gather1")) == DEEPSEEK.layers  # of the backward pass
    lite = small(DEEPSEEK_LITE, tensor=4, sequence_parallel=True)
    assert sizes(lite, "gather_latent") == [TOKENS // 4 * (32 + 8) * 2] * DEEPSEEK.layers
    assert len(sizes(lite, "gather1")) == 2 * DEEPSEEK.layers


def test_what_tensor_ranks_apply_to_tokens_of_their_own_is_summed_at_the_end() -> None:
    made = small(DEEPSEEK, tensor=4, sequence_parallel=True)
    shared = 4 * (2 * 256 + 256 * (48 + 32 + 8) + 48 + 32) + 3 * 256 * 4 + 256
    assert sizes(made, "gradients") == [shared * 2]


@BOTH
@pytest.mark.parametrize("phase", ["training", "prefill", "decode"])
def test_traces_are_sound_and_run(shape: ModelShape, phase: str) -> None:
    plan = {"data": 2, "tensor": 2, "pipeline": 2, "expert": 2}
    workload = small(shape, phase=phase, batch=64, **plan).workload()
    assert not ld.validate(workload)
    assert ld.simulate(workload, ld.Cluster.preset("small"), compute="h100").makespan_ns > 0


def test_full_recompute_and_memory_know_both_kinds_of_layers() -> None:
    held = [entry["activations"] for entry in small(DEEPSEEK, pipeline=4).summary()["memory"]]
    assert held[0] != held[1]
    wide = replace(DEEPSEEK, dense_feed_forward=1024)
    more = [entry["activations"] for entry in small(wide, pipeline=4).summary()["memory"]]
    assert more[0] - held[0] == TOKENS * 512 * 3 * 2  # gate, up and their product
    assert more[1:] == held[1:]
