"""The compiled event kernel: struct Input of native/sim/sim.h filled from a Program."""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from layerdag._runtime import library
from layerdag.errors import LayerdagError, SimulationError
from layerdag.graph import pointers
from layerdag.simulator import Congestion
from layerdag.simulator.engine._nodes import ClassProgram, NodeKind, positions_in
from layerdag.simulator.engine._program import Program, TopologyCode, endpoint_delay, memory_ranks

MAX_WAITS_PER_RANK, MAX_ORPHANS = 4, 1024
GROUP_DELAY_NS = 10
GROUP_TAGS = 1_000_000
_OUT_OF_MEMORY, _NOT_EXACT = 1, 2

_PHASE = np.dtype(
    [
        ("size", np.int64),
        *(
            (name, np.int32)
            for name in (
                "type",
                "algorithm",
                "window",
                "dimension",
                "members",
                "stride",
                "queue_choice",
                "tree_counter",
            )
        ),
    ]
)

_FIELDS = (
    *((name, "i") for name in ("num_ranks", "num_classes", "num_dims", "num_plans", "num_groups")),
    *(
        (name, "p")
        for name in (
            "class_of_rank",
            "node_ptr",
            "kind",
            "slot",
            "duration",
            "peer",
            "tag",
            "child_ptr",
            "child",
            "indegree",
            "role_ptr",
            "role",
            "out_ptr",
            "phase_ptr",
            "phase",
            "chunks",
            "group_ptr",
            "group_rank",
            "rank_group_ptr",
            "rank_group",
            "rank_position",
            "group_tag",
            "dim_size",
            "dim_type",
            "dim_bandwidth",
            "dim_latency",
        )
    ),
    ("reduce_bandwidth", "d"),
    *(
        (name, "i")
        for name in (
            "endpoint_delay",
            "group_delay",
            "queues_per_dim",
            "active_per_queue",
            "memory_ranks",
            "congestion_aware",
            "rendezvous",
            "solve_runs",
            "comm_streams",
        )
    ),
)
_CTYPES: dict[str, type] = {"i": ctypes.c_int64, "p": ctypes.c_void_p, "d": ctypes.c_double}


class _Input(ctypes.Structure):
    _fields_ = tuple((name, _CTYPES[code]) for name, code in _FIELDS)


_OUTPUTS = ("issue", "finish", "rank_finish", "events", "lane", "instant")


class _Output(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in _OUTPUTS]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the kernel found; -1 stands for "did not happen".

    Attributes:
        issue_ns: int64 per node of every rank (rows as in ``Program.out_ptr``).
        finish_ns: int64, the same.
        rank_finish_ns: int64 (R,).
        lane: uint8 per node of every rank, which communication stream it took; 0 for other nodes.
        waits: int64 (W, 5): rank, row, awaited rank, tag, bytes of every unfinished receive.
        unmatched: int64 (O, 5): source, destination, tag, bytes, count of messages never received.
        events: Number of events handled.
        instant: Row of the first node that put an event into tick 0, where the reference aborts;
            -1 for none.
    """

    issue_ns: np.ndarray
    finish_ns: np.ndarray
    rank_finish_ns: np.ndarray
    lane: np.ndarray
    waits: np.ndarray
    unmatched: np.ndarray
    events: int
    instant: int


class Method(IntEnum):
    """How collectives are run; the values are those of ``solve_runs`` in native/sim/sim.h.

    SOLVED is exact wherever it yields an outcome at all: where it would not be, or where ranks get
    stuck, the kernel says so and every message is simulated instead.
    """

    MESSAGES = 0
    SOLVED = 1


def run(program: Program) -> Outcome:
    """Run the program to its end, or to where nothing moves any more, by the fastest exact method.

    Raises:
        SimulationError: If memory runs out.
    """
    if _solvable(program):
        outcome = run_with(program, Method.SOLVED)
        if outcome is not None and (outcome.finish_ns >= 0).all():
            return outcome
    outcome = run_with(program, Method.MESSAGES)
    assert outcome is not None
    return outcome


def _solvable(program: Program) -> bool:
    """Return whether a collective's course depends on nothing but when its members enter it."""
    options = program.cluster.options
    if options.congestion is not Congestion.UNAWARE or options.rendezvous:
        return False
    if endpoint_delay(program.cluster) == 0:  # then the order inside a tick counts
        return False
    shared = memory_ranks(program.cluster.memory, program.num_ranks) > 0
    return not (shared and any((c.kind_N == NodeKind.MEMORY).any() for c in program.classes))


def run_with(program: Program, method: Method) -> Outcome | None:
    """Run the program by one method; None if that method would not be exact here.

    Raises:
        SimulationError: If memory runs out.
    """
    arrays = _arrays(program)
    given = _Input(
        **{name: array.ctypes.data for name, array in arrays.items()},
        **_scalars(program),
        solve_runs=int(method),
    )
    rows, ranks = int(program.out_ptr[-1]), program.num_ranks
    out: dict[str, np.ndarray] = {
        "issue": np.empty(rows, dtype=np.int64),
        "finish": np.empty(rows, dtype=np.int64),
        "rank_finish": np.empty(ranks, dtype=np.int64),
        "events": np.zeros(1, dtype=np.int64),
        "lane": np.zeros(rows, dtype=np.uint8),
        "instant": np.full(1, -1, dtype=np.int64),
    }
    wanted = _Output(**{name: array.ctypes.data for name, array in out.items()})
    max_rows = MAX_WAITS_PER_RANK * ranks + MAX_ORPHANS
    waits, unmatched = (np.zeros(1 + 5 * max_rows, dtype=np.int64) for _ in range(2))
    _require_current_kernels()
    function = library().sim_run
    function.restype = ctypes.c_int64
    status = function(
        ctypes.byref(given),
        ctypes.byref(wanted),
        ctypes.c_void_p(waits.ctypes.data),
        ctypes.c_void_p(unmatched.ctypes.data),
        ctypes.c_int64(max_rows),
    )
    if status == _OUT_OF_MEMORY:
        raise SimulationError("the simulation ran out of memory; use fewer ranks or more memory.")
    if status == _NOT_EXACT:
        return None
    return Outcome(
        issue_ns=out["issue"],
        finish_ns=out["finish"],
        rank_finish_ns=out["rank_finish"],
        lane=out["lane"],
        waits=waits[1:].reshape(-1, 5)[: waits[0]],
        unmatched=unmatched[1:].reshape(-1, 5)[: unmatched[0]],
        events=int(out["events"][0]),
        instant=int(out["instant"][0]),
    )


