import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from replay import Replay, replay

from layerdag.errors import TraceError
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire


def measured(origin: int, *nodes: tuple[int, int, tuple[int, ...]]) -> Trace:
    """Return a trace of (start, duration, dependencies) in ns after ``origin``."""
    return build_trace(
        [spec(at, origin + start, ns, deps) for at, (start, ns, deps) in enumerate(nodes)]
    )


@pytest.mark.parametrize("origin", [0, 5_000_000])
def test_a_step_is_work_and_waiting_wherever_the_clock_starts(origin):
    # 0: 100 to 400, 1: 450 to 650 after 0, so 50 ns of waiting that no dependency explains.
    found = replay(measured(origin, (100, 300, ()), (450, 200, (0,))))
    assert found == Replay(measured_ns=550, replayed_ns=550, delay_ns=50)
    assert found.error == 0


def test_a_wait_that_the_trace_does_not_explain_is_delay_and_overlap_is_error():
    # Node 1 is said to wait for 0 but began while 0 ran: 550 ns measured, 300 + 500 replayed.
    found = replay(measured(0, (0, 300, ()), (50, 500, (0,))))
    assert (found.measured_ns, found.replayed_ns, found.delay_ns) == (550, 800, 0)
    assert found.error == pytest.approx(250 / 550)


def test_a_trace_without_durations_or_a_dependency_is_refused():
    with pytest.raises(TraceError, match="no node carries 'duration_ns'"):
        replay(build_trace([NodeSpec(0, "a", NodeType.COMP)]))
    with pytest.raises(TraceError, match="node 0 depends on node 7, which is not in the trace"):
        replay(measured(0, (0, 300, (7,))))


def test_shares_are_of_the_replayed_time_and_never_divide_by_zero():
    assert Replay(measured_ns=80, replayed_ns=100, delay_ns=25).delay_share == 0.25
    assert Replay(measured_ns=80, replayed_ns=100, delay_ns=25).error == 0.25
    assert Replay(0, 0, 0).error == Replay(0, 0, 0).delay_share == 0


def spec(number: int, start: int, duration: int, deps: tuple = (), **more: object) -> NodeSpec:
    """Return a measured node; ``control`` and ``device`` as the test needs them."""
    attributes = [
        Attribute("is_cpu_op", Wire.BOOL, bool(more.get("host", False))),
        Attribute("start_ns", Wire.INT64, start),
        Attribute("duration_ns", Wire.INT64, duration),
    ]
    if "device" in more:
        attributes.append(Attribute("device", Wire.STRING, more["device"]))
    kind = more.get("kind", NodeType.COMP)
    control = more.get("control", ())
    return NodeSpec(number, "n", kind, deps, control, attributes=tuple(attributes))


def test_one_thread_runs_the_computations_of_a_cpu_trace():
    """Two products that depend on nothing still follow each other; their gap is a delay."""
    found = replay(build_trace([spec(0, 0, 100), spec(1, 150, 100)]))
    assert found == Replay(measured_ns=250, replayed_ns=250, delay_ns=50)
    # The order is that of the starts, not that of the file.
    assert replay(build_trace([spec(1, 150, 100), spec(0, 0, 100)])) == found


@pytest.mark.parametrize("more", [{"host": True}, {"device": "cuda"}])
def test_beside_a_device_only_dependencies_order_the_nodes(more):
    nodes = [spec(0, 0, 100, **more), spec(1, 150, 100, **more)]
    # Node 1 waits for nothing: its whole start is a delay of its own, from tick 0.
    assert replay(build_trace(nodes)) == Replay(measured_ns=250, replayed_ns=250, delay_ns=150)


def test_communication_runs_beside_the_thread():
    nodes = [
        spec(0, 0, 100),
        spec(1, 20, 300, kind=NodeType.COMM_COLL),
        spec(2, 100, 50),
        spec(3, 350, 10, deps=(1,)),
    ]
    found = replay(build_trace(nodes))
    assert (found.measured_ns, found.replayed_ns) == (360, 360)
    # Only the 20 ns before the collective and the 30 ns after it are unexplained.
    assert found.delay_ns == 50


def test_control_dependencies_are_waited_for_and_nodes_without_a_duration_left_out():
    nodes = [spec(0, 0, 100, device="cuda"), spec(1, 50, 100, control=(0,), device="cuda")]
    assert replay(build_trace(nodes)).replayed_ns == 200
    untimed = NodeSpec(1, "n", NodeType.COMP, (0,))
    nodes = [spec(0, 0, 100), untimed, spec(2, 100, 50, deps=(1,))]
    assert replay(build_trace(nodes)) == Replay(150, 150, 0)


def test_without_exact_starts_those_in_microseconds_count():
    nodes = [
        NodeSpec(n, "n", NodeType.COMP, start_us=us,
                 attributes=(Attribute("duration_ns", Wire.INT64, 1000),))
        for n, us in enumerate((5, 9))
    ]  # fmt: skip
    assert replay(build_trace(nodes)) == Replay(measured_ns=5000, replayed_ns=5000, delay_ns=3000)


@tried(60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_a_step_whose_dependencies_are_true_replays_to_its_time(seed, size):
    """Nodes of a device that start when or after all that they wait for has ended."""
    rng = np.random.default_rng(seed)
    nodes, end = [], {}
    for number in range(size):
        deps = tuple(d for d in range(number) if rng.random() < 0.3)
        start = max((end[d] for d in deps), default=0) + int(rng.integers(0, 50))
        length = int(rng.integers(0, 100))
        end[number] = start + length
        nodes.append(spec(number, start, length, deps, device="cuda"))
    found = replay(build_trace(nodes))
    assert found.replayed_ns == found.measured_ns
    assert found.error == 0
    assert 0 <= found.delay_ns <= found.replayed_ns
