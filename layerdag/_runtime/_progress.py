"""Progress bars with the time left: shown on a terminal, silent when the output is piped."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
    """Yield ``items`` while a bar on standard error shows how many are done and the time left.

    Args:
        items: What to go through.
        label: The few words before the bar.
        total: Number of items, where ``items`` has no length.
    """
    from tqdm import tqdm

    yield from tqdm(items, desc=label, total=total, disable=not sys.stderr.isatty(), leave=False)
