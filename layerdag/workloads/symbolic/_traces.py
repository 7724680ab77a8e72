"""The traces of all ranks of a job: the program of a stage with groups and peers filled in."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final, overload

import numpy as np

from layerdag.traces import LazyTraces, Trace
from layerdag.traces.chakra import encode_trace, normalize
from layerdag.workloads.symbolic._grid import PEERS, ROLES, Grid
from layerdag.workloads.symbolic._plan import Plan


@final
class StageTraces(LazyTraces):
    """The traces of all ranks; those of a stage share all columns but groups and peers.

    Args:
        plan: The degrees of parallelism.
        stages: The program of each stage, groups and peers by role (``Tape``).
    """

    def __init__(self, plan: Plan, stages: tuple[Trace, ...]) -> None:
        self._stages = stages
        self._places = tuple(_Places.of(trace) for trace in stages)
        self._made: dict[int, Trace] = {}
        self._num_ranks, self._per_stage = plan.ranks, plan.ranks // plan.pipeline
        grid = Grid(plan)
        used = {text for trace in stages for text in trace.strings}
        roles = [role for role in ROLES if role in used]
        self.groups, self._name_R = _numbered({role: grid.groups(role) for role in roles})
        self._peer_R = [grid.peer_R(peer) for peer in PEERS]

    def __len__(self) -> int:
        return self._num_ranks

    @overload
    def __getitem__(self, index: int) -> Trace: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Trace, ...]: ...

    def __getitem__(self, index: int | slice) -> Trace | tuple[Trace, ...]:
        if isinstance(index, slice):
            return tuple(self[rank] for rank in range(*index.indices(len(self))))
        rank = range(len(self))[index]
        if rank not in self._made:
            stage = rank // self._per_stage
            self._made[rank] = self._places[stage].filled(self._stages[stage], self._filling(rank))
        return self._made[rank]

    def files(self) -> Iterator[tuple[int, bytes]]:
        """See ``LazyTraces.files``: the file of a stage with digits of groups and peers patched.

        Digits have places of their own as long as numbers have equally many: a file is encoded once
        for each stage and number of digits.
        """
        forms: dict[tuple[int, ...], _FileForm] = {}
        for rank in reversed(range(len(self))):
            filling = self._filling(rank)
            stage = rank // self._per_stage
            key = (stage, *filling.widths)
            if key not in forms:
                data = encode_trace(normalize(self[rank]))
                forms[key] = _FileForm.of(data, self._places[stage])
            yield rank, forms[key].filled(filling)

    def _filling(self, rank: int) -> "_Filling":
        names = {role: str(name_R[rank]) for role, name_R in self._name_R.items()}
        return _Filling(names, tuple(int(peer_R[rank]) for peer_R in self._peer_R))


@dataclass(frozen=True)
class _Filling:
    """What tells a rank from others of its stage.

    Attributes:
        names: Number of its group in each role.
        peers: Its neighbors, in the order of ``PEERS``.
    """

    names: dict[str, str]
    peers: tuple[int, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes that each takes in a file."""
        return (*map(len, self.names.values()), *(len(_varint(peer)) for peer in self.peers))


@dataclass(frozen=True, eq=False)
class _Places:
    """Where the program of a stage names groups and peers.

    Attributes:
        text_of: Position of each role in the pool of strings.
        role_C: Role of each collective, in order of nodes.
        row_M: Attribute rows with the peer of a send or receive, in order of nodes.
        peer_M: Which of ``PEERS`` each is.
    """

    text_of: dict[str, int]
    role_C: list[str]
    row_M: np.ndarray
    peer_M: np.ndarray

    @classmethod
    def of(cls, trace: Trace) -> "_Places":
        """Find the places in a program."""
        strings, table = trace.strings, trace.attributes
        named = [strings.index(name) for name in ("comm_dst", "comm_src") if name in strings]
        row_M = np.flatnonzero(np.isin(table.name_A, named))
        role_C: list[str] = []
        if "pg_name" in strings:
            row_C = np.flatnonzero(table.name_A == strings.index("pg_name"))
            role_C = [strings[word] for word in table.word_A[row_C].tolist()]
        text_of = {role: strings.index(role) for role in dict.fromkeys(role_C)}
        return cls(text_of, role_C, row_M, table.word_A[row_M].astype(np.int64))

    def filled(self, trace: Trace, filling: _Filling) -> Trace:
        """Return the program as one rank runs it."""
        strings = list(trace.strings)
        for role, position in self.text_of.items():
            strings[position] = filling.names[role]
        table = trace.attributes
        if self.row_M.size:
            word_A = table.word_A.copy()
            word_A[self.row_M] = np.array(filling.peers, dtype=np.uint64)[self.peer_M]
            table = replace(table, word_A=word_A)
        return replace(trace, strings=tuple(strings), attributes=table)


_GROUP = re.compile(rb"\x07pg_name\xea\x01(.)", re.DOTALL)  # name, field 29, length; then the text
_PEER = re.compile(rb"\x08comm_(?:dst|src)\x38")  # name, field 7; then the number


@dataclass(frozen=True, eq=False)
class _FileForm:
    """The bytes of one rank's file, and where the group or peer of another goes.

    Attributes:
        form_B: uint8, the bytes.
        at_role: Where the texts of a role begin.
        at_peer: Where the numbers of a peer begin.
    """

    form_B: np.ndarray
    at_role: dict[str, np.ndarray]
    at_peer: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, data: bytes, places: _Places) -> "_FileForm":
        """Find the places in a file, which has nodes and attributes in the order of the program."""
        group_C = np.array([found.end() for found in _GROUP.finditer(data)], dtype=np.int64)
        peer_M = np.array([found.end() for found in _PEER.finditer(data)], dtype=np.int64)
        roles = np.array(places.role_C, dtype=object)
        return cls(
            np.frombuffer(data, dtype=np.uint8),
            {role: group_C[roles == role] for role in places.text_of},
            tuple(peer_M[places.peer_M == peer] for peer in range(len(PEERS))),
        )

    def filled(self, filling: _Filling) -> bytes:
        """Return the bytes of the rank's file."""
        data_B = self.form_B.copy()
        for role, at in self.at_role.items():
            for offset, byte in enumerate(filling.names[role].encode()):
                data_B[at + offset] = byte
        for peer, at in zip(filling.peers, self.at_peer, strict=True):
            for offset, byte in enumerate(_varint(peer)):
                data_B[at + offset] = byte
        return data_B.tobytes()


def _numbered(
    rank_GM: dict[str, np.ndarray],
) -> tuple[dict[str, tuple[int, ...]], dict[str, np.ndarray]]:
    """Return the ranks of each group by its number, from 1 on, and each rank's number by role."""
    groups: dict[str, tuple[int, ...]] = {}
    names: dict[str, np.ndarray] = {}
    for role, members in rank_GM.items():
        first = len(groups) + 1
        names[role] = np.zeros(int(members.max()) + 1, dtype=np.int64)
        names[role][members] = first + np.arange(len(members))[:, None]
        groups.update((str(first + g), tuple(ranks)) for g, ranks in enumerate(members.tolist()))
    return groups, names


def _varint(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    done = bytearray()
    while value > 0x7F:
        done.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*done, value))
