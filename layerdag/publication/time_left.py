"""The time of a release that is left, and what no longer fits into it."""

import math
import time
from collections.abc import Callable
from typing import TypeVar, final

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

    def is_up_for(self, what: str) -> bool:
        """Return whether a part would not end in time; it then counts as left out."""
        is_up = time.monotonic() + self._longest >= self._end
        if is_up:
            self._left_out.append(what)
        return is_up

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
        return None if self.is_up_for(what) else self.always(part)
