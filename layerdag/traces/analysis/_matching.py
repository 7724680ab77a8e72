"""Which collectives and messages of different ranks belong together, and which have no partner.

As in ASTRA-sim, the k-th collective that a rank issues in a group meets the k-th one of every other
member of the group, and the k-th send for (source, destination, tag) meets the k-th receive.
The program order is that of ``program_order``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from layerdag.traces import NodeType, Workload
from layerdag.traces.analysis._program_order import CommEvents, gather_communication


@dataclass(frozen=True)
class Mismatch:
    """A communication that would hang or be wrong.

    Attributes:
        rank: The rank at fault, or the first of those that disagree.
        node: Id of its node.
        message: One sentence: what, where, what was found, what to do.
    """

    rank: int
    node: int
    message: str


@dataclass(frozen=True, eq=False)
class Communication:
    """The communication of a workload, matched.

    Attributes:
        rank_C: Rank of each participation of a rank in a collective.
        row_C: Row of its node in the rank's trace.
        instance_C: Participations with the same number are one collective.
        send_rank_M: Rank of each matched send; likewise its row, and rank and row of the receive.
        send_row_M: See ``send_rank_M``.
        recv_rank_M: See ``send_rank_M``.
        recv_row_M: See ``send_rank_M``.
        bytes_M: What the sender says it sends, in bytes; -1 if it does not say.
        mismatches: What does not match.
    """

    rank_C: np.ndarray
    row_C: np.ndarray
    instance_C: np.ndarray
    send_rank_M: np.ndarray
    send_row_M: np.ndarray
    recv_rank_M: np.ndarray
    recv_row_M: np.ndarray
    bytes_M: np.ndarray
    mismatches: tuple[Mismatch, ...]


def match_communication(workload: Workload) -> Communication:
    """Match collectives, sends and receives over the ranks of a workload.

    Raises:
        TraceError: If a trace has faulty dependencies, or a communication attribute of a wrong
            type. Missing partners and disagreements are returned, not raised.
    """
    events = gather_communication(workload)
    mismatches: list[Mismatch] = []
    collective = _rows(events, events.type_K == NodeType.COMM_COLL)
    instance_C, found = _match_collectives(workload, collective)
    mismatches += found
    pairs, found = _match_messages(events, workload.num_ranks)
    mismatches += found
    send, receive = pairs
    return Communication(
        rank_C=collective.rank_K,
        row_C=collective.row_K,
        instance_C=instance_C,
        send_rank_M=events.rank_K[send],
        send_row_M=events.row_K[send],
        recv_rank_M=events.rank_K[receive],
        recv_row_M=events.row_K[receive],
        bytes_M=events.size_K[send],
        mismatches=tuple(mismatches),
    )


def _rows(events: CommEvents, keep_K: np.ndarray) -> CommEvents:
    """Return the chosen nodes."""
    return CommEvents(**{name: column[keep_K] for name, column in vars(events).items()})


def _occurrences(keys: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return how often each row's key occurred before it; the last key is the most significant."""
    size = keys[0].size
    order = np.lexsort(keys)
    changed = np.zeros(size, dtype=bool)
    for key in keys:
        changed[1:] |= key[order][1:] != key[order][:-1]
    start = np.maximum.accumulate(np.where(changed, np.arange(size), 0))
    turn = np.empty(size, dtype=np.int64)
    turn[order] = np.arange(size) - start
    return turn


def _match_collectives(workload: Workload, coll: CommEvents) -> tuple[np.ndarray, list[Mismatch]]:
    """Return the instance of each participation, and the collectives that do not come together."""
    turn_K = _occurrences((coll.rank_K, coll.group_K))
    key_K = np.stack([coll.group_K, turn_K])
    _, instance_K = np.unique(key_K, axis=1, return_inverse=True)
    instance_K = instance_K.reshape(-1)
    members = [set(range(workload.num_ranks)), *(set(r) for r in workload.groups.values())]
    names = ["of all ranks", *(f"of group '{name}'" for name in workload.groups)]
    found = list(_outside_group(coll, members, names))
    order = np.lexsort((coll.rank_K, instance_K))
    edges = np.flatnonzero(np.diff(instance_K[order], prepend=-1, append=-1))
    wanted_G = np.array([len(ranks) for ranks in members])
    sizes = np.diff(edges)
    group_I = coll.group_K[order[edges[:-1]]] if edges.size else np.zeros(0, np.int64)
    uniform_I = _uniform(coll, order, edges)
    suspect_I = (sizes != wanted_G[group_I]) | ~uniform_I
    for at in np.flatnonzero(suspect_I & (group_I >= 0)).tolist():
        rows = order[edges[at] : edges[at + 1]]
        group = int(group_I[at])
        found.append(_disagreement(coll, rows, members[group], names[group], int(turn_K[rows[0]])))
    return instance_K, found


