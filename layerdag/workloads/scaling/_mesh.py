"""Ranks as coordinates of a mesh, found from the groups in which they communicate."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from layerdag.errors import TraceError

FULL, OWN = "full", "own"
Extent = str | tuple[int, ...]
"""Of a group along an axis: all of it, the rank's own place, or these places."""


@final
@dataclass(frozen=True)
class Mesh:
    """Ranks in mixed-radix order.

    Attributes:
        sizes: Ranks along each axis, the axis on which neighbors differ first.
    """

    sizes: tuple[int, ...]

    @cached_property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return int(np.prod(self.sizes, dtype=np.int64))

    @cached_property
    def position_RA(self) -> np.ndarray:
        """Place of each rank on each axis, int64 (R, A)."""
        return self.coordinates(np.arange(self.num_ranks))

    def coordinates(self, rank_K: np.ndarray) -> np.ndarray:
        """Return the places of some ranks on each axis, int64 (K, A)."""
        if not self.sizes:
            return np.zeros((len(rank_K), 0), dtype=np.int64)
        return np.stack(np.unravel_index(rank_K, self.sizes, order="F"), axis=1)

    def ranks(self, position_KA: np.ndarray) -> np.ndarray:
        """Return the ranks at some places, int64 (K,)."""
        if not self.sizes:
            return np.zeros(len(position_KA), dtype=np.int64)
        return np.asarray(np.ravel_multi_index(tuple(position_KA.T), self.sizes, order="F"))

    def extents(self, ranks: Sequence[int]) -> tuple[Extent, ...] | None:
        """Return what a group is along each axis, None if it is no box of the mesh."""
        position_MA = self.coordinates(np.array(sorted(ranks)))
        along = [tuple(sorted(set(position_M.tolist()))) for position_M in position_MA.T]
        if np.prod([len(coordinates) for coordinates in along], dtype=np.int64) != len(ranks):
            return None
        return tuple(
            FULL if len(coordinates) == size else OWN if len(coordinates) == 1 else coordinates
            for coordinates, size in zip(along, self.sizes, strict=True)
        )

    def groups(self, extents: Sequence[Extent]) -> np.ndarray:
        """Return all groups of these extents, int64 (G, members), by their first ranks."""
        if not self.sizes:
            return np.zeros((1, 1), dtype=np.int64)
        own = [axis for axis, extent in enumerate(extents) if extent == OWN]
        inner: dict[int, Iterable[int]] = {}
        for axis, extent in enumerate(extents):
            if axis not in own:
                inner[axis] = range(self.sizes[axis]) if isinstance(extent, str) else extent
        inner_MA = self._boxes(inner)
        outer_GA = self._boxes({axis: range(self.sizes[axis]) for axis in own})
        position_GMA = outer_GA[:, None] + inner_MA[None]
        rank_GM = self.ranks(position_GMA.reshape(-1, len(self.sizes)))
        rank_GM = np.sort(rank_GM.reshape(len(outer_GA), len(inner_MA)), axis=1)
        return rank_GM[np.argsort(rank_GM[:, 0])]

    def _boxes(self, along: Mapping[int, Iterable[int]]) -> np.ndarray:
        """Return all places with these coordinates, and 0 on the other axes, int64 (K, A)."""
        lists = [np.array([*along.get(axis, (0,))]) for axis in range(len(self.sizes))]
        return np.stack([g.reshape(-1) for g in np.meshgrid(*lists, indexing="ij")], axis=1)


def mesh_of(num_ranks: int, groups: Iterable[Sequence[int]], source: str) -> Mesh:
    """Return the coarsest mesh in which sets of ranks are boxes.

    Args:
        num_ranks: Ranks of the job.
        groups: Communicator groups and classes of ranks; those that are no boxes with steps that
            divide the number of ranks are left out here.
        source: For messages.

    Raises:
        TraceError: If the groups do not share a mesh.
    """
    cuts = {1, num_ranks}
    for ranks in {tuple(sorted(group)) for group in groups}:
        for step, count in _steps(ranks):
            if num_ranks % (step * count) == 0:
                cuts |= {step, step * count}
    ordered = sorted(cuts)
    for below, above in itertools.pairwise(ordered):
        if above % below:
            raise TraceError(
                f"{source}: the communicator groups do not form a grid of ranks (one has steps of "
                f"{below}, another of {above}), so that no degree of parallelism can be read."
            )
    return Mesh(tuple(above // below for below, above in itertools.pairwise(ordered)))


def _steps(ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Return (step, count) of each level of regularly spaced ranks, () if they are not."""
    found, left = [], np.array(ranks)
    while left.size > 1:
        step = int(left[1] - left[0])
        count = 1
        while count < left.size and left[count] - left[0] == step * count:
            count += 1
        if left.size % count:
            return []
        rows = left.reshape(-1, count)
        if (rows - rows[:, :1] != rows[0] - rows[0, 0]).any():
            return []
        found.append((step, count))
        left = rows[:, 0]
    return found
