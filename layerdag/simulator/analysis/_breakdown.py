"""Where the time of a rank goes: compute, exposed communication by kind, memory, CPU, idle.

Every tick of a rank counts once, for the first of: GPU compute, collectives and sends, remote
memory, CPU work, waiting in a receive, idle. So the parts add up to the rank's finish.
"""

from dataclasses import dataclass

import numpy as np

from layerdag.simulator import SimulationResult
from layerdag.simulator.engine import ClassProgram, NodeKind, Program, Slot
from layerdag.traces import NodeType


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

    def table(self, max_ranks: int = 16) -> str:
        """Return the breakdown as text, in ms, with a row for the mean of all ranks."""
        rows = [("mean", self.time_ns_RP.mean(axis=0))]
        rows += [(str(r), row) for r, row in enumerate(self.time_ns_RP[:max_ranks])]
        head = f"{'rank':>6}" + "".join(f"{part:>13}" for part in self.parts) + f"{'total':>13}"
        lines = [head, f"{'ms':>6}"]
        for label, row in rows:
            cells = "".join(f"{value / 1e6:>13.3f}" for value in (*row, row.sum()))
            lines.append(f"{label:>6}{cells}")
        return "\n".join(lines)


def break_down(result: SimulationResult) -> Breakdown:
    """Return where the time of each rank of ``result`` went."""
    program = result.program
    labels = [_labels(c, program) for c in program.classes]
    parts = _in_order({label for found in labels for label in found})
    column = {part: i for i, part in enumerate(parts)}
    time_ns_RP = np.zeros((result.num_ranks, len(parts)), dtype=np.int64)
    codes = [np.array([column[label] for label in found]) for found in labels]
    for rank in range(result.num_ranks):
        rows, which = result.rows(rank), int(program.class_of_rank[rank])
        spans = np.stack([result.issue_ns[rows], result.finish_ns[rows]], axis=1)
        exposed_N = _exposed(spans, program.classes[which])
        np.add.at(time_ns_RP[rank], codes[which], exposed_N)
        time_ns_RP[rank, column["idle"]] = result.rank_finish_ns[rank] - exposed_N.sum()
    return Breakdown(parts, time_ns_RP)


def _labels(nodes: ClassProgram, program: Program) -> list[str]:
    """Return the label of each node."""
    fixed = {
        NodeType.COMP: "compute",
        NodeType.COMM_SEND: "send",
        NodeType.COMM_RECV: "receive",
        NodeType.MEM_LOAD: "memory",
        NodeType.MEM_STORE: "memory",
        NodeType.COMM_COLL: "replayed",
    }
    labels = [fixed[NodeType(kind)] for kind in nodes.type_N.tolist()]
    for row in np.flatnonzero(nodes.slot_N == Slot.CPU).tolist():
        labels[row] = "cpu"
    for row in np.flatnonzero(nodes.kind_N == NodeKind.COLLECTIVE).tolist():
        phases = program.plans[nodes.peer_N[row]].phases
        dims = {phase.dimension for phase in phases}
        if phases[0].stride == 0:
            dims = _dimensions_of_group(program, int(nodes.tag_N[row]))
        labels[row] = "dim " + "+".join(map(str, sorted(dims)))
    return labels


def _dimensions_of_group(program: Program, group: int) -> set[int]:
    """Return the dimensions that messages between neighbors of a group are charged to."""
    groups = program.groups
    member = groups.rank[groups.ptr[group] : groups.ptr[group + 1]].astype(np.int64)
    neighbor = np.roll(member, -1)
    charged = np.full(len(member), -1)
    for index, dimension in enumerate(program.cluster.network.dimensions):
        differ = member % dimension.npus != neighbor % dimension.npus
        charged[differ & (charged < 0)] = index
        member, neighbor = member // dimension.npus, neighbor // dimension.npus
    return set(charged[charged >= 0].tolist())


def _in_order(found: set[str]) -> tuple[str, ...]:
    """Return the labels that occur in a fixed order; compute and idle always."""
    first = ["compute"]
    middle = sorted(found - {"compute", "memory", "cpu", "receive"})
    last = [label for label in ("memory", "cpu", "receive") if label in found]
    return (*first, *middle, *last, "idle")


def _exposed(spans_N2: np.ndarray, nodes: ClassProgram) -> np.ndarray:
    """Return the time of each node that nothing before it in the order of counting covers, (N,)."""
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
    """Return how much of each interval the disjoint, sorted intervals ``covered`` cover."""
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