def _require_current_kernels() -> None:
    """Refuse kernels that were compiled for another layout of struct Input."""
    size = getattr(library(), "sim_input_bytes", None)
    if size is None or size() != ctypes.sizeof(_Input):
        raise LayerdagError(
            "The compiled kernels of layerdag belong to another version of it; install the package "
            "again with 'pip install .' (in a checkout: python setup.py build_ext --inplace)."
        )


def _joined(parts: Iterable[np.ndarray], dtype: type) -> np.ndarray:
    """Return the parts end to end as one contiguous array of ``dtype``."""
    return np.ascontiguousarray(np.concatenate(list(parts)), dtype=dtype)


def _arrays(program: Program) -> dict[str, np.ndarray]:
    """Return every array of struct Input; they must outlive the call."""
    classes, groups = program.classes, program.groups
    edge_start = pointers([len(c.child_E) for c in classes])
    child_ptr = [c.child_ptr[:-1] + start for c, start in zip(classes, edge_start, strict=False)]
    child_ptr.append(edge_start[-1:])
    dimensions = program.cluster.network.dimensions
    phases = [
        (p.size, *map(int, (p.type, p.algorithm, p.window, p.dimension, p.members, p.stride)),
         int(p.queue_choice), p.tree_counter)
        for plan in program.plans
        for p in plan.phases
    ]  # fmt: skip
    return {
        "class_of_rank": np.ascontiguousarray(program.class_of_rank),
        "node_ptr": pointers([len(c.id_N) for c in classes]),
        "kind": _joined((c.kind_N for c in classes), np.uint8),
        "slot": _joined((c.slot_N for c in classes), np.uint8),
        "duration": _joined((c.duration_or_bytes_N for c in classes), np.int64),
        "peer": _joined((_roles(c)[0] for c in classes), np.int32),
        "tag": _joined((_roles(c)[1] for c in classes), np.int64),
        "child_ptr": _joined(child_ptr, np.int64),
        "child": _joined((c.child_E for c in classes), np.int32),
        "indegree": _joined((c.indegree_N for c in classes), np.int32),
        "role_ptr": program.role_ptr,
        "role": program.role,
        "out_ptr": program.out_ptr,
        "phase_ptr": pointers([len(plan.phases) for plan in program.plans]),
        "phase": np.array(phases, dtype=_PHASE),
        "chunks": np.array([plan.chunks for plan in program.plans], dtype=np.int32),
        "group_ptr": groups.ptr,
        "group_rank": groups.rank,
        "rank_group_ptr": groups.rank_ptr,
        "rank_group": groups.of_rank,
        "rank_position": groups.position,
        "group_tag": groups.names * GROUP_TAGS,
        "dim_size": np.array([d.npus for d in dimensions], dtype=np.int32),
        "dim_type": np.array([TopologyCode[d.topology.name] for d in dimensions], dtype=np.int32),
        "dim_bandwidth": np.array([d.bytes_per_ns for d in dimensions], dtype=np.float64),
        "dim_latency": np.array([d.latency_ns for d in dimensions], dtype=np.float64),
    }


def _roles(nodes: ClassProgram) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns peer and tag with a rank's roles in place of its peers and groups."""
    message_N = (nodes.kind_N == NodeKind.SEND) | (nodes.kind_N == NodeKind.RECV)
    grouped_N = (nodes.kind_N == NodeKind.COLLECTIVE) & (nodes.tag_N >= 0)
    peer_N, tag_N = nodes.peer_N.copy(), nodes.tag_N.copy()
    tag_N[grouped_N] = positions_in(nodes.groups, tag_N[grouped_N])
    peer_N[message_N] = len(nodes.groups) + positions_in(nodes.peers, peer_N[message_N])
    return peer_N, tag_N


def _scalars(program: Program) -> dict[str, int | float]:
    """Return every number of struct Input."""
    cluster, options = program.cluster, program.cluster.options
    queues, active = options.queues_per_dimension, cluster.system.active_chunks_per_dimension
    return {
        "num_ranks": program.num_ranks,
        "num_classes": len(program.classes),
        "num_dims": len(cluster.network.dimensions),
        "num_plans": len(program.plans),
        "num_groups": len(program.groups.names),
        "reduce_bandwidth": cluster.system.local_mem_bw_gb or 0.0,
        "endpoint_delay": endpoint_delay(cluster),
        "group_delay": GROUP_DELAY_NS,
        "queues_per_dim": queues,
        "active_per_queue": -(-active // queues),
        "memory_ranks": memory_ranks(cluster.memory, program.num_ranks),
        "congestion_aware": int(options.congestion is not Congestion.UNAWARE),
        "rendezvous": int(options.rendezvous),
        "comm_streams": options.comm_streams,
    }
