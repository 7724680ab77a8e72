"""Which ranks of a workload run the same program, found by what their traces hold."""

import hashlib
from collections.abc import Iterator

import numpy as np

from layerdag.datasets.groups import JobGroups
from layerdag.datasets.jobs import RankClassTrace
from layerdag.errors import TraceError
from layerdag.traces.edges import dependency_edges
from layerdag.traces.issue import group_names
from layerdag.traces.trace import NodeType, Trace, Workload

_NUMBERS = ("num_ops", "tensor_size", "comm_size", "is_cpu_op")


def rank_classes(workload: Workload) -> list[RankClassTrace]:
    """Return the classes of ranks, each with the trace of its first rank.

    Ranks are of one class if their traces agree in operators, types, dependencies, sizes, kinds of
    collectives, shapes of groups, and in how far away (modulo the number of ranks) their partners
    are. Times, ids, tags and names of groups may differ.

    Raises:
        TraceError: If dependencies dangle, or a group is unknown.
    """
    ranks = range(workload.num_ranks)
    groups = JobGroups(workload.source, [(rank,) for rank in ranks], workload.groups)
    found: dict[bytes, list[int]] = {}
    fixed: dict[int, bytes] = {}
    for rank in ranks:
        trace = workload.traces[rank]
        if id(trace) not in fixed:
            fixed[id(trace)] = b"".join(_program(trace))
        key = hashlib.sha256(fixed[id(trace)])
        for part in _place(trace, rank, groups, workload.num_ranks):
            key.update(part)
        found.setdefault(key.digest(), []).append(rank)
    return [RankClassTrace(workload.traces[same[0]], tuple(same)) for same in found.values()]


def _program(trace: Trace) -> Iterator[bytes]:
    """Yield what ranks of a class share whatever their place."""
    edges_2E, kind_E = dependency_edges(trace)
    yield "\n".join(trace.names()).encode()
    yield trace.type_N.tobytes()
    yield edges_2E.tobytes() + kind_E.tobytes()
    yield trace.integers("comm_type", -1)[0].tobytes()
    for name in _NUMBERS:
        yield trace.integers(name)[0].tobytes()


def _place(trace: Trace, rank: int, groups: JobGroups, num_ranks: int) -> Iterator[bytes]:
    """Yield partners relative to the rank, and the shapes of its groups."""
    for name, kind in (("comm_dst", NodeType.COMM_SEND), ("comm_src", NodeType.COMM_RECV)):
        peer_N = trace.integers(name)[0][trace.type_N == kind]
        if peer_N.size and not 0 <= peer_N.min() <= peer_N.max() < num_ranks:
            raise TraceError(
                f"{trace.source}: a message names rank {int(peer_N.max())}, but the job has ranks "
                f"0 to {num_ranks - 1}; add the missing traces."
            )
        yield ((peer_N - rank) % num_ranks).tobytes()
    group_N, _ = group_names(trace)
    of_collectives = [group_N[row] for row in np.flatnonzero(trace.type_N == NodeType.COMM_COLL)]
    shapes = {group: groups.role(group) for group in dict.fromkeys(of_collectives)}
    yield "\n".join(shapes[group] for group in of_collectives).encode()
