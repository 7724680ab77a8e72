"""Which nodes of a trace state how long they took, and what they are called."""

import numpy as np

from layerdag.traces import NodeType, Trace


def measured_rows(trace: Trace) -> np.ndarray:
    """Return the positions of compute nodes with a duration, int64 (M,)."""
    stated_N = (trace.duration_us_N > 0) | (trace.integers("duration_ns")[0] > 0)
    return np.flatnonzero((trace.type_N == NodeType.COMP) & stated_N)


def names_of(trace: Trace, rows: np.ndarray) -> list[str]:
    """Return the names of the nodes at these positions."""
    names = trace.names()
    return [names[row] for row in rows.tolist()]
