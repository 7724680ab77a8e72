"""Ranks whose traces differ only in groups and peers run one program, lowered once.

In a job of many ranks nearly all are like another one: the same nodes, in groups of their own, with
neighbors of their own. Such a rank is a class's program and a short list: the groups and ranks that
stand where the first rank of the class has its own.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import final

import numpy as np

from layerdag.simulator.engine._groups import GroupIndex, Line, is_group_name
from layerdag.simulator.engine._nodes import ClassProgram, positions_in
from layerdag.traces import NodeType, Trace, Wire

_MOST_TRIED = 8  # classes with equal columns that a trace is compared with


@final
class Sharing:
    """The classes found so far, and which of them a further rank belongs to.

    Args:
        groups: Communicator groups.
        sizes: Ranks of each dimension of the network.
    """

    def __init__(self, groups: GroupIndex, sizes: tuple[int, ...]) -> None:
        self._groups, self._sizes = groups, sizes
        self._known: dict[Hashable, list[_Class]] = {}
        self._extents: dict[int, tuple[int, tuple[Line, ...] | None]] = {}

    def add(self, index: int, trace: Trace, program: ClassProgram) -> None:
        """Note a class by the trace of its first rank."""
        known = self._known.setdefault(_columns(trace), [])
        if len(known) < _MOST_TRIED:
            found = _Class.of(index, trace, program)
            if found is not None:
                known.append(found)

    def find(self, trace: Trace, rank: int) -> tuple[int, tuple[int, ...]] | None:
        """Return the class of a rank with its groups and peers, None if it is like no other.

        A rank that could not run its trace is like no other, so that lowering it tells why.
        """
        for known in self._known.get(_columns(trace), ()):
            if not known.differs_in_ends_only(trace):
                continue
            groups = self._groups_of(known, trace, rank)
            peers = known.peers_of(trace, rank, len(self._groups.rank_ptr) - 1)
            if groups is not None and peers is not None:
                return known.index, (*groups, *peers)
        return None

    def _groups_of(self, known: "_Class", trace: Trace, rank: int) -> tuple[int, ...] | None:
        """Return the groups that stand for those of the class, None if they are not alike."""
        index = self._groups
        own = index.of_rank[index.rank_ptr[rank] : index.rank_ptr[rank + 1]].tolist()
        stands_for: dict[int, int] = {}
        for position in known.text_P:
            theirs = self._group(known.trace.strings[position])
            mine = self._group(trace.strings[position])
            if mine is None or theirs is None or (mine < 0) != (theirs < 0):
                return None
            if stands_for.setdefault(theirs, mine) != mine:
                return None
            if mine >= 0 and (mine not in own or self._extent(mine) != self._extent(theirs)):
                return None
        return tuple(stands_for[group] for group in known.program.groups)

    def _group(self, name: str) -> int | None:
        """Return the place of a group, -1 for all ranks, None if it is not described."""
        if name in ("", "0"):
            return -1
        return self._groups.index_of.get(str(int(name)) if is_group_name(name) else "")

    def _extent(self, group: int) -> tuple[int, tuple[Line, ...] | None]:
        """Return what a collective in a group depends on: its size, and its line in dimensions."""
        if group not in self._extents:
            lines = self._groups.lines(group, self._sizes)
            self._extents[group] = (self._groups.size(group), lines)
        return self._extents[group]


def _columns(trace: Trace) -> Hashable:
    """Return the identity of all columns but those in which ranks of a class differ."""
    table = trace.attributes
    return tuple(
        map(
            id,
            (
                *(trace.id_N, trace.name_N, trace.type_N, trace.start_us_N, trace.duration_us_N),
                *(trace.data_deps.ptr_N1, trace.data_deps.values),
                *(trace.ctrl_deps.ptr_N1, trace.ctrl_deps.values, trace.io_N6),
                *(table.ptr_N1, table.name_A, table.wire_A, table.doc_A, table.blobs),
            ),
        )
    )


@dataclass(frozen=True, eq=False)
class _Class:
    """A class and where its ranks differ.

    Attributes:
        index: Its number.
        trace: That of its first rank; also keeps the columns alive whose identity counts.
        program: What it was lowered to.
        text_P: Positions of names of groups in the pool of strings.
        row_E: Attribute rows with a rank: the other end of a message, or its own.
        other_E: Which of them name the other end.
        peer_M: Of these, the place in ``program.peers``.
    """

    index: int
    trace: Trace
    program: ClassProgram
    text_P: tuple[int, ...]
    row_E: np.ndarray
    other_E: np.ndarray
    peer_M: np.ndarray

    @classmethod
    def of(cls, index: int, trace: Trace, program: ClassProgram) -> "_Class | None":
        """Return the class of a trace, None where a group's name is also another text."""
        table, strings = trace.attributes, trace.strings
        names = {name: strings.index(name) for name in _ENDS if name in strings}
        group_A = table.name_A == names.get("pg_name", -1)
        text_P = np.unique(table.word_A[group_A]).astype(np.int64)
        other = (table.wire_A == Wire.STRING) & ~group_A
        used = (trace.name_N, trace.io_N6.reshape(-1), table.name_A, table.doc_A)
        if any(np.isin(text_P, column).any() for column in (*used, table.word_A[other])):
            return None
        type_A = np.repeat(trace.type_N, np.diff(table.ptr_N1))
        send_A, recv_A = type_A == NodeType.COMM_SEND, type_A == NodeType.COMM_RECV
        dst_A = table.name_A == names.get("comm_dst", -1)
        src_A = table.name_A == names.get("comm_src", -1)
        row_E = np.flatnonzero((dst_A | src_A) & (send_A | recv_A))
        other_E = ((dst_A & send_A) | (src_A & recv_A))[row_E]
        peer = table.word_A[row_E[other_E]].view(np.int64)
        if not np.isin(peer, program.peers).all():
            return None
        peer_M = positions_in(program.peers, peer)
        return cls(index, trace, program, tuple(text_P.tolist()), row_E, other_E, peer_M)

    def differs_in_ends_only(self, trace: Trace) -> bool:
        """Return whether a trace with equal columns differs in groups and ends of messages only."""
        mine, theirs = trace.strings, self.trace.strings
        if len(mine) != len(theirs):
            return False
        if mine is not theirs:
            common = list(mine)
            for position in self.text_P:
                common[position] = theirs[position]
            if tuple(common) != theirs:
                return False
        if trace.attributes.word_A is self.trace.attributes.word_A:
            return True
        differs_A = trace.attributes.word_A != self.trace.attributes.word_A
        differs_A[self.row_E] = False
        return not differs_A.any()

    def peers_of(self, trace: Trace, rank: int, num_ranks: int) -> tuple[int, ...] | None:
        """Return the ranks that stand for the peers of the class, None if they are not alike."""
        value_E = trace.attributes.word_A[self.row_E].view(np.int64)
        peer = value_E[self.other_E]
        if (value_E[~self.other_E] != rank).any():
            return None
        if (peer < 0).any() or (peer >= num_ranks).any() or (peer == rank).any():
            return None
        stands = np.zeros(len(self.program.peers), dtype=np.int64)
        stands[self.peer_M] = peer
        return tuple(stands.tolist()) if (stands[self.peer_M] == peer).all() else None


_ENDS = ("pg_name", "comm_dst", "comm_src")
