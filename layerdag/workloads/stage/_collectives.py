"""Which collectives bring a tensor from the sharding it has to the one its consumer expects."""

from collections.abc import Sequence
from enum import Enum
from typing import final

from layerdag.traces import CollectiveType
from layerdag.workloads.stage._dims import Dim
from layerdag.workloads.stage._forms import Layout

DEGREES = ("dp", "tp", "cp", "ep")
"""Symbols of the degrees, the one whose ranks are nearest first."""


@final
class State(Enum):
    """What the ranks of a group have of a tensor."""

    DUPLICATED = "all of it"
    PARTITIONED = "a part each"
    PARTIAL = "a partial sum each"


def states(layout: Layout, degrees: Sequence[str]) -> dict[str, tuple[State, Dim | None]]:
    """Return for each degree the state of a tensor, and the dimension that says so.

    That dimension is given as it were if the degree were the only one.
    """
    found: dict[str, tuple[State, Dim | None]] = dict.fromkeys(degrees, (State.DUPLICATED, None))
    for dims, state in ((layout.reduced, State.PARTIAL), (layout.dims, State.PARTITIONED)):
        for dim in reversed(dims):  # the first dimension that names a degree counts
            for degree in degrees:
                if degree in dim.symbols:
                    others = (other for other in DEGREES if other != degree)
                    found[degree] = (state, dim.without(others))
    return found


def collectives(
    made: Layout, expected: Layout, degrees: Sequence[str]
) -> list[tuple[str, CollectiveType]]:
    """Return the degrees along which ranks communicate, and how, in order of degrees.

    From all of it to a part each, ranks cut their part out themselves.
    """
    have, want = states(made, degrees), states(expected, degrees)
    found = ((degree, _collective(have[degree], want[degree])) for degree in degrees)
    return [(degree, kind) for degree, kind in found if kind is not None]


def _collective(
    have: tuple[State, Dim | None], want: tuple[State, Dim | None]
) -> CollectiveType | None:
    """Return the collective along one degree, None if none is needed."""
    if have[0] is State.PARTIAL:
        return {
            State.DUPLICATED: CollectiveType.ALL_REDUCE,
            State.PARTITIONED: CollectiveType.REDUCE_SCATTER,
            State.PARTIAL: None,
        }[want[0]]
    if want[0] is State.PARTIAL:
        raise ValueError("a partial sum is expected of a tensor that is none")
    if have[0] is State.PARTITIONED and want[0] is State.DUPLICATED:
        return CollectiveType.ALL_GATHER
    if have[0] is want[0] and have[1] != want[1]:
        return CollectiveType.ALL_TO_ALL
    return None
