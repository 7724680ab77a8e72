"""Laws of operations and messages: closed forms, invariance under splitting, published volumes."""

from typing import Any

import pytest
from symbolic_jobs import GPT, LLAMA, MIXTURE, sizes, small

from layerdag.workloads.symbolic import ModelShape, job, model


def _matrices(shape: ModelShape) -> int:
    """Return the weights that a token is multiplied with, without biases and norms."""
    attention = shape.hidden * (2 * shape.query_width + 2 * shape.kv_width)
    experts = max(shape.experts_per_token, 1)
    feed_forward = shape.hidden * (shape.up_width + shape.feed_forward) * experts
    layer = attention + feed_forward + shape.router_parameters
    return shape.layers * layer + shape.vocabulary * shape.hidden


@pytest.mark.parametrize("shape", [GPT, LLAMA, MIXTURE, model("gpt3-175b"), model("llama3-8b")])
def test_a_training_step_takes_6_operations_a_weight_and_token_and_12_lsh_for_attention(
    shape: ModelShape,
) -> None:
    made = job(shape, sequence=2048, batch=2)
    tokens = 2 * 2048
    attention = 12 * shape.layers * 2048 * shape.query_width * tokens
    assert made.summary()["matrix_flops"] == 6 * _matrices(shape) * tokens + attention
    assert made.summary()["flops"] == pytest.approx(made.summary()["matrix_flops"], rel=0.03)


def test_a_gpt_step_with_full_recompute_takes_the_published_operations() -> None:
    """96 B s L h^2 (1 + s / 6h + V / 16Lh): Narayanan et al. 2021, equation 3."""
    shape, batch, s = model("gpt3-175b"), 4, 2048
    made = job(shape, sequence=s, batch=batch, recompute="full")
    h, layers, words = shape.hidden, shape.layers, shape.vocabulary
    formula = 96 * batch * s * layers * h**2 * (1 + s / (6 * h) + words / (16 * layers * h))
    assert made.summary()["matrix_flops"] == pytest.approx(formula, rel=1e-9)


def test_attention_is_quadratic_in_the_sequence_and_half_of_it_where_asked() -> None:
    def attention(sequence: int, **more: Any) -> int:
        made = job(LLAMA, sequence=sequence, batch=1, **more)
        rest = 6 * _matrices(LLAMA) * sequence
        return int(made.summary()["matrix_flops"]) - rest

    assert attention(512) == 4 * attention(256)
    assert attention(512, causal="half") * 2 == attention(512)


@pytest.mark.parametrize("shape", [GPT, LLAMA, MIXTURE])
@pytest.mark.parametrize(
    "plan",
    [
        {"data": 2}, {"tensor": 4}, {"tensor": 4, "sequence_parallel": True}, {"pipeline": 4},
        {"pipeline": 2, "schedule": "gpipe", "micro_batches": 4}, {"context": 2},
        {"data": 2, "tensor": 2, "pipeline": 2, "micro_batches": 2}, {"data": 2, "zero": 3},
        {"micro_batches": 8},
    ],
)  # fmt: skip
def test_splitting_changes_no_matrix_operation(shape: ModelShape, plan: dict[str, Any]) -> None:
    whole, split = small(shape).summary(), small(shape, **plan).summary()
    replicated = 0
    if shape.experts and plan.get("tensor", 1) > 1 and not plan.get("sequence_parallel"):
        # The router is the same on all tensor ranks, unless the sequence is split.
        router = 6 * shape.layers * shape.router_parameters * 8 * 128
        replicated = router * (plan["tensor"] - 1)
    assert split["matrix_flops"] == whole["matrix_flops"] + replicated


def test_tensor_ranks_sum_the_stream_4_times_a_layer() -> None:
    made = small(GPT, tensor=4)
    stream = 8 * 128 * GPT.hidden * 2
    forward_and_backward = sizes(made, "sum1", "sum2", "sum_dx1", "sum_dx2")
    assert forward_and_backward == [stream] * 4 * GPT.layers


