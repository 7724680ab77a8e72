"""The traces of all ranks of a job: the program of a class with groups and peers filled in.

In such a program ``pg_name`` holds the role of a group ("tensor"), and ``comm_src`` and
``comm_dst`` the number of the peer in a table that each rank fills with ranks of its own.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final, overload

import numpy as np

from layerdag.traces import LazyTraces, Trace
from layerdag.traces.chakra import encode_trace, normalize


@final
class RankTraces(LazyTraces):
    """The traces of all ranks; those of a class share all columns but groups and peers.

    Args:
        programs: The program of each class, groups and peers by role.
        class_R: Class of each rank, int64 (R,).
        members_GM: The groups of each role, int64 (G, members); a rank is in one of them at most.
        peers: The rank that each peer number means to each rank, int64 (R,) each.
        numbers: The integer name of the first group of a role; by default roles are numbered in
            their order from 1 on.

    Attributes:
        groups: Ranks of each group by its integer name.
    """

    def __init__(
        self,
        programs: Sequence[Trace],
        class_R: np.ndarray,
        members_GM: Mapping[str, np.ndarray],
        peers: Sequence[np.ndarray],
        numbers: Mapping[str, int] | None = None,
    ) -> None:
        self._programs = tuple(programs)
        self._places = tuple(_Places.of(trace) for trace in programs)
        self._made: dict[int, Trace] = {}
        self._class_R = class_R
        self.groups, self._name_R = _numbered(members_GM, len(class_R), numbers or {})
        self._peer_R = list(peers)

    def __len__(self) -> int:
        return len(self._class_R)

    @overload
    def __getitem__(self, index: int) -> Trace: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Trace, ...]: ...

    def __getitem__(self, index: int | slice) -> Trace | tuple[Trace, ...]:
        if isinstance(index, slice):
            return tuple(self[rank] for rank in range(*index.indices(len(self))))
        rank = range(len(self))[index]
        if rank not in self._made:
            kind = int(self._class_R[rank])
            self._made[rank] = self._places[kind].filled(self._programs[kind], self._filling(rank))
        return self._made[rank]

    def files(self) -> Iterator[tuple[int, bytes]]:
        """See ``LazyTraces.files``: the file of a class with digits of groups and peers patched.

        Digits have places of their own as long as numbers have equally many: a file is encoded once
        for each class and number of digits.
        """
        forms: dict[tuple[int, ...], _FileForm] = {}
        for rank in reversed(range(len(self))):
            filling = self._filling(rank)
            kind = int(self._class_R[rank])
            key = (kind, *filling.widths)
            if key not in forms:
                data = encode_trace(normalize(self[rank]))
                forms[key] = _FileForm.of(data, self._places[kind], len(self._peer_R))
            yield rank, forms[key].filled(filling)

    def _filling(self, rank: int) -> "_Filling":
        names = {role: str(name_R[rank]) for role, name_R in self._name_R.items()}
        return _Filling(names, tuple(int(peer_R[rank]) for peer_R in self._peer_R))


@dataclass(frozen=True)
class _Filling:
    """What tells a rank from others of its class.

    Attributes:
        names: Number of its group in each role.
        peers: Its peers, by number.
    """

    names: dict[str, str]
    peers: tuple[int, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes that each takes in a file."""
        return (*map(len, self.names.values()), *(len(_varint(peer)) for peer in self.peers))


@dataclass(frozen=True, eq=False)
class _Places:
    """Where the program of a class names groups and peers.

    Attributes:
        text_of: Position of each role in the pool of strings.
        role_C: Role of each collective, in order of nodes.
        row_M: Attribute rows with the peer of a send or receive, in order of nodes.
        peer_M: Number of the peer.
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
    def of(cls, data: bytes, places: _Places, num_peers: int) -> "_FileForm":
        """Find the places in a file, which has nodes and attributes in the order of the program."""
        group_C = np.array([found.end() for found in _GROUP.finditer(data)], dtype=np.int64)
        peer_M = np.array([found.end() for found in _PEER.finditer(data)], dtype=np.int64)
        roles = np.array(places.role_C, dtype=object)
        return cls(
            np.frombuffer(data, dtype=np.uint8),
            {role: group_C[roles == role] for role in places.text_of},
            tuple(peer_M[places.peer_M == peer] for peer in range(num_peers)),
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
    members_GM: Mapping[str, np.ndarray], num_ranks: int, numbers: Mapping[str, int]
) -> tuple[dict[str, tuple[int, ...]], dict[str, np.ndarray]]:
    """Return the ranks of each group by its number, and each rank's number by role."""
    groups: dict[str, tuple[int, ...]] = {}
    names: dict[str, np.ndarray] = {}
    free = 1
    for role, members in members_GM.items():
        first = numbers.get(role, free)
        free = max(free, first + len(members))
        names[role] = np.zeros(num_ranks, dtype=np.int64)
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
