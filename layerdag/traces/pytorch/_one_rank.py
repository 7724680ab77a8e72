"""One rank's trace of a job of several ranks: taken alone, or run by every rank."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from layerdag.errors import TraceError
from layerdag.graph import pointers
from layerdag.traces import AttributeTable, NodeType, Trace, Wire, Workload
from layerdag.traces.analysis import WORLD_NAMES, group_names
from layerdag.traces.pytorch._ranks import ImportedJob, ranks_wanted, with_group_names

MOST_RANKS = 16_384
ELEMENT_BYTES = 4
_COMMUNICATION = ("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "pg_name")
_COSTS = ("num_ops", "tensor_size")


@dataclass(frozen=True)
class LostCommunication:
    """What a rank taken alone no longer says.

    Attributes:
        collectives: Collectives that became work.
        messages: Sends and receives that became work.
        num_bytes: Bytes that these moved, as far as they say.
        num_ranks: Ranks of the job, according to the trace.
    """

    collectives: int
    messages: int
    num_bytes: int
    num_ranks: int


def taken_alone(job: ImportedJob) -> tuple[Workload, LostCommunication]:
    """Return the one rank of ``job`` as a job of its own: communication becomes work of equal time.

    Under a roofline, which does not ask for times, such work is a copy: it reads and writes the
    size of the communication, with one operation for each element of 4 bytes.

    Raises:
        TraceError: If there are several ranks, or a communication attribute has a wrong type.
    """
    trace = _only_trace(job)
    comm_N = trace.type_N >= NodeType.COMM_SEND
    size_N = np.maximum(trace.integers("comm_size")[0], 0)
    lost = LostCommunication(
        collectives=int((trace.type_N == NodeType.COMM_COLL).sum()),
        messages=int((comm_N & (trace.type_N != NodeType.COMM_COLL)).sum()),
        num_bytes=int(size_N[comm_N].sum()),
        num_ranks=ranks_wanted(job),
    )
    strings = (*trace.strings, *(name for name in _COSTS if name not in trace.strings))
    trace = replace(trace, strings=strings)
    alone = replace(
        trace,
        type_N=np.where(comm_N, NodeType.COMP, trace.type_N).astype(trace.type_N.dtype),
        attributes=_as_copies(trace, comm_N, size_N),
    )
    return Workload((alone,), {}, job.workload.source), lost


def run_by_every_rank(job: ImportedJob) -> Workload:
    """Return a job in which every rank runs the one trace of ``job``, with groups of its own.

    A group of k ranks that lie s apart is taken for one of a regular grid: the ranks are cut into
    blocks of k s, and those s apart in a block share a group, as tensor, data and expert parallel
    groups do.

    Raises:
        TraceError: If several ranks are given, the trace names no others or sends messages (its
            stage of a pipeline is not theirs), or a group does not lie on a regular grid.
    """
    trace, num_ranks = _only_trace(job), ranks_wanted(job)
    if num_ranks == 1:
        raise TraceError(
            f"{trace.source}: names no other ranks, so it cannot be replicated; leave "
            "--replicate out."
        )
    if num_ranks > MOST_RANKS:
        raise TraceError(
            f"{trace.source}: names {num_ranks:,} ranks; at most {MOST_RANKS:,} are written."
        )
    if np.isin(trace.type_N, (NodeType.COMM_SEND, NodeType.COMM_RECV)).any():
        raise TraceError(
            f"{trace.source}: sends or receives messages, so other ranks run other programs; give "
            "their traces, or take this rank alone with --only-rank."
        )
    used = set(group_names(trace)[0]) - set(WORLD_NAMES)
    if not used:
        return Workload((trace,) * num_ranks, {}, job.workload.source)
    grids = {
        name: _Grid.of(job.workload.groups[name], num_ranks, trace.source) for name in sorted(used)
    }
    number: dict[tuple[int, ...], str] = {}
    written: dict[tuple[str, ...], Trace] = {}
    traces = []
    for rank in range(num_ranks):
        names = tuple(
            number.setdefault(grid.members(rank), str(len(number) + 1)) for grid in grids.values()
        )
        if names not in written:
            written[names] = with_group_names(trace, dict(zip(grids, names, strict=True)))
        traces.append(written[names])
    groups = {name: ranks for ranks, name in number.items()}
    return Workload(tuple(traces), groups, job.workload.source)


@dataclass(frozen=True)
class _Grid:
    """Groups of ``size`` ranks, ``stride`` apart."""

    size: int
    stride: int

    @classmethod
    def of(cls, ranks: tuple[int, ...], num_ranks: int, source: str) -> "_Grid":
        """Return the grid that a group lies on. Raises TraceError if there is none."""
        steps = np.diff(sorted(ranks))
        grid = cls(len(ranks), int(steps[0]) if steps.size else 1)
        whole = num_ranks % (grid.size * grid.stride) == 0
        if not whole or grid.members(min(ranks)) != tuple(sorted(ranks)):
            shown = ", ".join(map(str, sorted(ranks)[:8])) + (", ..." if len(ranks) > 8 else "")
            raise TraceError(
                f"{source}: the group of ranks {shown} is not one of equal groups of all "
                f"{num_ranks} ranks, so the other groups are unknown; give their traces, or "
                "take this rank alone with --only-rank."
            )
        return grid

    def members(self, rank: int) -> tuple[int, ...]:
        """Return the group of a rank, ascending."""
        block = self.size * self.stride
        first = rank // block * block + rank % self.stride
        return tuple(range(first, first + block, self.stride))


def _only_trace(job: ImportedJob) -> Trace:
    """Return the trace of a job of which one rank is given."""
    if job.workload.num_ranks != 1:
        raise TraceError(
            f"{job.workload.source}: {job.workload.num_ranks} ranks are given; --only-rank and "
            "--replicate take the files of one."
        )
    return job.workload.traces[0]


def _as_copies(trace: Trace, comm_N: np.ndarray, size_N: np.ndarray) -> AttributeTable:
    """Return the attributes with those of the nodes ``comm_N`` turned into costs of copies."""
    table = trace.attributes
    names = [at for at, word in enumerate(trace.strings) if word in (*_COMMUNICATION, *_COSTS)]
    node_A = np.repeat(np.arange(trace.num_nodes), np.diff(table.ptr_N1))
    keep_A = ~(comm_N[node_A] & np.isin(table.name_A, names))
    node_C = np.flatnonzero(comm_N)
    size_C = np.maximum(size_N[node_C], 1)
    ops_C = np.maximum(size_C // ELEMENT_BYTES, 1)
    node_A = np.concatenate([node_A[keep_A], node_C, node_C])
    order_A = np.argsort(node_A, kind="stable")
    flops, moved = (trace.strings.index(name) for name in _COSTS)
    count = node_C.size

    def joined(kept: np.ndarray, added: Mapping[str, object]) -> np.ndarray:
        parts = [np.broadcast_to(np.asarray(added[name]), count) for name in _COSTS]
        return np.concatenate([kept[keep_A], *parts])[order_A].astype(kept.dtype)

    return AttributeTable(
        ptr_N1=pointers(np.bincount(node_A, minlength=trace.num_nodes)).astype(table.ptr_N1.dtype),
        name_A=joined(table.name_A, {"num_ops": flops, "tensor_size": moved}),
        wire_A=joined(table.wire_A, {"num_ops": Wire.INT64, "tensor_size": Wire.UINT64}),
        word_A=joined(table.word_A, {"num_ops": ops_C, "tensor_size": 2 * size_C}),
        doc_A=joined(table.doc_A, dict.fromkeys(_COSTS, -1)),
        blobs=table.blobs,
    )
