"""What several commands print in one way: numbers of things, ranks that are alike, notes.

Notes say what readers did not understand: one line each on standard error, all of them in the JSON
document, and exit code 1 where ``--strict`` is given.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layerdag.errors import UsageError
from layerdag.runtime.notes import Note
from layerdag.runtime.reading import Limits, require_few_bytes, require_few_ranks

if TYPE_CHECKING:
    from layerdag.datasets.dataset import GraphDataset
    from layerdag.privacy.auditing import Audit
    from layerdag.validation.rules import Finding


JSON = "--json"
"""Of every verb: JSON on standard output, and nothing else there."""


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument(
        JSON, action="store_true", help="print JSON on standard output instead of text"
    )


def print_json(figures: object) -> None:
    """Print what ``--json`` prints."""
    sys.stdout.write(json.dumps(figures, indent=1, allow_nan=False) + "\n")


def print_figures(as_json: bool, figures: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Print the figures of a result as JSON, or the lines that say the same for people."""
    if as_json:
        print_json(figures)
    else:
        print("\n".join(lines))


def add_groups(parser: argparse.ArgumentParser) -> None:
    """Add ``--comm-group``."""
    parser.add_argument(
        "--comm-group", metavar="FILE", help='communicator groups: JSON {"<group>": [rank, ...]}'
    )


def add_limits(parser: argparse._ActionsContainer, limits: Limits | None = None) -> None:
    """Add ``--overwrite``, ``--max-ranks`` and ``--max-bytes``, for verbs that write a workload."""
    usual = limits or Limits()
    add = parser.add_argument
    add("--overwrite", action="store_true", help="replace the workload at that path")
    add("--max-ranks", type=int, default=usual.max_ranks, metavar="N",
        help="refuse to write more ranks, one file each (default: %(default)s)")  # fmt: skip
    add("--max-bytes", type=int, default=usual.max_bytes, metavar="N",
        help="refuse to write more bytes, as estimated (default: %(default)s)")  # fmt: skip


def require_place(args: argparse.Namespace) -> None:
    """Raise UsageError unless a verb was told where its workload goes, and may write there."""
    from layerdag.traces.chakra.workload import require_free_prefix

    if not args.out and not args.json:
        raise UsageError("Say where the traces go: --out PREFIX (or --json, for figures only).")
    if args.out:
        require_free_prefix(args.out, overwrite=args.overwrite)


def require_few(args: argparse.Namespace, what: str, ranks: int, num_bytes: int) -> None:
    """Raise UsageError if a workload has more ranks or bytes than ``add_limits`` allows."""
    limits = Limits(args.max_ranks, args.max_bytes)
    require_few_ranks(ranks, limits, what)
    require_few_bytes(num_bytes, limits, what)


def communication_lines(communication: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a table of collectives and messages of a step, by kind and group."""
    lines = ["", f"{'communication (kind:group)':<32} {'nodes':>12} {'GB':>14}"]
    lines += [
        f"{name:<32} {held['count']:>12,} {held['bytes'] / 1e9:>14,.3f}"
        for name, held in communication.items()
    ]
    return lines if communication else []


def finding_line(finding: "Finding") -> str:
    """Return a finding as a line of text."""
    return f"{finding.rule.severity.value}: [{finding.rule.id}] {finding.sentence()}"


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
    for line in note_lines(notes):
        print(line, file=sys.stderr)


def note_lines(notes: Sequence[Note]) -> list[str]:
    """Return a line for each note, the first ones if there are many."""
    lines = [f"note: {note}" for note in notes[:SHOWN_NOTES]]
    if len(notes) > SHOWN_NOTES:
        lines.append(f"note: {len(notes) - SHOWN_NOTES:,} more notes; --json shows all")
    return lines


def left_out_lines(left_out: Sequence[str]) -> list[str]:
    """Return a line on what is not among the graphs that count, if there is anything."""
    if not left_out:
        return []
    graphs = "graph" if len(left_out) == 1 else "graphs"
    return [f"left out: {len(left_out):,} {graphs}, the first: {left_out[0]}"]


def report_data(data: "GraphDataset | Audit") -> None:
    """Print what of real graphs was left out and not understood on standard error."""
    for line in (*left_out_lines(data.left_out), *note_lines(data.notes)):
        print(line, file=sys.stderr)


def notes_json(notes: Sequence[Note]) -> list[dict[str, str | int]]:
    """Return the notes for the JSON document of a command."""
    return [note.to_json() for note in notes]


def nameless_notes(notes: Sequence[Note]) -> list[dict[str, str | int]]:
    """Return the notes on private graphs for figures that may be handed on: no word, no place."""
    return [{"kind": str(note.kind), "count": note.count, "effect": note.effect} for note in notes]


def strict_code(notes: Sequence[Note], *, strict: bool) -> int:
    """Return the exit code that notes cause: 1 with ``--strict``, else 0."""
    return int(strict and bool(notes))


def warn(sentence: str) -> None:
    """Print a warning on standard error."""
    print(f"layerdag: warning: {sentence}", file=sys.stderr)
