"""Communicator groups as arrays."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from layerdag.errors import SimulationError
from layerdag.graph import pointers
from layerdag.traces import Workload
from layerdag.traces.analysis import WORLD


@dataclass(frozen=True, eq=False)
class GroupIndex:
    """Communicator groups as arrays.

    Attributes:
        names: Integer name of each group.
        index_of: Name -> position.
        ptr: int64 (G+1,); members of group g are ``rank[ptr[g]:ptr[g+1]]`` in the file's order.
        rank: int32 members.
        rank_ptr: int64 (R+1,); the groups of rank r are ``of_rank[rank_ptr[r]:rank_ptr[r+1]]``.
        of_rank: int32 group positions.
        place: int32 position of the rank inside that group.
    """

    names: np.ndarray
    index_of: dict[str, int]
    ptr: np.ndarray
    rank: np.ndarray
    rank_ptr: np.ndarray
    of_rank: np.ndarray
    position: np.ndarray

    @classmethod
    def build(cls, workload: Workload) -> "GroupIndex":
        """Index the groups of ``workload``.

        Raises:
            SimulationError: If a name is no integer above 0, or two are the same integer. A group
                "0" of all ranks is what nodes without a group mean, and needs no entry.
        """
        everyone = tuple(range(workload.num_ranks))
        usable = {
            name: members
            for name, members in workload.groups.items()
            if (name, members) != (WORLD, everyone)
        }
        _check_names(workload.source, usable)
        sizes = np.array([len(members) for members in usable.values()], dtype=np.int64)
        rank = np.array([r for members in usable.values() for r in members], dtype=np.int32)
        group = np.repeat(np.arange(len(usable), dtype=np.int32), sizes)
        ptr = pointers(sizes)
        position = (np.arange(len(rank)) - np.repeat(ptr[:-1], sizes)).astype(np.int32)
        order = np.argsort(rank, kind="stable")
        counts = np.bincount(rank, minlength=workload.num_ranks)
        return cls(
            names=np.array([int(name) for name in usable], dtype=np.int64),
            index_of={str(int(name)): i for i, name in enumerate(usable)},
            ptr=ptr,
            rank=rank,
            rank_ptr=pointers(counts),
            of_rank=group[order],
            position=position[order],
        )

    def size(self, group: int) -> int:
        """Return the number of ranks of ``group``."""
        return int(self.ptr[group + 1] - self.ptr[group])

    def lines(self, group: int, sizes: tuple[int, ...]) -> tuple["Line", ...] | None:
        """Return the line that ``group`` fills in each dimension, None if it is no grid of lines.

        The group holds every rank whose place in each dimension lies on the line there, such as
        every second rank of the first node, of all nodes.

        Args:
            group: Position of the group.
            sizes: Ranks of each dimension of the network, dimension 0 varying fastest.
        """
        member = self.rank[self.ptr[group] : self.ptr[group + 1]].astype(np.int64)
        found, below = [], 1
        for size in sizes:
            position = np.unique(member % size)
            step = int(position[1] - position[0]) if len(position) > 1 else 1
            if not _is_line(position, step, size):
                return None
            found.append(Line(len(position), step * below))
            member, below = member // size, below * size
        whole_grid = math.prod(line.members for line in found) == self.size(group)
        return tuple(found) if whole_grid else None


@dataclass(frozen=True)
class Line:
    """Equally spaced ranks of one dimension.

    Attributes:
        members: How many.
        stride: Distance of neighbors in rank numbers.
    """

    members: int
    stride: int


def _is_line(position: np.ndarray, step: int, size: int) -> bool:
    """Return whether places are equally spaced and every rank can tell its own from its number.

    The kernel takes rank / stride modulo members for a rank's place on its line, which holds where
    lines of this kind tile the dimension.
    """
    even = (np.diff(position) == step).all()
    tiles = size % (step * len(position)) == 0 and position[0] // step % len(position) == 0
    return bool(even and tiles)


def refuse_described_world(workload: Workload) -> None:
    """Refuse a group file that describes group "0", on which ASTRA-sim aborts.

    Raises:
        SimulationError: If it does.
    """
    if WORLD in workload.groups:
        raise SimulationError(
            f'{workload.source}: its communicator groups describe group "0", which stands for all '
            "ranks and on which ASTRA-sim aborts; remove the entry from the group file, or give "
            "the group a number above 0."
        )


def _check_names(source: str, groups: Mapping[str, tuple[int, ...]]) -> None:
    """Raise SimulationError where names of groups are no distinct integers above 0."""
    seen: dict[int, str] = {}
    for name in groups:
        if not is_group_name(name):
            raise SimulationError(
                f"{source}: communicator group '{name}' has no integer above 0 as its name, which "
                "ASTRA-sim needs; rename it in the group file and in pg_name."
            )
        other = seen.setdefault(int(name), name)
        if other != name:
            raise SimulationError(
                f"{source}: communicator groups '{other}' and '{name}' have the same number; "
                "rename one."
            )


def is_group_name(name: str) -> bool:
    """Return whether ASTRA-sim can use ``name``: an integer above 0."""
    return name.isascii() and name.isdigit() and len(name) <= 10 and 0 < int(name) < 2**31
