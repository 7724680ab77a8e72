"""Jobs under interleaved and zero-bubble schedules: messages, work, idle time, refusals."""

from typing import Any

import numpy as np
import pytest
from symbolic_jobs import GPT, LLAMA, MIXTURE, small

from layerdag.errors import ConfigError
from layerdag.simulator import Cluster, Dimension, NetworkConfig, SystemConfig, Topology, simulate
from layerdag.simulator.compute import Device, RooflineCompute
from layerdag.traces import NodeType
from layerdag.workloads.symbolic import ModelShape, SymbolicJob, job

INTERLEAVED = {"pipeline": 2, "virtual_stages": 2, "micro_batches": 4}
ZERO_BUBBLE = {"pipeline": 2, "schedule": "zb-h1", "micro_batches": 4}


def _messages(made: SymbolicJob) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return (source, destination, tag, bytes) of all sends, and of all receives."""
    found: dict[NodeType, list[tuple[int, ...]]] = {
        NodeType.COMM_SEND: [], NodeType.COMM_RECV: []
    }  # fmt: skip
    for rank, trace in enumerate(made.workload().traces):
        tag_N, size_N = trace.integers("comm_tag")[0], trace.integers("comm_size")[0]
        to_N, from_N = trace.integers("comm_dst")[0], trace.integers("comm_src")[0]
        for kind, rows in found.items():
            for row in np.flatnonzero(trace.type_N == kind).tolist():
                out = kind == NodeType.COMM_SEND
                ends = (rank, int(to_N[row])) if out else (int(from_N[row]), rank)
                rows.append((*ends, int(tag_N[row]), int(size_N[row])))
    return found[NodeType.COMM_SEND], found[NodeType.COMM_RECV]


@pytest.mark.parametrize(
    ("shape", "plan"),
    [
        (GPT, INTERLEAVED), (GPT, ZERO_BUBBLE),
        (MIXTURE, {**INTERLEAVED, "tensor": 2, "sequence_parallel": True}),
        (MIXTURE, {**ZERO_BUBBLE, "tensor": 2, "sequence_parallel": True, "recompute": "full"}),
        (LLAMA, {**ZERO_BUBBLE, "data": 2, "zero": 3, "context": 2}),
    ],
)  # fmt: skip
def test_schedules_change_the_order_and_no_work(shape: ModelShape, plan: dict[str, Any]) -> None:
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


@pytest.mark.parametrize("plan", [INTERLEAVED, {**INTERLEAVED, "tensor": 2}, ZERO_BUBBLE])
def test_every_send_has_its_receive(plan: dict[str, Any]) -> None:
    sent, received = _messages(small(GPT, **plan))
    assert sorted(sent) == sorted(received)
    assert len({message[:3] for message in sent}) == len(sent)


def _even(**plan: Any) -> SymbolicJob:
    """Return a job of four equal stages and eight micro-batches, the head next to nothing."""
    shape = ModelShape("even", 16, 256, 8, 1024, 1)
    return job(shape, sequence=256, batch=8, micro_batches=8, pipeline=4, **plan)


def _idle_share(made: SymbolicJob) -> float:
    """Return idle time over useful time where messages are free."""
    device = Device("even", dict.fromkeys(("f64", "f32", "bf16", "i8"), 1e12), 1e18)
    network = NetworkConfig((Dimension(Topology.SWITCH, 4, 1e9, 0.0),))
    cluster = Cluster(network, SystemConfig.uniform("ring", 1))
    result = simulate(made.workload(), cluster, compute=RooflineCompute(device))
    useful = made.summary()["flops"] / 4 / 1e12 * 1e9
    return float(result.makespan_ns / useful - 1)


@pytest.mark.parametrize("virtual", [1, 2, 4])
def test_simulated_idle_share_is_p_minus_1_over_m_v(virtual: int) -> None:
    assert _idle_share(_even(virtual_stages=virtual)) == pytest.approx(3 / (8 * virtual), rel=0.01)


def test_simulated_idle_time_of_zb_h1_is_p_minus_1_times_f_plus_b_minus_w() -> None:
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
def test_schedules_that_make_no_sense_are_refused(plan: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        small(LLAMA, **plan)
