import pytest

from layerdag.errors import TraceError
from layerdag.traces import Attribute, NodeType, Trace, Wire
from layerdag.traces.analysis._replay import Replay, replay
from layerdag.traces.chakra import NodeSpec, build_trace


def measured(origin: int, *nodes: tuple[int, int, tuple[int, ...]]) -> Trace:
    """Return a trace of (start, duration, dependencies) in ns after ``origin``."""
    return build_trace(
        [
            NodeSpec(
                at, "aten::mm", NodeType.COMP, deps,
                attributes=(
                    Attribute("is_cpu_op", Wire.BOOL, False),
                    Attribute("start_ns", Wire.INT64, origin + start),
                    Attribute("duration_ns", Wire.INT64, duration),
                ),
            )
            for at, (start, duration, deps) in enumerate(nodes)
        ]
    )  # fmt: skip


@pytest.mark.parametrize("origin", [0, 5_000_000])
def test_a_step_is_work_and_waiting_wherever_the_clock_starts(origin: int) -> None:
    # 0: 100 to 400, 1: 450 to 650 after 0, so 50 ns of waiting that no dependency explains.
    found = replay(measured(origin, (100, 300, ()), (450, 200, (0,))))
    assert found == Replay(measured_ns=550, replayed_ns=550, delay_ns=50)
    assert found.error == 0


def test_a_wait_that_the_trace_does_not_explain_is_delay_and_overlap_is_error() -> None:
    # Node 1 is said to wait for 0 but began while 0 ran: 550 ns measured, 300 + 500 replayed.
    found = replay(measured(0, (0, 300, ()), (50, 500, (0,))))
    assert (found.measured_ns, found.replayed_ns, found.delay_ns) == (550, 800, 0)
    assert found.error == pytest.approx(250 / 550)


def test_a_trace_without_durations_cannot_be_replayed() -> None:
    with pytest.raises(TraceError, match="no node carries 'duration_ns'"):
        replay(build_trace([NodeSpec(0, "a", NodeType.COMP)]))
