"""Process groups as PyTorch traces declare them, and the integer names that simulators need."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layerdag.errors import TraceError

WORLD = "0"


@dataclass(frozen=True)
class ProcessGroups:
    """The groups of one job as one rank sees them.

    Attributes:
        ranks: Ranks of each group by its integer name; "0" is the world. Empty for one process.
        alias: PyTorch's name of each group -> the integer name.
    """

    ranks: Mapping[str, tuple[int, ...]]
    alias: Mapping[str, str]

    def only(self) -> str | None:
        """Return the name of the group where there is but one, else None."""
        return next(iter(self.ranks)) if len(self.ranks) == 1 else None


def read_groups(texts: Iterable[str], source: str) -> ProcessGroups:
    """Read the JSON lists of ``process_group:init`` nodes.

    An empty list of ranks means all of them. Groups with the same ranks are the same group.
    Names that are no integers (ASTRA-sim needs integers) get the next free one.

    Raises:
        TraceError: If a text is not the list that PyTorch writes.
    """
    try:
        rows = [row for text in texts for row in json.loads(text)]
        found = {
            _name(row["pg_name"]): (tuple(row["ranks"]), int(row["group_size"])) for row in rows
        }
    except (ValueError, TypeError, KeyError) as error:
        raise TraceError(
            f"{source}: the process groups are not listed as PyTorch writes them ({error}); "
            "collect the trace again."
        ) from error
    world = max((size for _, size in found.values()), default=0)
    ranks: dict[tuple[int, ...], str] = {}
    if world:
        ranks[tuple(range(world))] = WORLD
    alias: dict[str, str] = {}
    for name, (members, _) in found.items():
        members = members or tuple(range(world))
        if members not in ranks:
            ranks[members] = _free(name, set(ranks.values()))
        alias[name] = ranks[members]
    return ProcessGroups({name: members for members, name in ranks.items()}, alias)


def _name(value: object) -> str:
    """Return a group's name; schema 1.0.3 wrote a (name, description) pair."""
    return str(value[0]) if isinstance(value, list | tuple) else str(value)


def _free(name: str, taken: set[str]) -> str:
    """Return ``name`` if it is a free integer, else the smallest free positive integer."""
    if name.isdigit() and name not in taken:
        return name
    number = 1
    while str(number) in taken:
        number += 1
    return str(number)
