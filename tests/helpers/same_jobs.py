"""Comparing two jobs rank by rank: operators with their costs, messages, groups."""

from collections import Counter
from typing import Any

from layerdag.traces.analysis import group_names
from layerdag.traces.trace import NodeType, Trace, Workload

COLUMNS = ("num_ops", "tensor_size", "comm_size")


def operators(trace: Trace) -> Counter[tuple[Any, ...]]:
    """Return the operators of a rank: name, type, collective, operations, bytes, message."""
    columns = [trace.integers(name)[0].tolist() for name in COLUMNS]
    kind_N = trace.integers("comm_type", -1)[0].tolist()
    return Counter(zip(trace.names(), trace.type_N.tolist(), kind_N, *columns, strict=True))


def groups(workload: Workload, rank: int) -> Counter[tuple[Any, ...]]:
    """Return how often a rank communicates in each set of ranks, and with which peers."""
    trace = workload.traces[rank]
    everyone = tuple(range(workload.num_ranks))
    names, _ = group_names(trace)
    found: Counter[tuple[Any, ...]] = Counter()
    for row, kind in enumerate(trace.type_N.tolist()):
        if kind == NodeType.COMM_COLL:
            found[tuple(sorted(workload.groups.get(names[row], everyone)))] += 1
    for name in ("comm_dst", "comm_src"):
        peer_N, told_N = trace.integers(name)
        found.update((name, peer) for peer in peer_N[told_N].tolist())
    return found


def assert_same(made: Workload, wanted: Workload, ranks: int = 8) -> None:
    """Fail if some of the ranks differ in operators, costs, messages, groups or peers."""
    assert made.num_ranks == wanted.num_ranks
    for rank in range(0, wanted.num_ranks, max(1, wanted.num_ranks // ranks)):
        assert operators(made.traces[rank]) == operators(wanted.traces[rank]), rank
        assert groups(made, rank) == groups(wanted, rank), rank
