"""Numbers of things, and ranks that are alike, in the words of a terminal."""

from collections.abc import Iterable, Sequence
from typing import Any


def counted(count: int, thing: str) -> str:
    """Return "1 rank", "2 ranks", "1,024 ranks"; "2 classes" for "class"."""
    plural = thing + ("es" if thing.endswith("s") else "s")
    return f"{count:,} {thing if count == 1 else plural}"


def alike(rows: Iterable[Sequence[Any]]) -> list[tuple[str, Sequence[Any]]]:
    """Return each distinct row once, with the ranks that have it: "0-3,8"."""
    ranks: dict[tuple[Any, ...], list[int]] = {}
    for rank, row in enumerate(rows):
        ranks.setdefault(tuple(row), []).append(rank)
    return [(_spans(found), row) for row, found in ranks.items()]


def _spans(ranks: Sequence[int]) -> str:
    """Return ascending ranks as spans, the first two of many."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in spans[:2]]
    return ",".join(shown) + (",..." if len(spans) > 2 else "")
