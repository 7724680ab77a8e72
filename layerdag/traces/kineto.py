"""Reader of Kineto profiles (Chrome-trace JSON of ``torch.profiler``).

``{"schemaVersion", "deviceProperties", "distributedInfo", "traceEvents": [...], ...}``; an event of
phase X has ``ts`` and ``dur`` in microseconds.
"""

from pathlib import Path

from layerdag.errors import TraceError
from layerdag.traces.json_stream import stream_objects
from layerdag.traces.timings import Timings

RECORD_FUNCTION = "Record function id"


def read_timings(path: str | Path) -> Timings:
    """Return start and duration of each operator of a profile by RecordFunction handle.

    Raises:
        TraceError: If the file is no profile, or none of its events carries a RecordFunction
            handle (the profiler ran without an ExecutionTraceObserver in the same step).
    """
    of: dict[int, tuple[int, int]] = {}
    for event in stream_objects(path, "traceEvents"):
        handle = event.get("args", {}).get(RECORD_FUNCTION, 0)
        if handle and "dur" in event:
            of[int(handle)] = (round(event["ts"] * 1000), round(event["dur"] * 1000))
    if not of:
        raise TraceError(
            f"{path}: no event carries '{RECORD_FUNCTION}', so nothing can be joined to a host "
            "trace; run the profiler and the ExecutionTraceObserver in the same step "
            "(PyTorch 2.3 or later)."
        )
    return Timings(of, str(path))
