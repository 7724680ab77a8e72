"""Which ranks of a workload run the same program, found by what their traces hold."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from layerdag.codec._fold import RankClassTrace
from layerdag.codec._groups import JobGroups
from layerdag.errors import TraceError
from layerdag.traces import NodeType, Trace, Workload, dependency_edges
from layerdag.traces.analysis import group_names

_NUMBERS = ("num_ops", "tensor_size", "comm_size", "is_cpu_op")


def rank_classes(workload: Workload) -> list[RankClassTrace]:
    """Return the classes of ranks, each with the trace of its first rank.

    Ranks are of one class if their traces agree in operators, types, dependencies, sizes, kinds of
    collectives and shapes of groups, and if their messages go to and come from the same classes:
    to the rank at the same place of another class, or equally far around their own class. Times,
    ids, tags and names of groups may differ.

    Raises:
        TraceError: If dependencies dangle, a group is unknown, or a message names a rank that the
            job does not have.
    """
    ranks = range(workload.num_ranks)
    groups = JobGroups(workload.source, [(rank,) for rank in ranks], workload.groups)
    fixed: dict[int, bytes] = {}
    keys: list[object] = []
    for trace in workload.traces:
        if id(trace) not in fixed:
            shapes = _group_shapes(trace, groups)
            fixed[id(trace)] = hashlib.sha256(b"".join((*_program(trace), shapes))).digest()
        keys.append(fixed[id(trace)])
    peers = [_peers(trace, workload.num_ranks) for trace in workload.traces]
    class_R = _refined(_numbered(keys), peers)
    found: dict[int, list[int]] = {}
    for rank, number in enumerate(class_R.tolist()):
        found.setdefault(number, []).append(rank)
    return [RankClassTrace(workload.traces[same[0]], tuple(same)) for same in found.values()]


def _refined(class_R: np.ndarray, peers: Sequence[np.ndarray]) -> np.ndarray:
    """Split classes until the ranks of each meet the same classes, and then the same places.

    Places are compared once the classes are final: the stages of a pipeline that run the same
    program are told apart by their neighbors first, and places among all of them mean nothing.

    Args:
        class_R: First guess, one number per rank.
        peers: Ranks at the other ends of each rank's messages, in the order of its trace.
    """
    while True:
        finer_R = _numbered(
            [(c, class_R[met].tobytes()) for c, met in zip(class_R.tolist(), peers, strict=True)]
        )
        if finer_R.max() == class_R.max():
            finer_R = _numbered(_meeting_places(class_R, peers))
            if finer_R.max() == class_R.max():
                return class_R
        class_R = finer_R


def _meeting_places(class_R: np.ndarray, peers: Sequence[np.ndarray]) -> Iterator[object]:
    """Yield for each rank its class and how far away in their classes its peers are."""
    order_R = np.argsort(class_R, kind="stable")
    size_C = np.bincount(class_R)
    position_R = np.empty_like(class_R)
    position_R[order_R] = np.arange(class_R.size) - (np.cumsum(size_C) - size_C)[class_R[order_R]]
    for rank, met in enumerate(peers):
        own = class_R[rank]
        shift = position_R[met] - position_R[rank]
        yield int(own), np.where(class_R[met] == own, shift % size_C[own], shift).tobytes()


def _numbered(keys: Iterable[object]) -> np.ndarray:
    """Return a number for each key, equal for equal keys, in the order of their first places."""
    number: dict[object, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)


def _program(trace: Trace) -> Iterator[bytes]:
    """Yield what ranks of a class share whatever their place."""
    edges_2E, kind_E = dependency_edges(trace)
    yield "\n".join(trace.names()).encode()
    yield trace.type_N.tobytes()
    yield edges_2E.tobytes() + kind_E.tobytes()
    yield trace.integers("comm_type", -1)[0].tobytes()
    for name in _NUMBERS:
        yield trace.integers(name)[0].tobytes()


def _group_shapes(trace: Trace, groups: JobGroups) -> bytes:
    """Return the shapes of the groups of a trace's collectives."""
    group_N, _ = group_names(trace)
    of_collectives = [group_N[row] for row in np.flatnonzero(trace.type_N == NodeType.COMM_COLL)]
    shapes = {group: groups.role(group) for group in dict.fromkeys(of_collectives)}
    return "\n".join(shapes[group] for group in of_collectives).encode()


def _peers(trace: Trace, num_ranks: int) -> np.ndarray:
    """Return the ranks at the other ends of a rank's messages, sends first."""
    found = []
    for name, kind in (("comm_dst", NodeType.COMM_SEND), ("comm_src", NodeType.COMM_RECV)):
        peer_M = trace.integers(name)[0][trace.type_N == kind].astype(np.int64)
        if peer_M.size and not 0 <= peer_M.min() <= peer_M.max() < num_ranks:
            strange = peer_M.min() if peer_M.min() < 0 else peer_M.max()
            raise TraceError(
                f"{trace.source}: a message names rank {int(strange)}, but the job has ranks "
                f"0 to {num_ranks - 1}; add the missing traces."
            )
        found.append(peer_M)
    return np.concatenate(found)
