"""Prefill and decode on ranks of their own: what is sent, to whom, and when."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from symbolic_jobs import DEEPSEEK, LLAMA, MIXTURE, VIT

import layerdag as ld
from layerdag.errors import UsageError
from layerdag.simulator import NetworkConfig, SimulationResult, SystemConfig, Topology
from layerdag.traces import NodeType, Workload, read_workload, write_workload
from layerdag.workloads.symbolic import (
    DisaggregatedJob,
    ModelShape,
    disaggregated_job,
    job,
    workload,
)

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
def test_every_decoding_rank_receives_the_cache_that_it_holds(
    shape: ModelShape, plan: dict[str, int]
) -> None:
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
def test_sends_and_receives_match_one_to_one(shape: ModelShape, plan: dict[str, int]) -> None:
    made = split(shape, **plan)
    for what in ("_kv", "_tokens"):
        sent = messages(made.workload(), NodeType.COMM_SEND, what)
        assert sent == messages(made.workload(), NodeType.COMM_RECV, what)
        assert set(sent.values()) == {1}
        assert all(s < made.prefill.ranks <= t < made.ranks for s, t, _, _ in sent)
    assert not ld.validate(split(shape, **{**plan, "batch": 512}).workload())


@pytest.mark.parametrize("plan", SPLITS, ids=str)
def test_the_transfer_moves_the_cache_once_or_once_for_each_tensor_rank(
    plan: dict[str, int],
) -> None:
    moved = split(LLAMA, **plan).summary()["transfer"]
    assert moved["bytes"] == moved["cache_bytes"] == 8 * 128 * 4 * 2 * LLAMA.kv_width * 2
    moved = split(DEEPSEEK, **plan).summary()["transfer"]
    assert moved["cache_bytes"] == 8 * 128 * 4 * (32 + 8) * 2
    assert moved["bytes"] == moved["cache_bytes"] * plan.get("decode_tensor", 1)


def test_tensor_ranks_get_the_heads_that_they_hold_by_hand() -> None:
    """4 key heads: of 4 prefilling ranks one each, 2 each of 2 decoding ranks 4 and 5."""
    made = split(prefill_tensor=4, decode_tensor=2).workload()
    pairs = {(source, target) for source, target, _, _ in messages(made, NodeType.COMM_SEND)}
    assert pairs == {(0, 4), (1, 4), (2, 5), (3, 5)}
    wider = split(prefill_tensor=2, decode_tensor=4).workload()
    pairs = {(source, target) for source, target, _, _ in messages(wider, NodeType.COMM_SEND)}
    assert pairs == {(0, 2), (0, 3), (1, 4), (1, 5)}


def test_first_tokens_go_from_the_last_stage_to_the_first() -> None:
    made = split(prefill_pipeline=2, decode_pipeline=2).workload()
    ((source, target, _, size),) = messages(made, NodeType.COMM_SEND, "_tokens")
    assert (source, target, size) == (1, 2, 8 * 8)


def test_both_sides_compute_what_they_would_alone() -> None:
    both = split(prefill_tensor=4, decode_data=2, tokens=3).summary()["matrix_flops"]
    settings = {"batch": 8, "sequence": 128}
    prefill = job(LLAMA, phase="prefill", tensor=4, **settings).summary()["matrix_flops"]
    decode = job(LLAMA, phase="decode", data=2, tokens=3, **settings).summary()["matrix_flops"]
    assert both == prefill + decode


def test_a_side_has_groups_of_its_own() -> None:
    made = split(MIXTURE, prefill_tensor=2, decode_data=4, decode_expert=4).workload()
    assert sorted(made.groups.values()) == [(0, 1), (2, 3, 4, 5)]


def test_ranks_with_the_same_messages_share_a_program() -> None:
    made = split(prefill_tensor=4, prefill_data=2, decode_tensor=2, decode_data=2)
    assert made.ranks == 12
    # Of prefilling ranks every other one sends sampled tokens, too.
    assert len(made._classes.programs) == 3


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
    return int(result.finish_ns[result.rows(rank)][rows].max())


def test_prefill_comes_before_transfer_and_transfer_before_tokens() -> None:
    made = split(tokens=2).workload()
    result = _run(made, 50.0)
    sampled = _finish(made, result, 0, "sample.")
    arrived = _finish(made, result, 1, "recv_kv.3", "recv_tokens")
    first, second = (_finish(made, result, 1, f"sample.F0.T{token}") for token in (0, 1))
    assert sampled < arrived < first < second == result.makespan_ns


def test_a_slower_link_lengthens_the_transfer_by_its_bytes_and_nothing_else() -> None:
    made = split(tokens=2)
    moved = made.summary()["transfer"]["bytes"]
    fast, slow, slower = (_run(made.workload(), rate) for rate in (100.0, 0.5, 0.25))
    assert slower.makespan_ns - slow.makespan_ns == pytest.approx(moved / 2**30 * 2e9, rel=0.01)
    assert fast.makespan_ns < slow.makespan_ns
    for rank in range(2):
        assert fast.compute_ns[rank] == slow.compute_ns[rank] == slower.compute_ns[rank]
    assert _finish(made.workload(), slow, 0, "sample.") == _finish(
        made.workload(), fast, 0, "sample."
    )


def test_workloads_are_written_and_read(tmp_path: Any) -> None:
    made = split(prefill_tensor=2, decode_tensor=1).workload()
    write_workload(made, tmp_path / "w")
    back = read_workload(tmp_path / "w")
    assert messages(back, NodeType.COMM_SEND) == messages(made, NodeType.COMM_SEND)
    assert back.groups == made.groups


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
def test_what_does_not_fit_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        workload(LLAMA, **{"phase": "disaggregated", "batch": 8, "sequence": 128, **settings})


def test_images_and_flags_without_the_phase_are_refused() -> None:
    with pytest.raises(UsageError, match="has no KV cache that ranks could pass on"):
        disaggregated_job(VIT)
    with pytest.raises(UsageError, match="decode_tensor is for steps with ranks of their own"):
        job(LLAMA, decode_tensor=2)
    with pytest.raises(UsageError, match="A disaggregated step has two plans"):
        job(LLAMA, phase="disaggregated")


def test_the_batch_is_one_sequence_for_each_micro_batch_unless_given() -> None:
    assert disaggregated_job(LLAMA, prefill_data=2, decode_micro_batches=3).step.batch == 6
