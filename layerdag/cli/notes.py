"""What readers did not understand, told by every command in one way.

One line for each note on standard error, all of them in the JSON document, and exit code 1 where
``--strict`` is given.
"""

import argparse
import sys
from collections.abc import Sequence

from layerdag.runtime.notes import Note

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
