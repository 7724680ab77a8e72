"""The sets of graphs that an audit compares."""

from collections.abc import Sequence

from layerdag.errors import UsageError
from layerdag.graph import DAG

_NAMES = {"train": "training", "held_out": "held-out"}


def require_graphs(what: str, **sets: Sequence[DAG]) -> None:
    """Raise UsageError if a set is empty, with its name.

    Args:
        what: What needs them, in the plural ("Membership attacks").
        **sets: Graphs by the name of the set.
    """
    names = {name: _NAMES.get(name, name) for name in sets}
    empty = [names[name] for name, graphs in sets.items() if not graphs]
    if empty:
        raise UsageError(
            f"{what} need {' and '.join(names.values())} graphs; the {empty[0]} set is empty."
        )
