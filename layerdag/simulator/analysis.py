"""Analyze a simulation: breakdown of time, critical path, sensitivities, memory.

In the breakdown every tick of a rank counts once, for the first of: GPU compute, collectives and
sends, remote memory, CPU work, waiting in a receive, idle. So the parts add up to its finish.

The critical path is the chain of nodes and waits that ends with the last node, walked backwards. A
node began when its slowest dependency ended, or when its slot became free; a collective or receive
ended as late as it did because some rank joined late, in which case the path goes on at that rank.

Local memory follows from the liveness of tensors. A node may name its tensors in the attributes
``inputs`` and ``outputs``, string lists of names and sizes in bytes in turn (``name, bytes, name,
bytes, ...``), as STAGE writes them and ASTRA-sim's ``track-local-mem`` reads them. A tensor is live
from the issue of its writer (of several, the one of lowest id) to the end of the last node that
uses it. What no node writes before it is read (weights, inputs) is live for the whole run, what no
node reads (results) until the rank's end. A node without these lists holds its ``tensor_size``, the
bytes that it touches, while it runs: a lower bound.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.errors import SimulationError
from layerdag.graph.topology import pointers
from layerdag.simulator.lowering import ClassProgram, NodeKind, Slot
from layerdag.simulator.program import LoweredProgram
from layerdag.simulator.run import SimulationResult
from layerdag.traces.builder import value_of
from layerdag.traces.trace import OPERATOR, NodeType, Trace


@dataclass(frozen=True, eq=False)
class Breakdown:
    """Time of each rank by what it was spent on.

    Attributes:
        parts: Labels, such as "compute", "dim 0" or "dim 0+1" (collectives in these dimensions),
            "send", "replayed", "memory", "cpu", "receive", "idle".
        time_ns_RP: int64 (ranks, parts); rows add up to the rank's finish.
    """

    parts: tuple[str, ...]
    time_ns_RP: np.ndarray


def breakdown(result: SimulationResult) -> Breakdown:
    """Return where the time of each rank of ``result`` went."""
    program = result.program
    labels = [_labels(c, program) for c in program.classes]
    found = {label for each in labels for label in each}
    last = [label for label in ("memory", "cpu", "receive") if label in found]
    parts = ("compute", *sorted(found - {"compute", *last}), *last, "idle")
    column = {part: i for i, part in enumerate(parts)}
    time_ns_RP = np.zeros((result.num_ranks, len(parts)), dtype=np.int64)
    codes = [np.array([column[label] for label in each]) for each in labels]
    run = result.outcome.ranks
    for rank in run.rank_K.tolist():
        which = int(program.class_of_rank[rank])
        exposed_N = _exposed(np.stack(result.ticks(rank), axis=1), program.classes[which])
        np.add.at(time_ns_RP[rank], codes[which], exposed_N)
        time_ns_RP[rank, column["idle"]] = result.rank_finish_ns[rank] - exposed_N.sum()
    return Breakdown(parts, time_ns_RP[run.rank_K[run.of_rank]])


def _labels(nodes: ClassProgram, program: LoweredProgram) -> list[str]:
    fixed = {
        NodeType.INVALID: "compute",  # takes no time
        NodeType.COMP: "compute",
        NodeType.COMM_SEND: "send",
        NodeType.COMM_RECV: "receive",
        NodeType.MEM_LOAD: "memory",
        NodeType.MEM_STORE: "memory",
        NodeType.COMM_COLL: "replayed",
        NodeType.STORAGE: "storage",
        NodeType.BATCH: "compute",  # these two take no time
        NodeType.CHECKPOINT: "compute",
    }
    labels = [fixed[NodeType(kind)] for kind in nodes.type_N.tolist()]
    on_cpu_N = (nodes.slot_N == Slot.CPU) & (nodes.type_N != NodeType.STORAGE)
    for row in np.flatnonzero(on_cpu_N).tolist():
        labels[row] = "cpu"
    for row in np.flatnonzero(nodes.kind_N == NodeKind.COLLECTIVE).tolist():
        phases = program.plans[nodes.peer_N[row]].phases
        dims = {phase.dimension for phase in phases}
        if phases[0].stride == 0:
            dims, _ = program.groups.dimensions(int(nodes.tag_N[row]), program.cluster.network)
        labels[row] = "dim " + "+".join(map(str, sorted(dims)))
    return labels


def _exposed(spans_N2: np.ndarray, nodes: ClassProgram) -> np.ndarray:
    kind_N = nodes.type_N
    memory_N = (kind_N == NodeType.MEM_LOAD) | (kind_N == NodeType.MEM_STORE)
    slot_N = np.where(memory_N, Slot.NONE, nodes.slot_N)
    receive_N = kind_N == NodeType.COMM_RECV
    groups = (
        slot_N == Slot.COMPUTE,
        slot_N == Slot.COMM,
        memory_N,
        slot_N == Slot.CPU,
        receive_N,
    )
    exposed_N = np.zeros(len(spans_N2), dtype=np.int64)
    covered = np.zeros((0, 2), dtype=np.int64)
    for mask in groups:
        own = spans_N2[mask]
        own = own[np.argsort(own[:, 0], kind="stable")]
        # Receives overlap each other: each is cut where the ones before it end.
        reach = np.maximum.accumulate(np.concatenate([[0], own[:-1, 1]])) if len(own) else own[:, 0]
        cut = np.stack([np.minimum(np.maximum(own[:, 0], reach), own[:, 1]), own[:, 1]], axis=1)
        order = np.flatnonzero(mask)[np.argsort(spans_N2[mask][:, 0], kind="stable")]
        exposed_N[order] = (cut[:, 1] - cut[:, 0]) - _overlap(cut, covered)
        covered = _union(np.concatenate([covered, own]))
    return exposed_N


def _union(spans: np.ndarray) -> np.ndarray:
    """Return the disjoint union of intervals, sorted, shape (K, 2)."""
    if not len(spans):
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    first = np.concatenate([[True], spans[1:, 0] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.stack([spans[first, 0], reach[last]], axis=1)


def _overlap(spans: np.ndarray, covered: np.ndarray) -> np.ndarray:
    if not len(covered):
        return np.zeros(len(spans), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(covered[:, 1] - covered[:, 0])])

    def covered_until(time: np.ndarray) -> np.ndarray:
        index = np.searchsorted(covered[:, 0], time, side="right")
        inside = (
            np.minimum(time, covered[np.maximum(index - 1, 0), 1])
            - covered[np.maximum(index - 1, 0), 0]
        )
        return np.where(index > 0, before[np.maximum(index - 1, 0)] + inside, 0)

    return covered_until(spans[:, 1]) - covered_until(spans[:, 0])


@dataclass(frozen=True)
class PathNode:
    """One node on the critical path.

    Attributes:
        rank: Its rank.
        row: Its row among the rank's nodes in ascending id.
        start_ns: From when on it determined the path: its issue, or the end of what it waited for.
        finish_ns: When it ended.
        reason: Why it began no earlier: "dependency", "slot" or "start".
    """

    rank: int
    row: int
    start_ns: int
    finish_ns: int
    reason: str


def critical_path(result: SimulationResult) -> tuple[PathNode, ...]:
    """Return the critical path of ``result`` from its first to its last node."""
    walker = _Walker(result)
    rank = int(np.argmax(result.rank_finish_ns))
    row = int(np.argmax(result.ticks(rank)[1]))
    path = [walker.step(rank, row)]
    while path[-1].reason != "start":
        path.append(walker.step(*walker.before(path[-1])))
    return tuple(reversed(path))


def by_node(result: SimulationResult, path: tuple[PathNode, ...]) -> dict[str, int]:
    """Return the ns on ``path`` by node name, longest first."""
    return _summed(path, _of_path(result, path, Trace.names))


def by_kind(result: SimulationResult, path: tuple[PathNode, ...]) -> dict[str, int]:
    """Return the ns on ``path`` by what its nodes do, longest first.

    Computation is named by the operator that a node states (``op_type``), else by its name, a
    collective by its type and the dimensions that it is charged to.
    """
    program = result.program
    labels: dict[int, list[str]] = {}
    kinds = []
    names = _of_path(result, path, Trace.names)
    stated = _of_path(result, path, lambda trace: trace.texts(OPERATOR)[0])
    for node, name, operator in zip(path, names, stated, strict=True):
        which = int(program.class_of_rank[node.rank])
        if which not in labels:
            labels[which] = _labels(program.classes[which], program)
        label = labels[which][node.row]
        if label in ("compute", "cpu"):
            label = operator or name or label
        elif label.startswith("dim "):
            first = program.plans[program.classes[which].peer_N[node.row]].kind
            label = f"{first.name.lower()} ({label})"
        kinds.append(label)
    return _summed(path, kinds)


def _of_path(
    result: SimulationResult, path: tuple[PathNode, ...], words: Callable[[Trace], Sequence[str]]
) -> list[str]:
    """Return the words of the nodes of a path; ``words`` gives those of a trace."""
    found: dict[int, list[str]] = {}
    for node in path:
        trace = result.program.workload.traces[node.rank]
        if id(trace) not in found:
            every = words(trace)
            order = np.argsort(trace.id_N, kind="stable").tolist()
            found[id(trace)] = [every[position] for position in order]
    return [found[id(result.program.workload.traces[node.rank])][node.row] for node in path]


def _summed(path: tuple[PathNode, ...], words: list[str]) -> dict[str, int]:
    total: dict[str, int] = defaultdict(int)
    for node, word in zip(path, words, strict=True):
        total[word] += node.finish_ns - node.start_ns
    return dict(sorted(total.items(), key=lambda item: -item[1]))


class _Walker:
    def __init__(self, result: SimulationResult) -> None:
        self._result = result
        self._program: LoweredProgram = result.program
        self._parents: dict[int, list[list[int]]] = {}
        self._rows: dict[tuple[int, tuple[int, ...]], list[int]] = {}

    def times(self, rank: int, row: int) -> tuple[int, int]:
        """Return (issue, finish) in ns."""
        issue_N, finish_N = self._result.ticks(rank)
        return int(issue_N[row]), int(finish_N[row])

    def step(self, rank: int, row: int) -> PathNode:
        """Return the path node of (rank, row), moved to the rank that joined last."""
        finish = self.times(rank, row)[1]
        kind = self._program.classes[self._program.class_of_rank[rank]].kind_N[row]
        partners = [(rank, row)]
        if kind == NodeKind.COLLECTIVE:
            partners = self._of_collective(rank, row)
        elif kind == NodeKind.RECV and (sent := self._of_receive(rank, row)) is not None:
            partners.append(sent)
        rank, row = max(partners, key=lambda at: self.times(*at)[0])
        issue = self.times(rank, row)[0]
        reason = "start" if issue == 0 else "dependency"
        if reason == "dependency" and self._parent_ending_at(rank, row, issue) is None:
            reason = "slot" if self._slot_holder(rank, row, issue) is not None else "start"
        return PathNode(rank, row, issue, finish, reason)

    def before(self, node: PathNode) -> tuple[int, int]:
        """Return (rank, row) of what ended when ``node`` began."""
        found = self._parent_ending_at(node.rank, node.row, node.start_ns)
        if found is None:
            found = self._slot_holder(node.rank, node.row, node.start_ns)
        assert found is not None
        return node.rank, found

    def _parent_ending_at(self, rank: int, row: int, time: int) -> int | None:
        which = int(self._program.class_of_rank[rank])
        if which not in self._parents:
            nodes = self._program.classes[which]
            found: list[list[int]] = [[] for _ in nodes.id_N]
            source = np.repeat(np.arange(len(nodes.id_N)), np.diff(nodes.child_ptr))
            for parent, child in zip(source.tolist(), nodes.child_E.tolist(), strict=True):
                found[child].append(parent)
            self._parents[which] = found
        ending = (p for p in self._parents[which][row] if self.times(rank, p)[1] == time)
        return next(ending, None)

    def _slot_holder(self, rank: int, row: int, time: int) -> int | None:
        slot_N = self._program.classes[self._program.class_of_rank[rank]].slot_N
        if slot_N[row] == Slot.NONE:
            return None
        issue_N, finish_N = self._result.ticks(rank)
        ended_N = (finish_N == time) & (slot_N == slot_N[row]) & (issue_N < time)
        return int(np.argmax(ended_N)) if ended_N.any() else None

    def _of_collective(self, rank: int, row: int) -> list[tuple[int, int]]:
        """Return the nodes of all ranks that take part in a collective, its own among them.

        The n-th collective of a group on one rank belongs to the n-th on the others, in ascending
        id.
        """
        group = int(self._program.of_rank(rank).tag_N[row])
        place = self._of_group(rank, group).index(row)
        members: Sequence[int] = range(self._program.num_ranks)
        if group >= 0:
            members = sorted(self._program.groups.members(group).tolist())
        every = ((member, self._of_group(member, group)) for member in members)
        return [(member, rows[place]) for member, rows in every if place < len(rows)]

    def _of_group(self, rank: int, group: int) -> list[int]:
        program, which = self._program, int(self._program.class_of_rank[rank])
        nodes, first = program.classes[which], int(program.role_ptr[rank])
        role = program.role[first : first + len(nodes.groups)]
        known = tuple(nodes.groups[at] for at in np.flatnonzero(role == group).tolist())
        tags = (-1,) if group < 0 else known
        if (which, tags) not in self._rows:
            mine_N = (nodes.kind_N == NodeKind.COLLECTIVE) & np.isin(nodes.tag_N, tags)
            self._rows[which, tags] = np.flatnonzero(mine_N).tolist()
        return self._rows[which, tags]

    def _of_receive(self, rank: int, row: int) -> tuple[int, int] | None:
        """Return the send of a receive: the n-th with the n-th of equal messages."""
        nodes = self._program.of_rank(rank)
        source, what = int(nodes.peer_N[row]), (int(nodes.tag_N[row]), int(nodes.cost_N[row]))
        place = int(np.searchsorted(_equal(nodes, NodeKind.RECV, source, what), row))
        sends = _equal(self._program.of_rank(source), NodeKind.SEND, rank, what)
        return (source, int(sends[place])) if place < len(sends) else None


def _equal(nodes: ClassProgram, kind: NodeKind, peer: int, what: tuple[int, int]) -> np.ndarray:
    same_N = (nodes.kind_N == kind) & (nodes.peer_N == peer)
    return np.flatnonzero(same_N & (nodes.tag_N == what[0]) & (nodes.cost_N == what[1]))


@dataclass(frozen=True, eq=False)
class LocalMemory:
    """Peak of the local memory of each rank.

    Attributes:
        peak_bytes_R: int64 (R,).
        peak_ns_R: int64 (R,), first tick at which the peak is held.
        listed_R: float64 (R,), share of nodes that name their tensors; where it is below 1, the
            peak is a lower bound.
    """

    peak_bytes_R: np.ndarray
    peak_ns_R: np.ndarray
    listed_R: np.ndarray

    def summary(self) -> dict[str, object]:
        """Return the peaks as ``--json`` writes them."""
        return {
            "peak_memory_bytes": {str(r): int(size) for r, size in enumerate(self.peak_bytes_R)},
            "peak_memory_at": {str(r): int(time) for r, time in enumerate(self.peak_ns_R)},
            "nodes_with_tensors": {
                str(r): float(fraction) for r, fraction in enumerate(self.listed_R)
            },
        }

    def line(self) -> str:
        """Return the highest peak and how much of it is known, for the terminal."""
        rank = int(np.argmax(self.peak_bytes_R))
        bound = "" if self.listed_R.min() == 1 else ", a lower bound"
        return (
            f"peak local memory {self.peak_bytes_R[rank] / 1e9:.3f} GB on rank {rank}{bound} "
            f"({self.listed_R.mean():.0%} of nodes name their tensors)"
        )

    def over(self, capacity_bytes: int) -> str:
        """Return a sentence on the first rank whose peak exceeds the capacity, "" for none."""
        over = np.flatnonzero(self.peak_bytes_R > capacity_bytes)
        if not over.size:
            return ""
        rank = int(over[0])
        return (
            f"rank {rank} holds {int(self.peak_bytes_R[rank])} bytes at "
            f"{int(self.peak_ns_R[rank])} ns, more than the capacity of {capacity_bytes} bytes "
            f"({over.size} of {len(self.peak_bytes_R)} ranks exceed it); shard more or enlarge it."
        )


@dataclass(frozen=True, eq=False)
class _Tensors:
    bytes_T: np.ndarray
    use_ptr_T1: np.ndarray
    row_U: np.ndarray
    written_T: np.ndarray  # whether a node writes it before any reads it
    read_T: np.ndarray
    first_write_T: np.ndarray  # row; meaningless where written_T is False
    bytes_N: np.ndarray  # what a node without lists holds while it runs
    listed: float


def local_memory(result: SimulationResult) -> LocalMemory:
    """Return the peak local memory of each rank.

    Raises:
        SimulationError: If a list of tensors is no list of names and sizes; names file and node.
    """
    program = result.program
    tensors = [
        _tensors(result.program.workload.traces[int(np.argmax(program.class_of_rank == index))])
        for index in range(len(program.classes))
    ]
    run = result.outcome.ranks
    peaks = [
        _peak(tensors[program.class_of_rank[rank]], *result.ticks(rank))
        for rank in run.rank_K.tolist()
    ]
    listed = np.array([tensors[index].listed for index in program.class_of_rank])
    peak_R2 = np.array(peaks, dtype=np.int64)[run.of_rank]
    return LocalMemory(peak_R2[:, 0], peak_R2[:, 1], listed)


def _peak(tensors: _Tensors, issue_N: np.ndarray, finish_N: np.ndarray) -> tuple[int, int]:
    """Return (bytes, tick) of the peak; at one tick, what ends is freed before what begins."""
    start_T = np.where(tensors.written_T, issue_N[tensors.first_write_T], 0)
    last_use_T = np.zeros(0, dtype=np.int64)
    if len(start_T):
        last_use_T = np.maximum.reduceat(finish_N[tensors.row_U], tensors.use_ptr_T1[:-1])
    kept_T = ~(tensors.written_T & tensors.read_T)
    end_T = np.where(kept_T, finish_N.max(), last_use_T)
    size = np.concatenate([tensors.bytes_T, tensors.bytes_N])
    start = np.concatenate([start_T, issue_N])
    end = np.concatenate([end_T, finish_N])
    lasting = end > start
    change = np.concatenate([size[lasting], -size[lasting]])
    time = np.concatenate([start[lasting], end[lasting]])
    if not len(time):
        return 0, 0
    order = np.lexsort((change, time))
    held = np.cumsum(change[order])
    top = int(np.argmax(held))
    return int(held[top]), int(time[order][top])


def _tensors(trace: Trace) -> _Tensors:
    order = np.argsort(trace.id_N, kind="stable")
    row_of = np.empty_like(order)
    row_of[order] = np.arange(len(order))
    index_of: dict[str, int] = {}
    sizes: list[int] = []
    uses: list[tuple[int, int, bool]] = []
    listed_N = np.zeros(trace.num_nodes, dtype=bool)
    for attribute, writes in (("inputs", False), ("outputs", True)):
        for position, pairs in tensor_lists(trace, attribute):
            listed_N[row_of[position]] = True
            for name, size in pairs:
                index = index_of.setdefault(name, len(sizes))
                if index == len(sizes):
                    sizes.append(0)
                sizes[index] = max(sizes[index], size)
                uses.append((index, int(row_of[position]), writes))
    use_U3 = np.array(sorted(uses), dtype=np.int64).reshape(-1, 3)
    tensor_U, row_U, writes_U = use_U3[:, 0], use_U3[:, 1], use_U3[:, 2] == 1
    count = len(sizes)
    first_write_T, first_read_T = (np.full(count, trace.num_nodes) for _ in range(2))
    np.minimum.at(first_write_T, tensor_U[writes_U], row_U[writes_U])
    np.minimum.at(first_read_T, tensor_U[~writes_U], row_U[~writes_U])
    # What is read first, such as a weight that its optimizer updates, was there before.
    written_T = first_write_T < first_read_T
    touched_N = np.maximum(trace.integers("tensor_size")[0][order], 0)
    return _Tensors(
        bytes_T=np.array(sizes, dtype=np.int64),
        use_ptr_T1=pointers(np.bincount(tensor_U, minlength=count)),
        row_U=row_U,
        written_T=written_T,
        read_T=first_read_T < trace.num_nodes,
        first_write_T=np.minimum(first_write_T, trace.num_nodes - 1),
        bytes_N=np.where(listed_N, 0, touched_N),
        listed=float(listed_N.mean()),
    )


def tensor_lists(trace: Trace, name: str) -> list[tuple[int, list[tuple[str, int]]]]:
    """Return (position in the trace, its tensors) of each node that carries the list ``name``."""
    table = trace.attributes
    if name not in trace.strings:
        return []
    row_A = np.flatnonzero(table.name_A == trace.strings.index(name))
    node_A = np.searchsorted(table.ptr_N1, row_A, side="right") - 1
    found = []
    for row, node in zip(row_A.tolist(), node_A.tolist(), strict=True):
        try:
            pairs = _pairs(value_of(table, row, trace.strings))
        except ValueError:
            raise SimulationError(
                f"{trace.source}: node {int(trace.id_N[node])} has an attribute '{name}' that is "
                "no string list of names and bytes in turn; repair or drop it."
            ) from None
        found.append((node, pairs))
    return found


def _pairs(value: object) -> list[tuple[str, int]]:
    """Return names with sizes in bytes of "name, bytes, name, bytes, ...", or raise ValueError."""
    if value is None:  # STAGE's sums and gathers of weights; nothing, as in the reference
        return []
    if not isinstance(value, tuple) or len(value) % 2:
        raise ValueError
    pairs = []
    for name, size in zip(value[::2], value[1::2], strict=True):
        number = float(str(size))
        if not 0 <= number < 2**62:  # refuses NaN too
            raise ValueError
        pairs.append((str(name), int(number)))
    return pairs
