"""What several commands print in one way: numbers of things, ranks that are alike, notes.

Notes say what readers did not understand: one line each on standard error, all of them in the JSON
document, and exit code 1 where ``--strict`` is given.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from layerdag.runtime.notes import Note


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


SHOWN_NOTES = 20


def add_strict(parser: argparse.ArgumentParser) -> None:
    """Add ``--strict``."""
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 if anything in the input was not understood",
    )


def print_notes(notes: Sequence[Note]) -> None:
    """Print a line for each note on standard error, the first ones if there are many."""
    for note in notes[:SHOWN_NOTES]:
        print(f"note: {note}", file=sys.stderr)
    if len(notes) > SHOWN_NOTES:
        more = len(notes) - SHOWN_NOTES
        print(f"note: {more:,} more notes; --json shows all", file=sys.stderr)


def notes_json(notes: Sequence[Note]) -> list[dict[str, str | int]]:
    """Return the notes for the JSON document of a command."""
    return [note.to_json() for note in notes]


def unknown_share(unknown: int, nodes: int, words: str, every: str) -> list[str]:
    """Return a sentence on the nodes whose operator is not known, where there are any.

    Args:
        unknown: Their number among the training graphs.
        nodes: All nodes there.
        words: The setting that keeps some words.
        every: The setting that keeps all.
    """
    if not unknown:
        return []
    return [
        f"{100 * unknown / nodes:.1f} % of the training nodes have operators that are not public "
        f"and stand as <other>; name those to keep in {words}, or set {every}."
    ]


def strict_code(notes: Sequence[Note], *, strict: bool) -> int:
    """Return the exit code that notes cause: 1 with ``--strict``, else 0."""
    return int(strict and bool(notes))
