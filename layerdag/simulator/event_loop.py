"""Run the compiled event loop on a lowered program; explain a deadlock."""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from layerdag.errors import LayerdagError, SimulationError
from layerdag.graph.topology import pointers
from layerdag.hardware.collectives import CollectiveType
from layerdag.runtime.native import library
from layerdag.simulator.config import Congestion
from layerdag.simulator.lowering import ClassProgram, NodeKind, positions_in
from layerdag.simulator.program import LoweredProgram, TopologyCode, endpoint_delay, memory_ranks
from layerdag.simulator.rank_symmetry import (
    PhaseKind,
    Representatives,
    all_ranks,
    representatives,
    select_rows,
)
from layerdag.traces.trace import NodeType, communicates

MAX_WAITS_PER_RANK, MAX_ORPHANS = 4, 1024
GROUP_DELAY_NS = 10
GROUP_TAGS = 1_000_000
_OUT_OF_MEMORY, _NOT_EXACT, _NOT_ALIKE = 1, 2, 3
WORTH_DIVIDING = 1 << 14
"""Nodes of all ranks from which on it is looked for ranks that behave alike."""
_MAX_TRIES = 4  # each sets ranks apart whose places in a kind of phase differ

_PHASE = np.dtype(
    [("size", np.int64)]
    + [
        (name, np.int32)
        for name in (
            *("type", "algorithm", "window", "dimension", "members", "stride"),
            *("queue_choice", "tree_counter"),
        )
    ]
)

_INPUTS = (
    (ctypes.c_int64, "num_ranks num_classes num_dims num_plans num_groups"),
    (ctypes.c_void_p, "class_of_rank number representative"),
    (ctypes.c_int64, "num_numbers"),
    (ctypes.c_void_p, "node_ptr kind slot duration peer tag child_ptr child indegree"),
    (ctypes.c_void_p, "role_ptr role sender out_ptr phase_ptr phase chunks"),
    (ctypes.c_void_p, "group_ptr group_rank rank_group_ptr rank_group rank_position"),
    (ctypes.c_void_p, "group_tag group_like dim_size dim_type dim_bandwidth dim_latency"),
    (ctypes.c_double, "reduce_bandwidth"),
    (ctypes.c_int64, "endpoint_delay group_delay queues_per_dim active_per_queue memory_ranks"),
    (ctypes.c_int64, "congestion_aware rendezvous solve_runs comm_streams"),
)


class _Input(ctypes.Structure):
    _fields_ = tuple((name, kind) for kind, names in _INPUTS for name in names.split())


class _Output(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("issue", "finish", "rank_finish", "events", "lane", "instant", "uneven")
    )


@dataclass(frozen=True, eq=False)
class KernelOutput:
    """Outcome of the kernel; -1 means "did not happen".

    Attributes:
        ranks: The ranks that were run (K), and which of them represents each rank.
        ptr_K1: int64; rows of rank ``ranks.rank_K[k]`` are ``ptr_K1[k]:ptr_K1[k+1]``. If every rank
            was run, this is ``LoweredProgram.out_ptr``.
        issue_ns: int64 per node of every rank that was run.
        finish_ns: int64, the same.
        rank_finish_ns: int64 (K,).
        lane: uint8 per node, which communication stream it took; 0 for other nodes.
        waits: int64 (W, 5): rank, row, awaited rank, tag, bytes of every unfinished receive.
        unmatched: int64 (O, 5): source, destination, tag, bytes, count of messages never received.
        events: Number of events handled.
        instant: Row of the first node that put an event into tick 0, where the reference aborts;
            -1 for none.
    """

    ranks: Representatives
    ptr_K1: np.ndarray
    issue_ns: np.ndarray
    finish_ns: np.ndarray
    rank_finish_ns: np.ndarray
    lane: np.ndarray
    waits: np.ndarray
    unmatched: np.ndarray
    events: int
    instant: int

    @property
    def is_complete(self) -> bool:
        """Whether every node ran and every message was received."""
        return bool((self.finish_ns >= 0).all()) and not len(self.unmatched)

    def rows(self, rank: int) -> slice:
        """Return the rows of the representative of ``rank``."""
        at = int(self.ranks.of_rank[rank])
        return slice(int(self.ptr_K1[at]), int(self.ptr_K1[at + 1]))


