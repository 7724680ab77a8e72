"""Communicator groups of a job seen from its classes of ranks: roles instead of numbers.

A role says who takes part without naming a rank: "world" (all ranks), "stage" (the ranks of the
own class), or the shape of a sub-group, "contiguous4" or "strided2". So a graph with roles can be
unfolded on another number of ranks.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from layerdag.errors import TraceError
from layerdag.traces.analysis import WORLD_NAMES

ALL_RANKS = "world"
STAGE = "stage"
_SHAPE = re.compile(r"(contiguous|strided)([1-9][0-9]{0,6})")


class JobGroups:
    """The groups of a job.

    Args:
        name: Of the job, for messages.
        classes: Ranks of each class of ranks.
        groups: Ranks of each communicator group by integer name.
    """

    def __init__(
        self,
        name: str,
        classes: Sequence[tuple[int, ...]],
        groups: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._name = name
        self._classes = [set(ranks) for ranks in classes]
        self._groups = groups
        self._world = {rank for ranks in classes for rank in ranks}

    @property
    def num_classes(self) -> int:
        """Number of classes of ranks."""
        return len(self._classes)

    def ranks(self, group: str) -> set[int]:
        """Return the ranks of a group.

        Raises:
            TraceError: If the group is unknown.
        """
        if group in self._groups:
            return set(self._groups[group])
        if group in WORLD_NAMES:
            return self._world
        raise TraceError(
            f"{self._name}: a collective runs in group '{group}', which is not among the job's "
            "groups; add the communicator-group file that was written with the traces."
        )

    def classes_of(self, group: str) -> tuple[int, ...]:
        """Return the classes with a rank in the group."""
        ranks = self.ranks(group)
        return tuple(i for i, members in enumerate(self._classes) if ranks & members)

    def role(self, group: str) -> str:
        """Return the role of a group."""
        ranks = self.ranks(group)
        if ranks == self._world:
            return ALL_RANKS
        if ranks in self._classes:
            return STAGE
        steps = set(np.diff(sorted(ranks)).tolist())
        return ("contiguous" if steps <= {1} else "strided") + str(len(ranks))

    def stage_of(self, rank: int) -> int:
        """Return the class that ``rank`` belongs to.

        Raises:
            TraceError: If there is no trace of this rank.
        """
        for stage, members in enumerate(self._classes):
            if rank in members:
                return stage
        raise TraceError(
            f"{self._name}: a message names rank {rank}, of which there is no trace; add it."
        )


def members(role: str, domain: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the ranks that share a group of shape ``role`` with ``rank``.

    Args:
        role: Anything but a shape means the whole domain; so does a shape larger than it.
        domain: Ranks among which groups are formed, ascending.
        rank: One of them.
    """
    match = _SHAPE.fullmatch(role)
    if match is None:
        return tuple(domain)
    wanted = min(int(match[2]), len(domain))
    size = max(d for d in range(1, wanted + 1) if len(domain) % d == 0)
    position, count = list(domain).index(rank), len(domain) // size
    if match[1] == "contiguous":
        return tuple(domain[position // size * size : (position // size + 1) * size])
    return tuple(domain[position % count :: count])
