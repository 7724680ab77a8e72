"""Process groups as PyTorch traces declare them, and the integer names that simulators need."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layerdag.errors import TraceError
from layerdag.traces.analysis import WORLD

Ranks = tuple[int, ...]

MOST_RANKS = 1 << 20
"""No group is larger: a trace may claim any size, and all ranks of a group are written down."""


@dataclass(frozen=True)
class ProcessGroups:
    """The groups of one job.

    Attributes:
        ranks: Ranks of each group by its integer name; "0" is the world. Empty for one process.
        alias: PyTorch's name of each group that this rank belongs to -> the integer name.
    """

    ranks: Mapping[str, Ranks]
    alias: Mapping[str, str]

    def only(self) -> str | None:
        """Return the name of the group where there is but one, else None."""
        return next(iter(self.ranks)) if len(self.ranks) == 1 else None


def declared_groups(texts: Iterable[str], source: str) -> dict[str, Ranks]:
    """Return the ranks of each group by PyTorch's name, from ``process_group:init`` nodes.

    An empty list of ranks means all of them, also for groups other than the default one.

    Raises:
        TraceError: If a text is not the list that PyTorch writes, or a group is too large.
    """
    try:
        rows = [row for text in texts for row in json.loads(text)]
        found = {
            _name(row["pg_name"]): (_ranks(row["ranks"]), int(row["group_size"])) for row in rows
        }
    except (
        *(ValueError, TypeError, KeyError, IndexError),
        *(OverflowError, RecursionError),
    ) as error:
        raise TraceError(
            f"{source}: the process groups are not listed as PyTorch writes them ({error}); "
            "collect the trace again."
        ) from error
    world = max((size for _, size in found.values()), default=0)
    if world > MOST_RANKS:
        raise TraceError(
            f"{source}: declares a process group of {world:,} ranks; layerdag reads groups of at "
            f"most {MOST_RANKS:,}. The trace is damaged, collect it again."
        )
    return {name: ranks or tuple(range(world)) for name, (ranks, _) in found.items()}


def number_groups(declared: Iterable[Mapping[str, Ranks]]) -> dict[Ranks, str]:
    """Return an integer name for each distinct set of ranks that any rank declares.

    The world is "0"; the others are counted in the order of their ranks, so that all ranks of a
    job agree whatever PyTorch calls the groups.
    """
    sets = {ranks for groups in declared for ranks in groups.values()}
    largest = max(sets, key=len, default=())
    others = sorted(sets - {largest})
    names = {ranks: str(number) for number, ranks in enumerate(others, start=1)}
    return {largest: WORLD, **names} if sets else {}


def process_groups(declared: Mapping[str, Ranks], names: Mapping[Ranks, str]) -> ProcessGroups:
    """Return the groups of a job as one rank sees them.

    Args:
        declared: What the rank declares.
        names: The integer name of each set of ranks, from `number_groups` over all ranks.
    """
    return ProcessGroups(
        ranks={name: ranks for ranks, name in names.items()},
        alias={name: names[ranks] for name, ranks in declared.items()},
    )


def _ranks(value: object) -> Ranks:
    """Return the ranks of a group."""
    if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
        raise ValueError(f"{value!r:.40} is no list of ranks")
    return tuple(value)


def _name(value: object) -> str:
    """Return a group's name; schema 1.0.3 wrote a (name, description) pair."""
    return str(value[0]) if isinstance(value, list | tuple) else str(value)