class Method(IntEnum):
    """How collectives are run; the values are those of ``solve_runs`` in native/sim/sim.h.

    SOLVED is exact wherever it yields an outcome at all: where it would not be, or where ranks get
    stuck, the kernel says so and every message is simulated instead.
    """

    MESSAGES = 0
    SOLVED = 1


def run_event_loop(program: LoweredProgram) -> KernelOutput:
    """Run the program to its end, or to where nothing moves any more, by the fastest exact method.

    Raises:
        SimulationError: If memory runs out.
    """
    cluster = program.cluster
    shared_memory = memory_ranks(cluster.memory, program.num_ranks) > 0 and any(
        (c.kind_N == NodeKind.MEMORY).any() for c in program.classes
    )
    # Without endpoint delay the order inside a tick counts.
    if endpoint_delay(cluster) and not cluster.options.rendezvous and not shared_memory:
        outcome = None
        if int(program.out_ptr[-1]) >= WORTH_DIVIDING:
            outcome = run_representatives(program)
        outcome = outcome or run_with(program, Method.SOLVED)
        if outcome is not None and (outcome.finish_ns >= 0).all():
            return outcome
    outcome = run_with(program, Method.MESSAGES)
    assert outcome is not None
    return outcome


def run_representatives(program: LoweredProgram) -> KernelOutput | None:
    """Run one rank for all that behave alike, collectives solved; None where that is impossible.

    It is where links are shared, whose occupants classes of ranks do not distinguish, where hardly
    any ranks are alike, where solving is not exact, and where not every node runs to its end, so
    that a message has to say which rank waits for what.

    Raises:
        SimulationError: If memory runs out.
    """
    if program.cluster.options.congestion is not Congestion.UNAWARE:
        return None
    apart: frozenset[PhaseKind] = frozenset()
    for _ in range(_MAX_TRIES):
        ranks = representatives(program, apart)
        found = None if ranks is None else _run(program, Method.SOLVED, ranks)
        if not isinstance(found, PhaseKind):
            usable = found is not None and found.is_complete and found.instant < 0
            return found if usable else None
        apart |= {found}
    return None


def run_with(program: LoweredProgram, method: Method) -> KernelOutput | None:
    """Run the program by one method; None if that method would not be exact here.

    Raises:
        SimulationError: If memory runs out.
    """
    outcome = _run(program, method, all_ranks(program))
    assert not isinstance(outcome, PhaseKind)
    return outcome