def test_sequence_parallelism_moves_what_the_sums_moved_and_gathers_inputs_again() -> None:
    """All-reduce = reduce-scatter + all-gather; the second gather of inputs comes on top."""
    ranks, stream = 4, 8 * 128 * GPT.hidden * 2
    made = small(GPT, tensor=ranks, sequence_parallel=True)
    scattered = sizes(made, "sum1", "sum2", "sum_dx1", "sum_dx2")
    gathered = sizes(made, "gather1", "gather2")
    again = sizes(made, "gather_again1", "gather_again2")
    assert scattered == [stream] * 4 * GPT.layers
    assert gathered == [stream // ranks] * 4 * GPT.layers
    assert again == [stream // ranks] * 2 * GPT.layers
    moved_by_a_sum = 2 * (ranks - 1) * stream // ranks
    moved = [(ranks - 1) * size // ranks for size in scattered]
    moved += [(ranks - 1) * size for size in gathered]
    assert sum(moved) == 4 * GPT.layers * moved_by_a_sum


@pytest.mark.parametrize(("zero", "volumes"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_zero_moves_2_or_3_times_the_parameters(zero: int, volumes: int) -> None:
    """Rajbhandari et al. 2020, section 7: 2 Psi with stages 1 and 2 as without, 3 Psi with 3."""
    ranks, made = 8, small(LLAMA, data=8, zero=zero)
    trace = made.stages[0]
    kind_N, coll_N = trace.integers("comm_type")
    size_N, _ = trace.integers("comm_size")
    names = [trace.strings[index] for index in trace.name_N.tolist()]
    moved = 0.0
    for row in coll_N.nonzero()[0].tolist():
        if names[row].split(".")[1] == "L1":  # "gradients.L1.B0", "weights.L1.F0", ...
            factor = {0: 2 * (ranks - 1) / ranks, 2: ranks - 1, 7: (ranks - 1) / ranks}
            moved += factor[int(kind_N[row])] * int(size_N[row])
    expected = volumes * (ranks - 1) / ranks * LLAMA.layer_parameters * 2
    assert moved == pytest.approx(expected, rel=1e-6)


def test_gradients_are_summed_once_a_step_unless_only_shards_are_kept() -> None:
    assert len(sizes(small(LLAMA, data=2, micro_batches=4), "gradients")) == LLAMA.layers + 2
    sharded = small(LLAMA, data=2, micro_batches=4, zero=2)
    assert len(sizes(sharded, "gradients")) == 4 * (LLAMA.layers + 2)


def test_experts_exchange_every_copy_of_a_token_4_times_a_layer() -> None:
    made = small(MIXTURE, data=4, expert=4)
    copies = 2 * 128 * MIXTURE.experts_per_token * MIXTURE.hidden * 2
    assert sizes(made, "dispatch", "combine") == [copies] * 4 * MIXTURE.layers
    # Each expert is on one rank only, so that no other has gradients of it.
    assert set(sizes(made, "gradients")[1:-1]) == {made.costs.layer_dense * 2}
    halves = small(MIXTURE, data=4, expert=2)
    assert halves.costs.layer_experts == 2 * MIXTURE.expert_parameters
    assert sizes(halves, "gradients").count(halves.costs.layer_experts * 2) == MIXTURE.layers


def test_context_ranks_gather_keys_and_values_and_sum_their_gradients() -> None:
    made = small(LLAMA, context=4)
    own = 2 * 8 * 32 * LLAMA.kv_width * 2
    assert sizes(made, "gather_kv") == [own] * LLAMA.layers
    assert sizes(made, "sum_dkv") == [4 * own] * LLAMA.layers


def test_stages_pass_the_stream_of_each_micro_batch_on_both_ways() -> None:
    made = small(LLAMA, pipeline=4, micro_batches=4)
    stream = 2 * 128 * LLAMA.hidden * 2
    assert sizes(made, "send", stage=0) == [stream] * 4
    assert sizes(made, "send", stage=1) == [stream] * 8
    assert sizes(made, "send", stage=3) == [stream] * 4
    halved = small(LLAMA, pipeline=4, micro_batches=4, tensor=2, sequence_parallel=True)
    assert sizes(halved, "send", stage=1) == [stream // 2] * 8


def test_decode_reads_the_cache_and_prefill_fills_it() -> None:
    decode = job(LLAMA, phase="decode", sequence=1024, batch=4, tokens=2).summary()
    weights = 2 * _matrices(LLAMA) * 4 * 2
    attention = 4 * LLAMA.layers * LLAMA.query_width * 4 * (1025 + 1026)
    assert decode["matrix_flops"] == weights + attention
    prefill = job(LLAMA, phase="prefill", sequence=1024, batch=4).summary()
    head = LLAMA.vocabulary * LLAMA.hidden
    forward = 2 * (_matrices(LLAMA) - head) * 4096 + 2 * head * 4  # logits of the last tokens only
    attention = 4 * LLAMA.layers * LLAMA.query_width * 1024 * 4096
    assert prefill["matrix_flops"] == forward + attention
    cache = 2 * LLAMA.layers * LLAMA.kv_width * 2
    assert prefill["memory"][0]["kv_cache"] == 4 * 1024 * cache
    assert decode["memory"][0]["kv_cache"] == 4 * 1026 * cache
