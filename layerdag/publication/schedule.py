"""How the time of a release is divided among its stages, and what a stage leaves out."""

import math
import time
from collections.abc import Callable
from typing import TypeVar, final

from layerdag.publication.workspace import PrivateWorkspace

TRAINING_SHARE, SAMPLING_SHARE, WRITING_SHARE = 0.35, 0.35, 0.1
"""Of the budget; the rest is for evaluation."""
MIN_SECONDS = 10.0
"""That sampling, and each stage of a fold, may take whatever is left."""


@final
class Schedule:
    """What each stage of a release took, and what the next one may take.

    Args:
        budget: Seconds for everything.

    Attributes:
        seconds: That each stage took.
    """

    def __init__(self, budget: float) -> None:
        self.seconds: dict[str, float] = {}
        self._budget, self._last = budget, time.monotonic()

    def lap(self, stage: str) -> None:
        """Note the seconds since the last call."""
        now = time.monotonic()
        self.seconds[stage] = now - self._last
        self._last = now

    @property
    def for_training(self) -> float:
        """Seconds that training may take."""
        return TRAINING_SHARE * self._budget

    @property
    def for_sampling(self) -> float:
        """Seconds that sampling may take, after the traces were read."""
        left = max((1 - TRAINING_SHARE) * self._budget - self.seconds["read"], 0.0)
        return max(min(SAMPLING_SHARE * self._budget, 0.6 * left), MIN_SECONDS)

    def left_before_writing(self, work: PrivateWorkspace) -> float:
        """Return the seconds of the budget that are left before writing.

        What an earlier call trained or drew counts as it did there, so that both leave out the
        same.
        """
        noted = {
            stage: float(work.stages.get(stage, {}).get("seconds", 0.0))
            for stage in ("train", "sample")
        }
        spent = [max(seconds, noted.get(stage, 0.0)) for stage, seconds in self.seconds.items()]
        return (1 - WRITING_SHARE) * self._budget - sum(spent)


T = TypeVar("T")


@final
class TimeLeft:
    """Runs parts of a stage while there is time, and leaves out those that no longer fit.

    A part cannot be stopped inside. One that can be left out is begun only where as much time is
    left as the longest part took so far.

    Args:
        seconds: That all parts may take together.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self._end = time.monotonic() + seconds
        self._longest = 0.0
        self._left_out: list[str] = []

    @property
    def left_out(self) -> tuple[str, ...]:
        """What did not fit, in words."""
        return tuple(self._left_out)

    def always(self, part: Callable[[], T]) -> T:
        """Return what a part gives that cannot be left out."""
        began = time.monotonic()
        found = part()
        self._longest = max(self._longest, time.monotonic() - began)
        return found

    def if_time(self, what: str, part: Callable[[], T]) -> T | None:
        """Return what a part gives; None if it does not fit, and it counts as left out.

        Args:
            what: The part in words.
            part: Computes it.
        """
        if time.monotonic() + self._longest >= self._end:
            self._left_out.append(what)
            return None
        return self.always(part)
