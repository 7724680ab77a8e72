"""From an interval around 0.5 to words: a leak, none of note, or too few graphs to tell.

0.5 is what chance gives, to the area under an attack's ROC curve and to the share of samples nearer
to training graphs alike. That an interval contains 0.5 is no evidence of 0.5, however wide it is:
"no better than chance" is said only if the whole interval lies within ``MARGIN`` of it (a test of
equivalence).
"""

import math
from collections.abc import Sized
from dataclasses import dataclass
from enum import Enum

from layerdag.errors import UsageError
from layerdag.evaluation.metrics import NORMAL_95, Interval

CHANCE = 0.5
MARGIN = 0.05
"""Distance from 0.5 within which an interval must lie to count as no better than chance."""

_NAMES = {"train": "training", "held_out": "held-out"}


class Verdict(Enum):
    """What an interval says."""

    LEAKS = "tells training graphs apart"
    CHANCE = "no better than chance"
    TOO_FEW = "too few graphs to tell"
    REVERSED = "prefers held-out graphs"

    @classmethod
    def of(cls, interval: Interval) -> "Verdict":
        """Return the verdict on a 95 % interval.

        ``REVERSED`` is no leak and no all-clear: training and held-out graphs differ by more than
        that one part was trained on, so that the comparison is not between like and like.
        """
        if interval.low > CHANCE:
            return cls.LEAKS
        if interval.low >= CHANCE - MARGIN and interval.high <= CHANCE + MARGIN:
            return cls.CHANCE
        return cls.REVERSED if interval.high < CHANCE else cls.TOO_FEW


@dataclass(frozen=True)
class Need:
    """How many graphs a verdict would take.

    Attributes:
        of: Which graphs are too few, in the plural: "held-out graphs" or "samples".
        found: How many there are.
        count: About how many are needed, if the figure stays what it is.
    """

    of: str
    found: int
    count: int

    def in_words(self) -> str:
        """Return a clause for messages."""
        return f"{self.found:,} {self.of}, about {self.count:,} needed"


def half_width_for_verdict(value: float) -> float:
    """Return the half-width from which on an interval around ``value`` gets a verdict.

    It must either leave 0.5 out or lie within the margin, whichever takes less.
    """
    distance = abs(value - CHANCE)
    return max(distance, MARGIN - distance)


def needed(value: float, half: float, found: int) -> int:
    """Return about how many graphs bring the half-width of an interval down to a verdict.

    The half-width shrinks with the square root of the number of graphs.
    """
    return round_up(found * (half / half_width_for_verdict(value)) ** 2)


def chance_half_width(members: int, others: int) -> float:
    """Return the 95 % half-width of the area under the curve of a score that says nothing.

    The variance of the Mann-Whitney statistic under exchange of members and others. The bootstrap
    of few graphs is narrower than that: of three graphs, resampled, all lie where the three lie.
    """
    variance = (members + others + 1) / (12 * members * others)
    return NORMAL_95 * math.sqrt(variance)


def round_up(count: float) -> int:
    """Return a number rounded up to two digits."""
    unit = 10 ** max(math.floor(math.log10(max(count, 1))) - 1, 0)
    return math.ceil(count / unit) * unit


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
