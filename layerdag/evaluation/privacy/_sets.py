"""The sets of graphs that an audit compares."""

from collections.abc import Sized

from layerdag.errors import UsageError

_NAMES = {"train": "training", "held_out": "held-out"}


def require_graphs(what: str, **sets: Sized) -> None:
    """Raise UsageError if a set is empty, with its name.

    Args:
        what: What needs them, in the plural ("Membership attacks").
        **sets: Graphs, or what stands for each, by the name of the set.
    """
    names = {name: _NAMES.get(name, name) for name in sets}
    empty = [names[name] for name, graphs in sets.items() if not len(graphs)]
    if empty:
        raise UsageError(
            f"{what} need {' and '.join(names.values())} graphs; the {empty[0]} set is empty."
        )
