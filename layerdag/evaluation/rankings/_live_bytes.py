"""Peak of what a rank holds while its trace runs: results until nobody needs them any more.

Unlike ``layerdag.simulator.analysis.local_memory``, which needs the tensors' names, it takes the
``tensor_size`` of a node as its result, and dependencies as uses. It compares jobs with each other;
bytes that an accelerator needs it does not say.
"""

import numpy as np

from layerdag.simulator import SimulationResult


def live_bytes(result: SimulationResult) -> int:
    """Return the peak in bytes of the fullest rank.

    A node's ``tensor_size`` is held from its issue until the last node that depends on it ends, or
    until it ends itself if none does.
    """
    program = result.program
    traces = program.workload.traces
    seen: set[tuple[int, bytes]] = set()
    peaks = [0]
    for rank in range(result.num_ranks):
        rows = result.rows(rank)
        issue_N, finish_N = result.issue_ns[rows], result.finish_ns[rows]
        which = int(program.class_of_rank[rank])
        if (which, finish_N.tobytes()) in seen:  # ranks of one class mostly run alike
            continue
        seen.add((which, finish_N.tobytes()))
        nodes, trace = program.classes[which], traces[rank]
        order_N = np.argsort(trace.id_N, kind="stable")
        size_N = np.maximum(trace.integers("tensor_size")[0][order_N], 0)
        parent_E = np.repeat(np.arange(len(issue_N)), np.diff(nodes.child_ptr))
        until_N = finish_N.copy()
        np.maximum.at(until_N, parent_E, finish_N[nodes.child_E])
        peaks.append(_peak(issue_N, until_N, size_N))
    return max(peaks)


def _peak(start_N: np.ndarray, end_N: np.ndarray, size_N: np.ndarray) -> int:
    """Return the largest sum of what is held at once; what ends is freed before what begins."""
    held_N = (size_N > 0) & (end_N > start_N)
    change = np.concatenate([size_N[held_N], -size_N[held_N]])
    time = np.concatenate([start_N[held_N], end_N[held_N]])
    if not change.size:
        return 0
    return int(np.cumsum(change[np.lexsort((change, time))]).max())
