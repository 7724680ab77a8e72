"""Prefill and decode on ranks of their own: what is sent, to whom, and when."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from symbolic_jobs import DEEPSEEK, DEEPSEEK_LITE, GPT, LLAMA, MIXTURE, VIT, sizes, small

import layerdag as ld
from layerdag.cli.main import main
from layerdag.errors import ConfigError, DataError, UsageError
from layerdag.hardware.devices import Device
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import RooflineCompute
from layerdag.simulator.config import Dimension, NetworkConfig, SystemConfig, Topology
from layerdag.simulator.run import SimulationResult, simulate
from layerdag.traces.chakra.workload import read_workload
from layerdag.traces.trace import NodeType, Workload
from layerdag.workloads.by_name import workload
from layerdag.workloads.transformer.costs import rank_parameters
from layerdag.workloads.transformer.disaggregated import (
    DisaggregatedJob,
    disaggregated_job,
)
from layerdag.workloads.transformer.hugging_face import model
from layerdag.workloads.transformer.job import SymbolicJob, transformer_job
from layerdag.workloads.transformer.shapes import ModelShape

SPLITS: list[dict[str, int]] = [
    {},
    {"prefill_tensor": 4, "decode_tensor": 2},
    {"prefill_tensor": 2, "decode_tensor": 4},
    {"prefill_pipeline": 4, "decode_pipeline": 2},
    {"prefill_data": 4, "decode_data": 2, "decode_micro_batches": 2},
    {"prefill_micro_batches": 2, "decode_micro_batches": 8},
    {"prefill_tensor": 4, "prefill_pipeline": 2, "decode_data": 2, "decode_tensor": 2},
]


def split(shape: ModelShape = LLAMA, **settings: Any) -> DisaggregatedJob:
    return disaggregated_job(shape, **{"batch": 8, "sequence": 128, **settings})


def messages(made: Workload, kind: NodeType, what: str = "_kv") -> Counter[tuple[int, ...]]:
    """Return (source, target, tag, bytes) of sends or receives of caches or tokens."""
    found: Counter[tuple[int, ...]] = Counter()
    for rank, trace in enumerate(made.traces):
        end = "comm_dst" if kind == NodeType.COMM_SEND else "comm_src"
        columns = [trace.integers(name)[0] for name in (end, "comm_tag", "comm_size")]
        for row in np.flatnonzero(trace.type_N == kind).tolist():
            if what not in trace.strings[trace.name_N[row]].split(".")[0]:
                continue
            other, tag, size = (int(column[row]) for column in columns)
            ends = (rank, other) if kind == NodeType.COMM_SEND else (other, rank)
            found[(*ends, tag, size)] += 1
    return found


@pytest.mark.parametrize("plan", SPLITS, ids=str)
@pytest.mark.parametrize("shape", [LLAMA, DEEPSEEK], ids=lambda shape: shape.name)
def test_every_decoding_rank_receives_the_cache_that_it_holds(shape, plan):
    made = split(shape, **plan)
    held: Counter[int] = Counter()
    for (_, target, _, size), count in messages(made.workload(), NodeType.COMM_RECV).items():
        held[target] += count * size
    costs = made.sides["decode"]
    heads = 1 if shape.latent else made.decode.tensor
    each = 8 // made.decode.data * 128 * shape.cached_width * 2 // heads
    layers = shape.layers // made.decode.pipeline
    assert held == {made.prefill.ranks + rank: each * layers for rank in range(costs.plan.ranks)}


@pytest.mark.parametrize("plan", SPLITS, ids=str)
@pytest.mark.parametrize("shape", [LLAMA, DEEPSEEK], ids=lambda shape: shape.name)
def test_sends_and_receives_match_one_to_one(shape, plan):
    made = split(shape, **plan)
    for what in ("_kv", "_tokens"):
        sent = messages(made.workload(), NodeType.COMM_SEND, what)
        assert sent == messages(made.workload(), NodeType.COMM_RECV, what)
        assert set(sent.values()) == {1}
        assert all(s < made.prefill.ranks <= t < made.ranks for s, t, _, _ in sent)
    assert not ld.validate(split(shape, **{**plan, "batch": 512}).workload())


@pytest.mark.parametrize("plan", SPLITS, ids=str)
def test_the_transfer_moves_the_cache_once_or_once_for_each_tensor_rank(plan):
    moved = split(LLAMA, **plan).summary()["transfer"]
    assert moved["bytes"] == moved["cache_bytes"] == 8 * 128 * 4 * 2 * LLAMA.kv_width * 2
    moved = split(DEEPSEEK, **plan).summary()["transfer"]
    assert moved["cache_bytes"] == 8 * 128 * 4 * (32 + 8) * 2
    assert moved["bytes"] == moved["cache_bytes"] * plan.get("decode_tensor", 1)


def test_tensor_ranks_get_the_heads_that_they_hold_by_hand():
    """4 key heads: of 4 prefilling ranks one each, 2 each of 2 decoding ranks 4 and 5."""
    made = split(prefill_tensor=4, decode_tensor=2).workload()
    pairs = {(source, target) for source, target, _, _ in messages(made, NodeType.COMM_SEND)}
    assert pairs == {(0, 4), (1, 4), (2, 5), (3, 5)}
    wider = split(prefill_tensor=2, decode_tensor=4).workload()
    pairs = {(source, target) for source, target, _, _ in messages(wider, NodeType.COMM_SEND)}
    assert pairs == {(0, 2), (0, 3), (1, 4), (1, 5)}


def test_first_tokens_go_from_the_last_stage_to_the_first():
    made = split(prefill_pipeline=2, decode_pipeline=2).workload()
    ((source, target, _, size),) = messages(made, NodeType.COMM_SEND, "_tokens")
    assert (source, target, size) == (1, 2, 8 * 8)


def test_both_sides_compute_what_they_would_alone():
    both = split(prefill_tensor=4, decode_data=2, tokens=3).summary()["matrix_flops"]
    settings = {"batch": 8, "sequence": 128}
    prefill = transformer_job(LLAMA, phase="prefill", tensor=4, **settings).summary()[
        "matrix_flops"
    ]
    decode = transformer_job(LLAMA, phase="decode", data=2, tokens=3, **settings).summary()[
        "matrix_flops"
    ]
    assert both == prefill + decode


def test_a_side_has_groups_of_its_own():
    made = split(MIXTURE, prefill_tensor=2, decode_data=4, decode_expert=4).workload()
    assert sorted(made.groups.values()) == [(0, 1), (2, 3, 4, 5)]


def test_ranks_with_the_same_messages_share_a_program():
    made = split(prefill_tensor=4, prefill_data=2, decode_tensor=2, decode_data=2)
    assert made.ranks == 12
    # Of prefilling ranks every other one sends sampled tokens, too.
    assert len(made._classes[0]) == 3


def _run(made: Workload, gibibytes: float) -> SimulationResult:
    """Run on ranks with a compute device and one link; messages of one rank only share it."""
    network = NetworkConfig.single(Topology.SWITCH, made.num_ranks, gibibytes, 500.0)
    return ld.simulate(
        made, ld.Cluster(network, SystemConfig(preferred_dataset_splits=1)), compute="h100"
    )


def _finish(made: Workload, result: SimulationResult, rank: int, *names: str) -> int:
    """Return when the last node of a rank whose name begins with one of the words ends."""
    trace = made.traces[rank]
    texts = [trace.strings[name] for name in trace.name_N.tolist()]
    rows = [row for row, text in enumerate(texts) if text.startswith(names)]
    return int(result.finish_ns[result.program.rows(rank)][rows].max())


def test_prefill_comes_before_transfer_and_transfer_before_tokens():
    made = split(tokens=2).workload()
    result = _run(made, 50.0)
    sampled = _finish(made, result, 0, "sample.")
    arrived = _finish(made, result, 1, "recv_kv.3", "recv_tokens")
    first, second = (_finish(made, result, 1, f"sample.F0.T{token}") for token in (0, 1))
    assert sampled < arrived < first < second == result.makespan_ns


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tensor": 2}, "two plans: give prefill_tensor and decode_tensor in place of tensor"),
        ({"sequence_parallel": True}, "prefill_sequence_parallel in place of sequence_parallel"),
        ({"zero": 1}, "A disaggregated step has no zero; leave it out"),
        ({"prefil_tensor": 2}, "no setting 'prefil_tensor'.*Did you mean 'prefill_tensor'"),
        ({"decode_tensor": 8}, "decode: tiny-llama: a number of 4 key heads cannot be split"),
        ({"prefill_data": 3}, "prefill: tiny-llama: a number of 8 sequences cannot be split"),
        ({"prefill_tensor": 0}, "tensor is 0; it must be a whole number"),
    ],
)
def test_what_does_not_fit_is_refused(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        workload(LLAMA, **{"phase": "disaggregated", "batch": 8, "sequence": 128, **settings})


def test_images_and_flags_without_the_phase_are_refused():
    with pytest.raises(UsageError, match="has no KV cache that ranks could pass on"):
        disaggregated_job(VIT)
    with pytest.raises(UsageError, match="decode_tensor is for steps with ranks of their own"):
        transformer_job(LLAMA, decode_tensor=2)
    with pytest.raises(UsageError, match="A disaggregated step has two plans"):
        transformer_job(LLAMA, phase="disaggregated")


def test_the_batch_is_one_sequence_for_each_micro_batch_unless_given():
    assert disaggregated_job(LLAMA, prefill_data=2, decode_micro_batches=3).step.batch == 6


CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip


def test_settings_go_to_plan_and_step_and_images_have_their_own_sequence():
    made = transformer_job(LLAMA, tensor=2, zero=1, data=2, batch=4, sequence=64, precision="fp32")
    assert (made.plan.tensor, made.plan.zero, made.plan.ranks) == (2, 1, 4)
    assert (made.step.batch, made.step.sequence, made.step.precision) == (4, 64, "fp32")
    assert made.shape is LLAMA
    assert transformer_job(VIT).step.sequence == 8 * 8 + 1
    assert transformer_job(VIT, batch=3).tokens == 3 * 65


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"sequence": 100, "batch": 3}, 300),
        ({"sequence": 100, "batch": 3, "phase": "prefill"}, 300),
        ({"sequence": 100, "batch": 3, "phase": "decode"}, 3),
        ({"sequence": 100, "batch": 3, "phase": "decode", "tokens": 5}, 15),
    ],
)
def test_tokens_of_a_step_are_those_computed(settings, tokens):
    assert transformer_job(LLAMA, **settings).summary()["tokens"] == tokens


def test_the_summary_counts_what_the_traces_of_all_ranks_hold():
    made = small(MIXTURE, tensor=2, data=2, expert=2, pipeline=2, micro_batches=2)
    traces, found = made.workload().traces, made.summary()
    for figure, attribute in (("flops", "num_ops"), ("bytes", "tensor_size")):
        assert found[figure] == sum(int(trace.integers(attribute)[0].sum()) for trace in traces)
    assert found["nodes"] == sum(trace.num_nodes for trace in traces)
    moved = sum(int(trace.integers("comm_size")[0].sum()) for trace in traces)
    assert sum(row["bytes"] for row in found["communication"].values()) == moved


def test_the_summary_is_json_with_model_plan_step_and_parts_of_memory():
    found = json.loads(json.dumps(small(LLAMA, pipeline=2, micro_batches=2).summary()))
    assert (found["model"], found["ranks"]) == ("tiny-llama", 2)
    assert (found["plan"]["pipeline"], found["step"]["micro_batches"]) == (2, 2)
    assert [held["stage"] for held in found["memory"]] == [0, 1]
    assert found["peak_memory"] == max(held["total"] for held in found["memory"])
    (held,) = small(LLAMA, data=2, zero=3).summary()["memory"]
    parts = ("weights", "gathered", "gradients", "optimizer", "activations", "kv_cache")
    assert held["total"] == sum(held[part] for part in parts)


def test_numbers_beyond_64_bits_are_summed_and_in_no_trace():
    """6 x 1.008e12 x 2,097,152 tokens are more than 2^63 = 9.2e18."""
    found = transformer_job("transformer-1t", batch=1024).summary()
    weights = 6 * found["parameters"] * found["tokens"]
    assert found["matrix_flops"] > weights > 2**63
    assert found["flops"] == pytest.approx(weights, rel=0.05)
    with pytest.raises(ConfigError, match=r"tiny-llama, stage 0: 'embedding\.F0' takes .* smaller"):
        transformer_job(LLAMA, batch=10**17).summary()


def config(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**CONFIG, **changes}))
    return path


def test_a_hugging_face_config_becomes_traces(tmp_path, capsys):
    path = str(config(tmp_path, _name_or_path="mine"))
    words = ["--tensor", "2", "--sequence", "32", "--out", str(tmp_path / "w")]
    assert main(["workload", path, *words]) == 0
    assert capsys.readouterr().out.startswith("mine: ")
    assert read_workload(tmp_path / "w").num_ranks == 2
    assert ld.workload(path, tensor=2, sequence=32).num_ranks == 2


@pytest.mark.parametrize(
    ("stated", "name"),
    [
        ("", "llama"),
        ("/home/secret/runs/step-9", "llama"),
        ("./secret", "llama"),
        ("../secret/x", "llama"),
        ("secret/runs/step-9", "llama"),
        ("C:\\secret\\x", "llama"),
        ("~/secret", "llama"),
        ("tiny-llama-1.1B", "tiny-llama-1.1B"),
        ("someone/tiny-llama", "someone/tiny-llama"),
    ],
)
def test_a_model_is_named_by_its_config_and_never_by_a_path(tmp_path, capsys, stated, name):
    folder = tmp_path / "secret"
    folder.mkdir()
    path = config(folder, _name_or_path=stated)
    assert main(["workload", str(path), "--sequence", "32", "--json"]) == 0
    told = capsys.readouterr().out
    assert json.loads(told)["model"] == name
    assert "secret" not in told


@pytest.mark.parametrize(("value", "dropout"), [(None, False), (0.0, False), (0.1, True)])
def test_a_gpt_without_dropout_says_zero_or_null(tmp_path, value, dropout):
    gpt = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 32}
    assert transformer_job(config(tmp_path, **gpt, resid_pdrop=value)).shape.dropout is dropout


def test_a_config_that_cannot_be_read_is_code_one(tmp_path, capsys):
    path = config(tmp_path, vocab_size="many")
    assert main(["workload", str(path), "--json"]) == 1
    told = capsys.readouterr().err
    assert f"{path}: vocab_size is 'many'; it must be a whole number" in told
    with pytest.raises(DataError, match="vocab_size is 'many'"):
        ld.workload(path)


@pytest.mark.parametrize(
    ("words", "part", "expected"),
    [
        (["--phase", "decode", "--tokens", "2"], "tokens", 4),
        (["--sequence-parallel", "--tensor", "2"], "ranks", 2),
        (["--pipeline", "2", "--micro-batches", "2", "--virtual-stages", "2"], "ranks", 2),
        (["--context", "4"], "ranks", 4),
    ],
)
def test_flags_of_the_verb_are_settings(words, part, expected, capsys):
    assert main(["workload", "gpt2", "--batch", "2", "--sequence", "64", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[part] == expected


TOKENS = 8 * 128
BOTH = pytest.mark.parametrize("shape", [DEEPSEEK, DEEPSEEK_LITE], ids=lambda shape: shape.name)


def _norms(shape: ModelShape) -> int:
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
def test_a_training_step_takes_6_operations_a_weight_that_a_token_passes(shape):
    """Scores are of 16 + 8 numbers, weighted sums of 24: 2 x 3 x 48 per pair, head and layer."""
    attention = 2 * 3 * 48 * shape.heads * shape.layers * 128 * TOKENS
    made = small(shape).summary()
    assert made["matrix_flops"] == 6 * _matrices(shape) * TOKENS + attention


@pytest.mark.parametrize(
    ("name", "weights"), [("deepseek-v3", 36_624_596_992), ("deepseek-v2-lite", 2_451_308_544)]
)
def test_operations_of_published_models_follow_from_what_a_token_passes(name, weights):
    shape = model(name)
    bias = 58 * 256 if name == "deepseek-v3" else 0
    assert _matrices(shape) - bias == weights
    span, pair = 4096, 2 * (192 + 128)
    attention = 3 * pair * shape.heads * shape.layers * span * span
    made = transformer_job(name, sequence=span, batch=1).summary()
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
def test_splitting_changes_no_matrix_operation(shape, plan):
    whole, split = small(shape).summary(), small(shape, **plan).summary()
    assert split["matrix_flops"] == whole["matrix_flops"]


@BOTH
def test_tensor_ranks_repeat_routers_and_compression_only(shape):
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
def test_ranks_together_hold_every_parameter(shape, plan):
    """Up to what all tensor ranks hold: norms, routers, compression; dense ones on data ranks."""
    tensor, expert = plan.get("tensor", 1), plan.get("expert", 1)
    made = small(shape, **plan)
    held = [rank_parameters(made.costs, stage) for stage in range(plan.get("pipeline", 1))]
    dense, experts = tensor * sum(d for d, _ in held), tensor * expert * sum(e for _, e in held)
    assert shape.latent is not None
    again = _norms(shape) + shape.layers * shape.hidden * shape.latent.compressed_width
    again += (shape.layers - shape.dense_layers) * shape.router_parameters
    assert dense + experts == shape.parameters + (tensor - 1) * again


def test_the_cache_of_deepseek_v3_holds_576_numbers_a_token_and_layer_on_each_tensor_rank():
    for tensor in (1, 8):
        made = transformer_job("deepseek-v3", phase="decode", tensor=tensor, sequence=1023, batch=2)
        assert made.summary()["memory"][0]["kv_cache"] == 2 * 1024 * 61 * 576 * 2
    assert model("llama3-8b").cached_width == 2 * 8 * 128  # keys and values of 8 heads


def test_decode_attends_in_the_latent_space_with_the_same_weights():
    made = transformer_job(DEEPSEEK, phase="decode", sequence=1000, batch=4)
    assert made.summary()["matrix_flops"] == 2 * _matrices(DEEPSEEK) * 4 + _of_stages(
        made, "attention."
    )
    pair = 2 * ((32 + 8) + 32)  # scores of compressed and rotary numbers, sum of compressed ones
    attention = pair * DEEPSEEK.heads * DEEPSEEK.layers * 1001 * 4
    assert _of_stages(made, "attention.") == attention
    split = transformer_job(DEEPSEEK, phase="decode", sequence=1000, batch=4, tensor=4)
    assert 4 * _of_stages(split, "attention.", "mm.absorb", "mm.value_up") == _of_stages(
        made, "attention.", "mm.absorb", "mm.value_up"
    )


def test_all_tensor_ranks_read_the_whole_cache():
    for tensor in (1, 8):
        made = transformer_job(DEEPSEEK, phase="decode", sequence=999, batch=4, tensor=tensor)
        heads = 4 * (8 // tensor) * (40 + 32)
        assert made.costs.latent_attention()[1] == (heads + 4 * 1000 * 40) * 2


def test_prefill_makes_keys_and_values_of_all_heads():
    made = small(DEEPSEEK, phase="prefill")
    ups = _of_stages(made, "mm.kv_up")
    assert ups == 2 * TOKENS * DEEPSEEK.layers * 32 * 8 * (16 + 24)
    assert made.summary()["memory"][0]["kv_cache"] == TOKENS * DEEPSEEK.layers * (32 + 8) * 2


def test_dense_layers_come_first_and_shared_experts_travel_nowhere():
    made = small(DEEPSEEK, data=4, expert=4)
    copies = TOKENS // 4 * 2 * 256 * 2
    assert sizes(made, "dispatch", "combine") == [copies] * 4 * 3  # of the 3 mixtures
    names = {made.stages[0].strings[row] for row in made.stages[0].name_N.tolist()}
    assert "mm.router.1.F0" in names
    assert "mm.shared_up.1.F0" in names
    assert not names & {"mm.router.0.F0", "mm.shared_up.0.F0"}
    assert made.costs.of_layer(0).products["up"].outputs == 2 * 512
    assert made.costs.of_layer(1).products["shared_up"].outputs == 2 * 2 * 64


def test_shared_and_routed_experts_are_summed_over_tensor_ranks_together():
    plain = replace(DEEPSEEK, shared_experts=0)
    for shape in (DEEPSEEK, plain):
        made = small(shape, tensor=4)
        assert len(sizes(made, "sum2", "sum_dx2")) == 2 * shape.layers
        assert not sizes(made, "sum_shared", "sum_dx_shared")
    split = small(DEEPSEEK, tensor=4, sequence_parallel=True)
    assert sizes(split, "sum_shared", "sum_dx_shared") == [TOKENS * 256 * 2] * 2 * 3


def test_sequence_parallel_ranks_gather_compressed_tokens_instead_of_the_stream():
    made = small(DEEPSEEK, tensor=4, sequence_parallel=True)
    assert sizes(made, "gather_latent") == [TOKENS // 4 * (48 + 32 + 8) * 2] * DEEPSEEK.layers
    assert len(sizes(made, "gather1")) == DEEPSEEK.layers  # of the backward pass
    lite = small(DEEPSEEK_LITE, tensor=4, sequence_parallel=True)
    assert sizes(lite, "gather_latent") == [TOKENS // 4 * (32 + 8) * 2] * DEEPSEEK.layers
    assert len(sizes(lite, "gather1")) == 2 * DEEPSEEK.layers


def test_what_tensor_ranks_apply_to_tokens_of_their_own_is_summed_at_the_end():
    made = small(DEEPSEEK, tensor=4, sequence_parallel=True)
    shared = 4 * (2 * 256 + 256 * (48 + 32 + 8) + 48 + 32) + 3 * 256 * 4 + 256
    assert sizes(made, "gradients") == [shared * 2]


@BOTH
@pytest.mark.parametrize("phase", ["training", "prefill", "decode"])
def test_traces_are_sound_and_run(shape, phase):
    plan = {"data": 2, "tensor": 2, "pipeline": 2, "expert": 2}
    workload = small(shape, phase=phase, batch=64, **plan).workload()
    assert not ld.validate(workload)
    assert ld.simulate(workload, ld.Cluster("small"), compute="h100").makespan_ns > 0


def test_full_recompute_and_memory_know_both_kinds_of_layers():
    held = [entry["activations"] for entry in small(DEEPSEEK, pipeline=4).summary()["memory"]]
    assert held[0] != held[1]
    wide = replace(DEEPSEEK, dense_feed_forward=1024)
    more = [entry["activations"] for entry in small(wide, pipeline=4).summary()["memory"]]
    assert more[0] - held[0] == TOKENS * 512 * 3 * 2  # gate, up and their product
    assert more[1:] == held[1:]


INTERLEAVED = {"pipeline": 2, "virtual_stages": 2, "micro_batches": 4}
ZERO_BUBBLE = {"pipeline": 2, "schedule": "zb-h1", "micro_batches": 4}


@pytest.mark.parametrize(
    ("shape", "plan"),
    [
        (GPT, INTERLEAVED), (GPT, ZERO_BUBBLE),
        (MIXTURE, {**INTERLEAVED, "tensor": 2, "sequence_parallel": True}),
        (MIXTURE, {**ZERO_BUBBLE, "tensor": 2, "sequence_parallel": True, "recompute": "full"}),
        (LLAMA, {**ZERO_BUBBLE, "data": 2, "zero": 3, "context": 2}),
    ],
)  # fmt: skip
def test_schedules_change_the_order_and_no_work(shape, plan):
    found = small(shape, **plan).summary()
    plain = {key: value for key, value in plan.items() if key not in ("schedule", "virtual_stages")}
    expected = small(shape, **plain).summary()
    chunks = plan.get("virtual_stages", 1)
    for what in ("flops", "matrix_flops", "bytes"):
        assert found[what] == expected[what]
    for kind, held in expected["communication"].items():
        if kind in ("send", "recv"):  # the ring is passed v times, without its last step
            boundaries = 2 * chunks - 1
            held = {key: value * boundaries for key, value in held.items()}
        assert found["communication"][kind] == held


@pytest.mark.parametrize(
    ("shape", "plan"),
    [
        (GPT, {**INTERLEAVED, "tensor": 2}), (GPT, ZERO_BUBBLE),
        (LLAMA, {"pipeline": 4, "tensor": 2, "micro_batches": 4}),
        (LLAMA, {"pipeline": 4, "micro_batches": 2, "phase": "decode", "tokens": 3}),
        (LLAMA, {"pipeline": 2, "tensor": 2, "data": 2, "phase": "decode", "tokens": 3}),
    ],
)  # fmt: skip
def test_every_send_has_its_receive(shape, plan):
    made = small(shape, **plan).workload()
    sent = messages(made, NodeType.COMM_SEND, "")
    assert sent == messages(made, NodeType.COMM_RECV, "")
    assert len({message[:3] for message in sent}) == sent.total() > 0


def _even(**plan: Any) -> SymbolicJob:
    """Return a job of four equal stages and eight micro-batches, the head next to nothing."""
    shape = ModelShape("even", 16, 256, 8, 1024, 1)
    return transformer_job(shape, sequence=256, batch=8, micro_batches=8, pipeline=4, **plan)


def _idle_share(made: SymbolicJob) -> float:
    """Return idle time over useful time where messages are free."""
    device = Device("even", dict.fromkeys(("f64", "f32", "bf16", "i8"), 1e12), 1e18)
    network = NetworkConfig((Dimension(Topology.SWITCH, 4, 1e9, 0.0),))
    cluster = Cluster(network, SystemConfig.uniform("ring", 1))
    result = simulate(made.workload(), cluster, compute=RooflineCompute(device))
    useful = made.summary()["flops"] / 4 / 1e12 * 1e9
    return float(result.makespan_ns / useful - 1)


@pytest.mark.parametrize("virtual", [1, 2, 4])
def test_simulated_idle_share_is_p_minus_1_over_m_v(virtual):
    assert _idle_share(_even(virtual_stages=virtual)) == pytest.approx(3 / (8 * virtual), rel=0.01)


def test_simulated_idle_time_of_zb_h1_is_p_minus_1_times_f_plus_b_minus_w():
    made = _even(schedule="zb-h1")
    trace = made.stages[1]
    num_ops, _ = trace.integers("num_ops")
    late_N = np.array([text.endswith(".dw") for text in trace.strings])[trace.name_N]
    weights = num_ops[late_N].sum() / num_ops.sum()  # W / (F + B + W)
    assert weights == pytest.approx(0.28, abs=0.01)  # of 1/3 without attention
    assert _idle_share(made) == pytest.approx(3 / 8 * (1 - 2 * weights), rel=0.02)


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ({"virtual_stages": 2}, "2 virtual stages need a pipeline"),
        ({"pipeline": 2, "schedule": "interleaved"}, "needs virtual_stages of at least 2"),
        ({**ZERO_BUBBLE, "virtual_stages": 2}, "zb-h1 has one virtual stage only, not 2"),
        ({**INTERLEAVED, "virtual_stages": 0}, "virtual_stages is 0; it must be a whole number"),
        ({**INTERLEAVED, "virtual_stages": 3}, "4 layers do not fill 2 pipeline stages of 3 virt"),
        ({"pipeline": 2, "virtual_stages": 2}, "takes micro-batches in groups of the 2 pipeline"),
        ({**INTERLEAVED, "phase": "decode"}, "decode has no backward pass, for whose sake"),
        ({**ZERO_BUBBLE, "phase": "prefill"}, "prefill has no backward pass, for whose sake"),
    ],
)  # fmt: skip
def test_schedules_that_make_no_sense_are_refused(plan, sentence):
    with pytest.raises(ConfigError, match=sentence):
        small(LLAMA, **plan)
