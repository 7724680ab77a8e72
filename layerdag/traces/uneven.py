"""All-to-alls whose members give unequal sizes, made even.

A mixture of experts sends each expert what its tokens ask for, so that the members of an all-to-all
give different sizes. ASTRA-sim and Chakra have one size for a collective: the members must agree.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from layerdag.traces.analysis import match_communication
from layerdag.traces.trace import CollectiveType, Trace, Workload


class EvenSize(StrEnum):
    """The size that every member of an uneven all-to-all gets."""

    MAX = "max"
    MEAN = "mean"


@dataclass(frozen=True)
class EvenedCollectives:
    """What was made even.

    Attributes:
        count: All-to-alls whose members gave unequal sizes.
        before: Bytes of all their members before.
        after: Bytes of all their members now.
    """

    count: int
    before: int
    after: int


def even_all_to_all(workload: Workload, size: EvenSize) -> tuple[Workload, EvenedCollectives]:
    """Return the job with one size for the members of each all-to-all.

    Args:
        workload: The job.
        size: Which one.

    Raises:
        TraceError: If a trace has faulty dependencies or attributes.
    """
    matched = match_communication(workload)
    kind_C, size_C = np.empty_like(matched.row_C), np.empty_like(matched.row_C)
    for rank in np.unique(matched.rank_C).tolist():
        of_rank_C = matched.rank_C == rank
        for column_C, name in ((kind_C, "comm_type"), (size_C, "comm_size")):
            values_N = workload.traces[rank].integers(name, -1)[0]
            column_C[of_rank_C] = values_N[matched.row_C[of_rank_C]]
    changed: dict[int, dict[int, int]] = {}
    count = before = after = 0
    order = np.argsort(matched.instance_C, kind="stable")
    edges = np.flatnonzero(np.diff(matched.instance_C[order], prepend=-1, append=-1))
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        members = order[begin:end]
        sizes = size_C[members].tolist()
        if (kind_C[members] != CollectiveType.ALL_TO_ALL).any() or len(set(sizes)) == 1:
            continue
        even = max(sizes) if size is EvenSize.MAX else round(sum(sizes) / len(sizes))
        count, before, after = count + 1, before + sum(sizes), after + even * len(sizes)
        for member in members.tolist():
            rank, row = int(matched.rank_C[member]), int(matched.row_C[member])
            changed.setdefault(rank, {})[row] = even
    traces = list(workload.traces)
    made: dict[tuple[int, tuple[tuple[int, int], ...]], Trace] = {}
    for rank, size_of in changed.items():
        trace = workload.traces[rank]
        key = (id(trace), tuple(sorted(size_of.items())))
        if key not in made:
            made[key] = _with_sizes(trace, size_of)
        traces[rank] = made[key]
    even_job = replace(workload, traces=tuple(traces)) if changed else workload
    return even_job, EvenedCollectives(count, before, after)


def _with_sizes(trace: Trace, size_of: dict[int, int]) -> Trace:
    """Return the trace with other sizes of some nodes, which have one."""
    table = trace.attributes
    word_A = table.word_A.copy()
    name = trace.strings.index("comm_size")
    for row, size in size_of.items():
        begin, end = int(table.ptr_N1[row]), int(table.ptr_N1[row + 1])
        word_A[begin + np.flatnonzero(table.name_A[begin:end] == name)] = size
    return replace(trace, attributes=replace(table, word_A=word_A))
