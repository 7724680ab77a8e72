"""Ranks that behave alike: which they are, and a representative of them.

Where links are not shared and collectives are solved (native/sim/solve.c), a rank's ticks follow
from its own nodes, from the ticks at which messages of its peers arrive, and from the ends of the
phases that it takes part in, which follow from the ticks at which all members start. The order of
events inside a tick has no part in it: where it could, the kernel gives up on solving.

So ranks are divided into classes by what they run, and classes are divided again until (1) ranks
of a class have, role by role, groups and lines of ranks whose members are of the same classes in
the same places, and peers of the same class, which know them by the same role, all at the same
distances in the network. One rank of each class is run. It starts a phase in the place of all
members of its class, and the kernel solves the phase for every member; it gives up unless (2)
members of one class end in the same tick. If it does not, give every rank the ticks of its class:
every rank does what its nodes ask for, by (1) every message and phase has the times that it would
have between these very ranks, and by (2) every rank is at the tick that its own place in the phase
gives it. That is a run of all ranks, and since the order inside ticks does not count, it is the
run.

Nothing else keeps ranks of a class together: streams, queues and their turns are each rank's own.
What (2) finds is a kind of phase in which places differ, such as a ring whose links have different
lengths; then ranks in different places of such phases are set apart, and all is tried again.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from layerdag.graph.topology import pointers
from layerdag.simulator.lowering import NodeKind
from layerdag.simulator.program import LoweredProgram


@dataclass(frozen=True)
class PhaseKind:
    """What phases have in common in which the same places differ.

    ``stride`` is the distance of neighbors in rank numbers, 0 for the members of a group.
    """

    stride: int
    members: int


@dataclass(frozen=True, eq=False)
class Representatives:
    """The ranks that are run, each for itself and for those that behave alike.

    Attributes:
        rank_K: int32, the ranks, ascending.
        of_rank: int32 (R,), place in ``rank_K`` of the representative of each rank.
        of_group: int32 (G,), the representative of each group.
        sender: int32, as ``LoweredProgram.role``: by what rank the representative of a peer knows
            the rank; anything where the role is that of a group.
    """

    rank_K: np.ndarray
    of_rank: np.ndarray
    of_group: np.ndarray
    sender: np.ndarray


def all_ranks(program: LoweredProgram) -> Representatives:
    """Return every rank as its own representative."""
    rank_R = np.arange(program.num_ranks, dtype=np.int32)
    group_G = np.arange(len(program.groups.names), dtype=np.int32)
    return Representatives(rank_R, rank_R, group_G, np.repeat(rank_R, np.diff(program.role_ptr)))


def representatives(program: LoweredProgram, apart: frozenset[PhaseKind]) -> Representatives | None:
    """Return ranks that represent all others, None where not half of the ranks can be left out.

    Ranks in different places of the phases ``apart`` are no representatives for each other.
    """
    if 2 * len(np.unique(program.class_of_rank)) > program.num_ranks:
        return None
    indexed, ranks = program.groups, program.num_ranks
    key = np.repeat(np.arange(len(indexed.names)), np.diff(indexed.ptr)) * ranks + indexed.rank
    inside = (indexed.rank >= 0) & (indexed.rank < ranks)
    if not inside.all() or len(np.unique(key)) < len(key):
        return None  # a group that is no set of ranks
    roles = _RoleTable.from_program(program)
    if (roles.back_E[~roles.grouped_E] < 0).any():
        return None  # somebody sends or receives what nobody receives or sends
    classes = [
        _RankClass.from_program(program, roles, c, apart) for c in range(len(program.classes))
    ]
    groups = _GroupTable.from_program(program, roles)
    color_R, count = program.class_of_rank.astype(np.int64), 0
    while True:
        group_color_G = groups.colors(color_R)
        finer_R = np.zeros_like(color_R)
        finer = 0
        for each in classes:
            found_R = each.colors(color_R, group_color_G)
            finer_R[each.rank_R] = finer + found_R
            finer += int(found_R.max(initial=-1)) + 1
        if 2 * finer > program.num_ranks:
            return None
        if finer == count:
            break
        color_R, count = finer_R, finer
    _, rank_K, place_R = np.unique(color_R, return_index=True, return_inverse=True)
    order_K = np.argsort(rank_K)
    rank_K, place_R = rank_K[order_K].astype(np.int32), np.argsort(order_K)[place_R]
    of_rank = place_R.astype(np.int32)
    _, first_G, like_G = np.unique(group_color_G, return_index=True, return_inverse=True)
    sender = roles.owner_E.astype(np.int32)
    peer_E = np.flatnonzero(~roles.grouped_E)
    stands_E = rank_K[of_rank[program.role[peer_E]]]
    sender[peer_E] = program.role[program.role_ptr[stands_E] + roles.back_E[peer_E]]
    return Representatives(rank_K, of_rank, first_G[like_G].astype(np.int32), sender)


def _numbered(row_XY: np.ndarray) -> np.ndarray:
    """Return a number for each row, equal where rows are, int64 (X,)."""
    if len(row_XY) == 0 or row_XY.shape[1] == 0:
        return np.zeros(len(row_XY), dtype=np.int64)
    row_X = np.ascontiguousarray(row_XY).view([("", row_XY.dtype)] * row_XY.shape[1])[:, 0]
    return np.unique(row_X, return_inverse=True)[1].reshape(-1)


@final
class _RoleIndex:
    """Finds the role that a group or peer has for a rank: the first one, where it has several.

    Each role has its rank, whether it is a group's, the group or peer, and its number on the rank.
    """

    def __init__(
        self, owner_E: np.ndarray, grouped_E: np.ndarray, value_E: np.ndarray, number_E: np.ndarray
    ) -> None:
        self._above = int(value_E.max(initial=0)) + 1
        self._key_K, first_K = np.unique(
            (owner_E * 2 + grouped_E) * self._above + value_E, return_index=True
        )
        self._number_K = number_E[first_K]

    def find(self, owner: np.ndarray, grouped: np.ndarray | bool, value: np.ndarray) -> np.ndarray:
        """Return the role of each group or peer for its owner, -1 for none, int64."""
        key = (owner.astype(np.int64) * 2 + grouped) * self._above + value
        if not len(self._key_K):
            return np.full(key.shape, -1)
        at = np.minimum(np.searchsorted(self._key_K, key), len(self._key_K) - 1)
        known = (self._key_K[at] == key) & (value < self._above)
        return np.where(known, self._number_K[at], -1)


@final
@dataclass(frozen=True, eq=False)
class _RoleTable:
    """The groups and peers of all ranks, in the order of ``LoweredProgram.role``.

    Attributes:
        owner_E: int64, the rank.
        grouped_E: bool, whether it is a group.
        first_E: int64, the first role of that rank that the same group or peer has.
        back_E: int64, the role that the rank has for a peer; -1 for none, and for groups.
    """

    owner_E: np.ndarray
    grouped_E: np.ndarray
    first_E: np.ndarray
    back_E: np.ndarray
    index: _RoleIndex

    @classmethod
    def from_program(cls, program: LoweredProgram) -> "_RoleTable":
        value_E = program.role.astype(np.int64)
        owner_E = np.repeat(np.arange(program.num_ranks), np.diff(program.role_ptr))
        number_E = np.arange(len(value_E)) - program.role_ptr[owner_E]
        groups_C = np.array([len(each.groups) for each in program.classes], dtype=np.int64)
        grouped_E = number_E < groups_C[program.class_of_rank[owner_E]]
        index = _RoleIndex(owner_E, grouped_E, value_E, number_E)
        first_E = index.find(owner_E, grouped_E, value_E)
        back_E = np.where(grouped_E, -1, index.find(value_E, False, owner_E))
        return cls(owner_E, grouped_E, first_E, back_E, index)


@final
@dataclass(frozen=True, eq=False)
class _GroupTable:
    """The groups in which ranks communicate, those of one size together.

    Attributes:
        count: Number of all groups.
        group_S: The groups of each size.
        rank_SGM: Their members.
        fixed_SGM: The role of the group for each member, and how far it is from the first one.
    """

    count: int
    group_S: tuple[np.ndarray, ...]
    rank_SGM: tuple[np.ndarray, ...]
    fixed_SGM: tuple[np.ndarray, ...]

    @classmethod
    def from_program(cls, program: LoweredProgram, roles: _RoleTable) -> "_GroupTable":
        groups = program.groups
        used_G = np.unique(program.role[roles.grouped_E])
        size_G = np.diff(groups.ptr)[used_G]
        group_S, rank_SGM, fixed_SGM = [], [], []
        for size in np.unique(size_G).tolist():
            group_G = used_G[size_G == size]
            rank_GM = groups.rank[groups.ptr[group_G][:, None] + np.arange(size)].astype(np.int64)
            role_GM = roles.index.find(rank_GM, True, group_G[:, None])
            far_GM = _distances(program, rank_GM)
            group_S.append(group_G)
            rank_SGM.append(rank_GM)
            fixed_SGM.append((role_GM + 1) * program.num_ranks + far_GM)
        return cls(len(groups.names), tuple(group_S), tuple(rank_SGM), tuple(fixed_SGM))

    def colors(self, color_R: np.ndarray) -> np.ndarray:
        """Return a number for each group, equal where all members are alike, int64 (G,)."""
        color_G = -1 - np.arange(self.count)  # of groups without communication, each its own
        start = 0
        for group_G, rank_GM, fixed_GM in zip(
            self.group_S, self.rank_SGM, self.fixed_SGM, strict=True
        ):
            found_G = _numbered(np.concatenate([color_R[rank_GM], fixed_GM], axis=1))
            color_G[group_G] = start + found_G
            start += int(found_G.max()) + 1
        return color_G


def _distances(program: LoweredProgram, rank_GM: np.ndarray) -> np.ndarray:
    """Return how far each rank is from the first of its row, each dimension closed to a ring.

    The time of a message depends on no more, whatever the topology of a dimension.
    """
    far_GM, below = np.zeros_like(rank_GM), 1
    for size in (dimension.npus for dimension in program.cluster.network.dimensions):
        place_GM = rank_GM // below % size
        far_GM += (place_GM - place_GM[:, :1]) % size * below
        below *= size
    return far_GM


@final
@dataclass(frozen=True, eq=False)
class _RankClass:
    """Ranks that run the same nodes, with groups and peers by role.

    Attributes:
        fixed_RX: What of a rank does not change while classes are divided.
        line_LM: The ranks of all lines of one kind, and the line of each rank.
    """

    rank_R: np.ndarray
    group_RG: np.ndarray
    peer_RP: np.ndarray
    fixed_RX: np.ndarray
    line_LM: tuple[tuple[np.ndarray, np.ndarray], ...]

    @classmethod
    def from_program(
        cls, program: LoweredProgram, roles: _RoleTable, index: int, apart: frozenset[PhaseKind]
    ) -> "_RankClass":
        nodes = program.classes[index]
        rank_R = np.flatnonzero(program.class_of_rank == index)
        count = len(nodes.groups)
        width = count + len(nodes.peers)
        entry_RW = program.role_ptr[rank_R][:, None] + np.arange(width)
        role_RW = program.role[entry_RW]
        near_RX = np.concatenate([rank_R[:, None], role_RW[:, count:]], axis=1)
        fixed = [roles.first_E[entry_RW], roles.back_E[entry_RW], _distances(program, near_RX)]
        lines = []
        for role, kind in _phase_kinds(program, index):
            place_R = rank_R // max(kind.stride, 1) % kind.members
            if kind.stride:
                start_L, line_R = np.unique(rank_R - place_R * kind.stride, return_inverse=True)
                line_LM = start_L[:, None] + np.arange(kind.members) * kind.stride
                lines.append((line_LM, line_R))
            else:
                groups = program.groups
                owner = np.repeat(np.arange(program.num_ranks), np.diff(groups.rank_ptr))
                group_of = np.full(program.num_ranks, -1, dtype=np.int64)
                group_of[rank_R] = role_RW[:, role]
                hit = groups.of_rank == group_of[owner]
                place_of = np.zeros(program.num_ranks, dtype=np.int64)
                place_of[owner[hit]] = groups.position[hit]
                place_R = place_of[rank_R]
            if kind in apart:
                fixed.append(place_R[:, None])
        return cls(
            rank_R,
            role_RW[:, :count],
            role_RW[:, count:],
            np.concatenate(fixed, axis=1),
            tuple(lines),
        )

    def colors(self, color_R: np.ndarray, group_color_G: np.ndarray) -> np.ndarray:
        """Return a number for each of the ranks, equal where they are alike so far."""
        columns = [
            color_R[self.rank_R][:, None],
            group_color_G[self.group_RG],
            color_R[self.peer_RP],
            self.fixed_RX,
            *(_numbered(color_R[line_LM])[line_R][:, None] for line_LM, line_R in self.line_LM),
        ]
        return _numbered(np.concatenate(columns, axis=1))


def _phase_kinds(program: LoweredProgram, index: int) -> list[tuple[int, PhaseKind]]:
    nodes = program.classes[index]
    rows = nodes.kind_N == NodeKind.COLLECTIVE
    role_of = {group: role for role, group in enumerate(nodes.groups)} | {-1: -1}
    asked = set(zip(nodes.tag_N[rows].tolist(), nodes.peer_N[rows].tolist(), strict=True))
    found = {
        (role_of[group] if phase.stride == 0 else -1, PhaseKind(phase.stride, phase.members))
        for group, plan in asked
        for phase in program.plans[plan].phases
    }
    return sorted(found, key=lambda each: (each[0], each[1].stride, each[1].members))


def select_rows(ptr: np.ndarray, rank_K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pointers of some of the lists that ``ptr`` delimits, and where their entries are."""
    count_K = np.diff(ptr)[rank_K]
    chosen = pointers(count_K)
    at = np.repeat(ptr[rank_K] - chosen[:-1], count_K) + np.arange(chosen[-1])
    return chosen, at
