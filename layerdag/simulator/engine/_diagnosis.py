"""Why a run stopped before every node was done: a sentence with ranks, nodes and the cycle."""

import numpy as np

from layerdag.simulator.engine._event_loop import Outcome
from layerdag.simulator.engine._nodes import ClassProgram, NodeKind
from layerdag.simulator.engine._program import Program
from layerdag.traces import CollectiveType, NodeType, Trace

_TURNS = (
    " With --num-queues-per-dim above 1 they must also have issued equally many before, of any "
    "group: a rank's queues take turns, and half of them run the other way round."
)

SHOWN = 6
"""Links of a chain of waits that a message spells out."""


def explain(program: Program, outcome: Outcome) -> str:
    """Return one sentence on why ``outcome`` is incomplete; it names ranks, nodes and the cause."""
    total = len(outcome.finish_ns)
    done = int((outcome.finish_ns >= 0).sum())
    if done == total:
        return _explain_unmatched(program, outcome)
    last = int(max(outcome.finish_ns.max(), outcome.issue_ns.max(), 0))
    state = f"{done} of {total} nodes were done when everything stopped at tick {last}."
    chain = _wait_chain(program, outcome)
    if not chain:
        rank = _first_incomplete_rank(program, outcome)
        return f"{_explain_inside(program, outcome, rank)} {state}"
    return f"{_explain_chain(program, outcome, chain)} {state}"


def _first_incomplete_rank(program: Program, outcome: Outcome) -> int:
    row = int(np.argmax(outcome.finish_ns < 0))
    return int(np.searchsorted(program.out_ptr, row, side="right") - 1)


def _rows(program: Program, rank: int) -> slice:
    return slice(int(program.out_ptr[rank]), int(program.out_ptr[rank + 1]))


def describe(program: Program, rank: int, row: int) -> str:
    """Return rank, id, name and kind of a node, e.g. "rank 0 node 7 'loss' (ALL_REDUCE, 8 bytes)".

    Args:
        program: What was run.
        rank: The rank.
        row: Row of the node among the rank's nodes in ascending id.
    """
    nodes, trace = program.of_rank(rank), program.workload.traces[rank]
    position = int(np.flatnonzero(trace.id_N == nodes.id_N[row])[0])
    name = trace.names()[position]
    label = f" '{name}'" if name else ""
    return f"rank {rank} node {int(nodes.id_N[row])}{label} ({_kind(trace, position)})"


def _kind(trace: Trace, position: int) -> str:
    """Return type and size of a node in words."""
    kind = NodeType(int(trace.type_N[position]))
    if kind < NodeType.COMM_SEND:
        return kind.name
    size = int(trace.integers("comm_size")[0][position])
    label = kind.name
    if kind is NodeType.COMM_COLL:
        label = CollectiveType(int(trace.integers("comm_type")[0][position])).name
        group = trace.texts("pg_name")[0][position]
        return f"{label}, {size} bytes" + (f", group {group}" if group not in ("", "0") else "")
    return f"{label}, {size} bytes, tag {int(trace.integers('comm_tag')[0][position])}"


def _explain_unmatched(program: Program, outcome: Outcome) -> str:
    """All nodes ran, but messages were sent that no rank received."""
    source, target, tag, size, _ = (int(v) for v in outcome.unmatched[0])
    sender = _message_row(program.of_rank(source), NodeKind.SEND, (target, tag, size))
    who = f"rank {source}" if sender is None else describe(program, source, sender)
    return (
        f"{who} sends {size} bytes with tag {tag} to rank {target}, which never receives them; "
        f"add the COMM_RECV node to rank {target} or drop the COMM_SEND."
    )


def _message_row(nodes: ClassProgram, kind: NodeKind, what: tuple[int, int, int]) -> int | None:
    """Return the last row that sends or receives (peer, tag, bytes), if there is one."""
    peer, tag, size = what
    found = np.flatnonzero(
        (nodes.kind_N == kind)
        & (nodes.peer_N == peer)
        & (nodes.tag_N == tag)
        & (nodes.duration_or_bytes_N == size)
    )
    return int(found[-1]) if len(found) else None


def _wait_chain(program: Program, outcome: Outcome) -> list[tuple[int, int, int]]:
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


def _explain_chain(program: Program, outcome: Outcome, chain: list[tuple[int, int, int]]) -> str:
    """Spell out a cycle of waits, or a chain that ends at a rank which waits for nothing."""
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
    if (outcome.finish_ns[_rows(program, end)] >= 0).all():
        return f"deadlock: {text}, which has finished all its nodes without taking part."
    return f"deadlock: {text}; {_explain_inside(program, outcome, end)}"


def _size_mismatch(outcome: Outcome, chain: list[tuple[int, int, int]]) -> str:
    """Say so if what some rank of the chain waits for was sent with another size."""
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


def _explain_inside(program: Program, outcome: Outcome, rank: int) -> str:
    """Explain why a rank that waits for no message has nodes left: a cycle, or a skipped parent."""
    nodes, rows = program.of_rank(rank), _rows(program, rank)
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
