"""What a simulation yields: ticks of every node, finish and exposed communication of every rank."""

from dataclasses import dataclass

import numpy as np

from layerdag.simulator.engine import ClassProgram, Program, Slot
from layerdag.traces import NodeType


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """Outcome of one complete run; all times in ns (1 ns = 1 cycle of ASTRA-sim).

    Attributes:
        program: What was run.
        issue_ns: int64, tick at which each node of each rank was issued; rank r owns rows
            ``program.out_ptr[r]:program.out_ptr[r+1]``, in ascending node id.
        finish_ns: int64, the same for the end.
        rank_finish_ns: int64 (R,), tick at which nothing of a rank was ready or running any more.
        exposed_comm_ns: int64 (R,), finish minus the GPU compute time, as ASTRA-sim reports it:
            exposed communication, idle time and CPU time together. Under ``replay_only`` minus the
            time of all nodes that are not on the CPU, as there; it may then be negative, where
            several of these ran at once.
        compute_ns: int64 (R,), total GPU compute time.
        lane: uint8, which communication stream of its rank each node took, rows as in
            ``issue_ns``; 0 for nodes that take none.
        events: Number of events the kernel handled.
        notes: What a reader of the figures should know, one sentence each.
    """

    program: Program
    issue_ns: np.ndarray
    finish_ns: np.ndarray
    rank_finish_ns: np.ndarray
    exposed_comm_ns: np.ndarray
    compute_ns: np.ndarray
    lane: np.ndarray
    events: int
    notes: tuple[str, ...] = ()

    @property
    def makespan_ns(self) -> int:
        """Time at which the last rank ends."""
        return int(self.rank_finish_ns.max())

    @property
    def num_ranks(self) -> int:
        """Number of ranks (R)."""
        return len(self.rank_finish_ns)

    @property
    def num_nodes(self) -> int:
        """Nodes of all ranks."""
        return len(self.issue_ns)

    def rows(self, rank: int) -> slice:
        """Return the rows of ``rank``."""
        return slice(int(self.program.out_ptr[rank]), int(self.program.out_ptr[rank + 1]))

    def nodes(self, rank: int) -> ClassProgram:
        """Return ids, types and costs of the nodes of ``rank``, in the order of its rows."""
        return self.program.of_rank(rank)

    def summary(self) -> dict[str, object]:
        """Return finish, exposed communication and makespan as ``--json`` writes them."""
        return {
            "makespan": self.makespan_ns,
            "finish": {str(r): int(t) for r, t in enumerate(self.rank_finish_ns)},
            "exposed_comm": {str(r): int(t) for r, t in enumerate(self.exposed_comm_ns)},
            "compute": {str(r): int(t) for r, t in enumerate(self.compute_ns)},
            "ranks": self.num_ranks,
            "nodes": self.num_nodes,
            "events": self.events,
            "unit": "ns",
            "notes": list(self.notes),
        }


def gpu_compute_ns(program: Program, duration_ns: np.ndarray) -> np.ndarray:
    """Return the total time of GPU compute nodes of each rank, int64 (R,).

    Args:
        program: What was run.
        duration_ns: finish minus issue of each row.
    """
    on_gpu = [(c.type_N == NodeType.COMP) & (c.slot_N == Slot.COMPUTE) for c in program.classes]
    return _total_ns(program, duration_ns, on_gpu)


def unexposed_ns(program: Program, duration_ns: np.ndarray) -> np.ndarray:
    """Return what ASTRA-sim takes off a rank's finish to tell its exposed communication, (R,).

    That is the time of GPU compute nodes; under replay the reference counts every node that is not
    on the CPU, communication too.

    Args:
        program: What was run.
        duration_ns: finish minus issue of each row.
    """
    if not program.cluster.system.replay_only:
        return gpu_compute_ns(program, duration_ns)
    return _total_ns(program, duration_ns, [c.slot_N != Slot.CPU for c in program.classes])


def _total_ns(program: Program, duration_ns: np.ndarray, counted: list[np.ndarray]) -> np.ndarray:
    """Return the total time of each rank's nodes that a mask for each class picks, int64 (R,)."""
    mask = np.concatenate([counted[c] for c in program.class_of_rank])
    running = np.concatenate([[0], np.cumsum(np.where(mask, duration_ns, 0))])
    return running[program.out_ptr[1:]] - running[program.out_ptr[:-1]]