def _run(
    program: LoweredProgram, method: Method, run: Representatives
) -> KernelOutput | PhaseKind | None:
    """Run some of the ranks by one method; a kind of phase where places differ that should not."""
    size = getattr(library(), "sim_input_bytes", None)
    if size is None or size() != ctypes.sizeof(_Input):
        raise LayerdagError(
            "The compiled kernels of layerdag belong to another version of it; install the package "
            "again with 'pip install .' (in a checkout: python setup.py build_ext --inplace)."
        )
    arrays = _arrays(program, run)
    cluster, options = program.cluster, program.cluster.options
    queues, active = options.queues_per_dimension, cluster.system.active_chunks_per_dimension
    given = _Input(
        **{name: array.ctypes.data for name, array in arrays.items()},
        num_ranks=len(run.rank_K),
        num_numbers=program.num_ranks,
        num_classes=len(program.classes),
        num_dims=len(cluster.network.dimensions),
        num_plans=len(program.plans),
        num_groups=len(program.groups.names),
        reduce_bandwidth=cluster.system.local_mem_bw_gb or 0.0,
        endpoint_delay=endpoint_delay(cluster),
        group_delay=GROUP_DELAY_NS,
        queues_per_dim=queues,
        active_per_queue=-(-active // queues),
        memory_ranks=memory_ranks(cluster.memory, program.num_ranks),
        congestion_aware=options.congestion is not Congestion.UNAWARE,
        rendezvous=options.rendezvous,
        solve_runs=method,
        comm_streams=options.comm_streams,
    )
    ptr_K1 = arrays["out_ptr"]
    rows, ranks = int(ptr_K1[-1]), len(run.rank_K)
    out: dict[str, np.ndarray] = {
        "issue": np.empty(rows, dtype=np.int64),
        "finish": np.empty(rows, dtype=np.int64),
        "rank_finish": np.empty(ranks, dtype=np.int64),
        "events": np.zeros(1, dtype=np.int64),
        "lane": np.zeros(rows, dtype=np.uint8),
        "instant": np.full(1, -1, dtype=np.int64),
        "uneven": np.zeros(2, dtype=np.int64),
    }
    wanted = _Output(**{name: array.ctypes.data for name, array in out.items()})
    max_rows = MAX_WAITS_PER_RANK * ranks + MAX_ORPHANS
    waits, unmatched = (np.zeros(1 + 5 * max_rows, dtype=np.int64) for _ in range(2))
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
    if status == _NOT_ALIKE:
        return PhaseKind(*out["uneven"].tolist())
    return KernelOutput(
        ranks=run,
        ptr_K1=ptr_K1,
        issue_ns=out["issue"],
        finish_ns=out["finish"],
        rank_finish_ns=out["rank_finish"],
        lane=out["lane"],
        waits=waits[1:].reshape(-1, 5)[: waits[0]],
        unmatched=unmatched[1:].reshape(-1, 5)[: unmatched[0]],
        events=int(out["events"][0]),
        instant=int(out["instant"][0]),
    )


def _joined(parts: Iterable[np.ndarray], dtype: type) -> np.ndarray:
    return np.ascontiguousarray(np.concatenate(list(parts)), dtype=dtype)


def _arrays(program: LoweredProgram, run: Representatives) -> dict[str, np.ndarray]:
    """Return every array of struct Input; they must outlive the call."""
    classes, groups = program.classes, program.groups
    class_K = np.ascontiguousarray(program.class_of_rank[run.rank_K])
    role_ptr, role_at = select_rows(program.role_ptr, run.rank_K)
    group_ptr, group_at = select_rows(groups.rank_ptr, run.rank_K)
    edge_start = pointers([len(c.child_E) for c in classes])
    child_ptr = [c.child_ptr[:-1] + start for c, start in zip(classes, edge_start, strict=False)]
    child_ptr.append(edge_start[-1:])
    roles = [_roles(c) for c in classes]
    dimensions = program.cluster.network.dimensions
    phases = [
        (p.size, *map(int, (p.type, p.algorithm, p.window, p.dimension, p.members, p.stride)),
         int(p.queue_choice), p.tree_counter)
        for plan in program.plans
        for p in plan.phases
    ]  # fmt: skip
    return {
        "class_of_rank": class_K,
        "number": run.rank_K,
        "representative": run.of_rank,
        "node_ptr": pointers([len(c.id_N) for c in classes]),
        "kind": _joined((c.kind_N for c in classes), np.uint8),
        "slot": _joined((c.slot_N for c in classes), np.uint8),
        "duration": _joined((c.cost_N for c in classes), np.int64),
        "peer": _joined((peer_N for peer_N, _ in roles), np.int32),
        "tag": _joined((tag_N for _, tag_N in roles), np.int64),
        "child_ptr": _joined(child_ptr, np.int64),
        "child": _joined((c.child_E for c in classes), np.int32),
        "indegree": _joined((c.indegree_N for c in classes), np.int32),
        "role_ptr": role_ptr,
        "role": program.role[role_at],
        "sender": run.sender[role_at],
        "out_ptr": pointers(np.diff(program.out_ptr)[run.rank_K]),
        "phase_ptr": pointers([len(plan.phases) for plan in program.plans]),
        "phase": np.array(phases, dtype=_PHASE),
        "chunks": np.array([plan.chunks for plan in program.plans], dtype=np.int32),
        "group_ptr": groups.ptr,
        "group_rank": groups.rank,
        "rank_group_ptr": group_ptr,
        "rank_group": groups.of_rank[group_at],
        "rank_position": groups.position[group_at],
        "group_tag": groups.names[run.of_group] * GROUP_TAGS,
        "group_like": run.of_group,
        "dim_size": np.array([d.npus for d in dimensions], dtype=np.int32),
        "dim_type": np.array([TopologyCode[d.topology.name] for d in dimensions], dtype=np.int32),
        "dim_bandwidth": np.array([d.bytes_per_ns for d in dimensions], dtype=np.float64),
        "dim_latency": np.array([d.latency_ns for d in dimensions], dtype=np.float64),
    }


def _roles(nodes: ClassProgram) -> tuple[np.ndarray, np.ndarray]:
    message_N = (nodes.kind_N == NodeKind.SEND) | (nodes.kind_N == NodeKind.RECV)
    grouped_N = (nodes.type_N == NodeType.COMM_COLL) & (nodes.tag_N >= 0)
    peer_N, tag_N = nodes.peer_N.copy(), nodes.tag_N.copy()
    tag_N[grouped_N] = positions_in(nodes.groups, tag_N[grouped_N])
    peer_N[message_N] = len(nodes.groups) + positions_in(nodes.peers, peer_N[message_N])
    return peer_N, tag_N


_TURNS = (
    " With --num-queues-per-dim above 1 they must also have issued equally many before, of any "
    "group: a rank's queues take turns, and half of them run the other way round."
)

SHOWN = 6
"""Links of a chain of waits that a message spells out."""


def explain(program: LoweredProgram, outcome: KernelOutput) -> str:
    """Return one sentence on why ``outcome`` is incomplete; it names ranks, nodes and the cause."""
    total = len(outcome.finish_ns)
    done = int((outcome.finish_ns >= 0).sum())
    if done == total:
        source, target, tag, size, _ = outcome.unmatched[0].tolist()
        nodes = program.of_rank(source)
        sends = (nodes.kind_N == NodeKind.SEND) & (nodes.peer_N == target)
        sender = np.flatnonzero(sends & (nodes.tag_N == tag) & (nodes.cost_N == size))
        who = describe(program, source, int(sender[-1])) if len(sender) else f"rank {source}"
        return (
            f"{who} sends {size} bytes with tag {tag} to rank {target}, which never receives them; "
            f"add the COMM_RECV node to rank {target} or drop the COMM_SEND."
        )
    last = int(max(outcome.finish_ns.max(), outcome.issue_ns.max(), 0))
    state = f"{done} of {total} nodes were done when everything stopped at tick {last}."
    chain = _wait_chain(program, outcome)
    if not chain:
        row = int(np.argmax(outcome.finish_ns < 0))
        rank = int(np.searchsorted(program.out_ptr, row, side="right") - 1)
        return f"{_explain_inside(program, outcome, rank)} {state}"
    return f"{_explain_chain(program, outcome, chain)} {state}"


def describe(program: LoweredProgram, rank: int, row: int) -> str:
    """Return rank, id, name and kind of a node, e.g. "rank 0 node 7 'loss' (ALL_REDUCE, 8 bytes)".

    Args:
        program: What was run.
        rank: The rank.
        row: Row of the node among the rank's nodes in ascending id.
    """
    nodes, trace = program.of_rank(rank), program.workload.traces[rank]
    position = int(np.flatnonzero(trace.id_N == nodes.id_N[row])[0])
    label = f" '{name}'" if (name := trace.names()[position]) else ""
    kind = NodeType(int(trace.type_N[position]))
    size = int(trace.integers("comm_size")[0][position])
    what = kind.name
    if kind is NodeType.COMM_COLL:
        collective = CollectiveType(int(trace.integers("comm_type")[0][position]))
        group = trace.texts("pg_name")[0][position]
        what = f"{collective.name}, {size} bytes"
        what += "" if group in ("", "0") else f", group {group}"
    elif communicates(np.array([kind]))[0]:
        what += f", {size} bytes, tag {int(trace.integers('comm_tag')[0][position])}"
    return f"rank {rank} node {int(nodes.id_N[row])}{label} ({what})"


def _wait_chain(program: LoweredProgram, outcome: KernelOutput) -> list[tuple[int, int, int]]:
    """Follow the wait-for graph from the first stuck rank until a rank repeats or waits for none.

    Returns:
        Links (rank, row, awaited rank); the chain is a cycle if the last awaited rank occurs in it.
    """
    awaited: dict[int, tuple[int, int]] = {}
    for rank, row, source, _, _ in outcome.waits.tolist():
        if rank not in awaited or (row, source) < awaited[rank]:
            awaited[rank] = (row, source)
    if not awaited:
        return []
    chain: list[tuple[int, int, int]] = []
    rank, seen = min(awaited), set()
    while rank in awaited and rank not in seen:
        seen.add(rank)
        row, source = awaited[rank]
        chain.append((rank, row, source))
        rank = source
    start = next((i for i, link in enumerate(chain) if link[0] == rank), 0)
    return chain[start:] if rank in seen else chain


def _explain_chain(
    program: LoweredProgram, outcome: KernelOutput, chain: list[tuple[int, int, int]]
) -> str:
    links = [
        f"{describe(program, rank, row)} waits for rank {source}" for rank, row, source in chain
    ]
    if len(links) > SHOWN:
        links[SHOWN - 1 : -1] = [f"... {len(links) - SHOWN} more ..."]
    text = "; ".join(links)
    end = chain[-1][2]
    mismatch = _size_mismatch(outcome, chain)
    if mismatch:
        return f"deadlock: {text}; {mismatch}."
    if end == chain[0][0]:
        return (
            f"deadlock, a cycle of waits: {text}. Ranks must issue matching collectives and "
            "messages in the same order, with the same sizes."
            + (_TURNS if program.cluster.options.queues_per_dimension > 1 else "")
        )
    if (outcome.finish_ns[program.rows(end)] >= 0).all():
        return f"deadlock: {text}, which has finished all its nodes without taking part."
    return f"deadlock: {text}; {_explain_inside(program, outcome, end)}"


def _size_mismatch(outcome: KernelOutput, chain: list[tuple[int, int, int]]) -> str:
    ranks = {rank for rank, _, _ in chain}
    sent = {(s, d, t): size for s, d, t, size, _ in outcome.unmatched.tolist()}
    for rank, _, source, tag, size in outcome.waits.tolist():
        found = sent.get((source, rank, tag))
        if rank in ranks and found is not None and found != size:
            return (
                f"rank {rank} expects a message of {size} bytes from rank {source}, which sent "
                f"{found} bytes; give both sides the same size"
            )
    return ""


def _explain_inside(program: LoweredProgram, outcome: KernelOutput, rank: int) -> str:
    nodes, rows = program.of_rank(rank), program.rows(rank)
    stuck = outcome.finish_ns[rows] < 0
    parent = np.repeat(np.arange(len(stuck)), np.diff(nodes.child_ptr))
    child = nodes.child_E
    among = stuck[parent] & stuck[child]
    parent_of = dict(zip(child[among].tolist(), parent[among].tolist(), strict=True))
    first = int(np.argmax(stuck))
    never = stuck & (outcome.issue_ns[rows] < 0)
    free = [row for row in np.flatnonzero(never).tolist() if row not in parent_of]
    if free:
        waiting = describe(program, rank, free[0])
        return (
            f"{waiting} never starts: it depends on skipped nodes only (INVALID, or tensor_size "
            "0), and nothing of its rank completes after them; remove the skipped nodes."
        )
    walk: list[int] = []
    row = first
    while row not in walk:
        walk.append(row)
        if row not in parent_of:
            return f"{describe(program, rank, row)} waits for a message"
        row = parent_of[row]
    cycle = [int(nodes.id_N[i]) for i in walk[walk.index(row) :]]
    shown = " -> ".join(map(str, [*cycle, cycle[0]][:12])) + (" ..." if len(cycle) > 11 else "")
    return (
        f"{describe(program, rank, row)} never starts: its dependencies form a cycle, each node "
        f"waiting for the next: {shown}; remove one of these dependencies."
    )