def _uniform(coll: CommEvents, order: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return for each instance whether all participants agree in type and size."""
    uniform_I = np.ones(max(edges.size - 1, 0), dtype=bool)
    for column in (coll.comm_type_K, coll.size_K):
        if uniform_I.size:
            low_I = np.minimum.reduceat(column[order], edges[:-1])
            high_I = np.maximum.reduceat(column[order], edges[:-1])
            uniform_I &= low_I == high_I
    return uniform_I


def _outside_group(
    coll: CommEvents, members: list[set[int]], names: list[str]
) -> Iterator[Mismatch]:
    """Yield collectives in a group that is unknown or that the rank does not belong to."""
    for group in np.unique(coll.group_K).tolist():
        of_group = coll.group_K == group
        ranks = np.unique(coll.rank_K[of_group]).tolist()
        for rank in ranks if group < 0 else sorted(set(ranks) - members[group]):
            first = int(np.flatnonzero(of_group & (coll.rank_K == rank))[0])
            node = int(coll.id_K[first])
            problem = (
                "names a communicator group that is not described; add it to the group file"
                if group < 0
                else f"calls a collective {names[group]}, to which the rank does not belong; "
                "correct the group file or the trace"
            )
            yield Mismatch(rank, node, f"Rank {rank}, node {node}: {problem}.")


def _disagreement(
    coll: CommEvents, rows: np.ndarray, members: set[int], name: str, turn: int
) -> Mismatch:
    """Describe one collective that is incomplete or not uniform."""
    rank, node = int(coll.rank_K[rows[0]]), int(coll.id_K[rows[0]])
    absent = sorted(members - set(coll.rank_K[rows].tolist()))
    start = f"Rank {rank}, node {node}: collective number {turn} {name}"
    if absent:
        shown = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
        return Mismatch(
            rank, node, f"{start} is never called by rank {shown}; the others would wait forever."
        )
    differs = (coll.comm_type_K[rows] != coll.comm_type_K[rows[0]]) | (
        coll.size_K[rows] != coll.size_K[rows[0]]
    )
    other = rows[int(np.argmax(differs))]
    return Mismatch(
        rank,
        node,
        f"{start} has type {coll.comm_type_K[rows[0]]} and {coll.size_K[rows[0]]} bytes, but rank "
        f"{coll.rank_K[other]}, node {coll.id_K[other]} has type {coll.comm_type_K[other]} and "
        f"{coll.size_K[other]} bytes; make them equal.",
    )


def _match_messages(
    events: CommEvents, num_ranks: int
) -> tuple[tuple[np.ndarray, np.ndarray], list[Mismatch]]:
    """Return ((send rows, receive rows) of matched messages, what has no partner)."""
    sends = np.flatnonzero(events.type_K == NodeType.COMM_SEND)
    receives = np.flatnonzero(events.type_K == NodeType.COMM_RECV)
    columns = (events.tag_K, events.target_K, events.source_K)
    rows = np.concatenate([sends, receives])
    side = np.repeat([0, 1], [sends.size, receives.size])
    keys = tuple(column[rows] for column in columns)
    turn = _occurrences((*keys, side))
    order = np.lexsort((side, turn, *keys))
    same = np.ones(max(order.size - 1, 0), dtype=bool)
    for key in (*keys, turn):
        same &= key[order][1:] == key[order][:-1]
    first = np.flatnonzero(same & (np.diff(side[order]) == 1))
    send, receive = rows[order[first]], rows[order[first + 1]]
    matched = np.zeros(events.row_K.size, dtype=bool)
    matched[send] = matched[receive] = True
    found = [_unmatched_message(events, int(row)) for row in rows[~matched[rows]]]
    for at in np.flatnonzero(events.size_K[send] != events.size_K[receive]).tolist():
        found.append(_size_mismatch(events, int(send[at]), int(receive[at])))
    return (send, receive), found


def _unmatched_message(events: CommEvents, row: int) -> Mismatch:
    """Describe a send or receive without partner."""
    rank, node = int(events.rank_K[row]), int(events.id_K[row])
    source, target = int(events.source_K[row]), int(events.target_K[row])
    tag = int(events.tag_K[row])
    sends = events.type_K[row] == NodeType.COMM_SEND
    what, other, peer = ("send", "receive", target) if sends else ("receive", "send", source)
    return Mismatch(
        rank,
        node,
        f"Rank {rank}, node {node}: the {what} from rank {source} to rank {target} with tag {tag} "
        f"has no matching {other} on rank {peer}; add it or correct rank and tag.",
    )


def _size_mismatch(events: CommEvents, send: int, receive: int) -> Mismatch:
    """Describe a message whose two ends disagree about its size."""
    rank, node = int(events.rank_K[send]), int(events.id_K[send])
    return Mismatch(
        rank,
        node,
        f"Rank {rank}, node {node}: sends {events.size_K[send]} bytes, but rank "
        f"{events.rank_K[receive]}, node {events.id_K[receive]} receives "
        f"{events.size_K[receive]}; make them equal.",
    )
