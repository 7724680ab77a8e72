"""How much of a run is done, in steps or seconds, with a bar that shows the time left."""

import sys
import time
from types import TracebackType

from layerdag.training import TrainSettings


class Budget:
    """The used fraction of ``max_steps`` or ``max_seconds``, whichever is further.

    Args:
        settings: With at least one of the two limits.
        step: Steps done before a resumed run.
        seconds: Seconds spent before a resumed run.
    """

    def __init__(self, settings: TrainSettings, step: int = 0, seconds: float = 0.0) -> None:
        from tqdm import tqdm

        self._settings = settings
        self._start = time.monotonic() - seconds
        self._bar = tqdm(
            total=1.0,
            initial=self.used(step),
            desc="training",
            disable=not sys.stderr.isatty(),
            leave=False,
            bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}",
        )

    def __enter__(self) -> "Budget":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def seconds(self) -> float:
        """Return the seconds spent, those before resuming included."""
        return time.monotonic() - self._start

    def used(self, step: int) -> float:
        """Return the used fraction, 1 when the budget is spent."""
        limit = self._settings
        by_step = step / limit.max_steps if limit.max_steps else 0.0
        by_time = self.seconds() / limit.max_seconds if limit.max_seconds else 0.0
        return min(1.0, max(by_step, by_time))

    def show(self, step: int, note: str) -> None:
        """Move the bar."""
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(self.used(step) - self._bar.n)
