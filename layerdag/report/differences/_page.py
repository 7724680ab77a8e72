"""The page itself, with the figures beside it as JSON."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from layerdag._runtime import write_text
from layerdag.report import document, require_replaceable_page
from layerdag.report.differences._ribbon import ribbon
from layerdag.report.differences._verdicts import verdicts
from layerdag.report.sections import cards
from layerdag.viz import Markup, element, scrolling, section, table
from layerdag.workloads.differences import Difference, Operator, counts_text, figure_text, lines

MOST_ROWS = 200
"""Tables on the page stop here; the JSON has all rows."""

_COLUMNS = {
    "flops": "Operations (FLOPs)",
    "bytes": "Bytes moved",
    "tensor_bytes": "Bytes of tensors",
    "comm_bytes": "Bytes communicated",
    "duration_us": "Duration (us)",
}
_MOST_RIBBONS = 8
_MOST_WORDS = 12


def require_replaceable_difference(path: str | Path) -> None:
    """Raise UsageError if the files of a page would replace something else."""
    require_replaceable_page(path, "a difference", {"differing", "stretches"})


def write_difference(found: Difference, path: str | Path) -> Path:
    """Write the page to ``path`` and all figures to the same name with .json.

    Returns:
        ``path``.

    Raises:
        UsageError: If one of the two would replace something that is not of a difference.
    """
    path = Path(path)
    require_replaceable_difference(path)
    write_text(path.with_suffix(".json"), json.dumps(found.summary(), indent=1) + "\n")
    write_text(path, _render(found))
    return path


def _render(found: Difference) -> str:
    """Return the page as one HTML document."""
    differing = ", ".join(found.differing)
    sentence = f"differ in {differing}." if differing else "are equal in all that counts."
    lead = f"A is {found.a}, B is {found.b}. They {sentence}"
    if found.ignored:
        lead += f" Not counted: {', '.join(found.ignored)}."
    made = (
        ("structure", "Structure", _structure(found)),
        ("operators", "Operators", _operators(found)),
        ("communication", "Communication", _communication(found)),
        ("time", "Time", _times(found)),
        ("labels", "Labels", _labels(found)),
        ("summary", "In short", _summary(found)),
    )
    sections = [(name, title, section(name, title, *parts)) for name, title, parts in made if parts]
    there = {name for name, _, _ in sections}
    verdict = section("verdict", "Verdict", cards(verdicts(found, there)))
    return document("What differs", lead, [("verdict", "Verdict", verdict), *sections])


def _summary(found: Difference) -> list[Markup]:
    """Return what the terminal shows."""
    notes = [element("p", note) for note in found.notes]
    text = element("pre", "\n".join(lines(found)))
    shown = scrolling(text, "What differs, as the terminal shows it")
    return [*notes, element("details", element("summary", "As the terminal shows it"), shown)]


def _structure(found: Difference) -> list[Markup]:
    """Return the ribbons, what repeats more or less often, and what only one has."""
    key = "Nodes in program order. Gray: only in A. Orange: only in B. Blue: aligned."
    parts = [element("p", key)]
    parts += [ribbon(program) for program in found.programs[:_MOST_RIBBONS]]
    hidden = len(found.programs) - _MOST_RIBBONS
    if hidden > 0:
        parts.append(element("p", f"{hidden} more kinds of ranks are not drawn."))
    figures = [
        (
            _unbroken(program.name), *map(_count, (*program.nodes, program.aligned, program.moved)),
            *map(_count, (*program.edges, *program.rewired)),
        )
        for program in found.programs
    ]  # fmt: skip
    head = ("Program", "Nodes of A", "Nodes of B", "Aligned", "Moved", "Dependencies of A",
        "Dependencies of B", "Rewired, only A", "Rewired, only B")  # fmt: skip
    caption = "Nodes and dependencies; rewired are dependencies between aligned nodes"
    parts += _table(caption, head, figures, 1, 2, 3, 4, 5, 6, 7, 8)
    blocks = [
        (
            _unbroken(block.program),
            _count(block.nodes),
            *map(_count, block.count),
            counts_text(block.operators, _MOST_WORDS),
        )
        for block in found.blocks
    ]
    block_head = ("Program", "Nodes of a block", "Times in A", "Times in B", "Operators of a block")
    parts += _table("Blocks that repeat more or less often", block_head, blocks, 1, 2, 3)
    only = [
        (_unbroken(f"{stretch.side.upper()}, {stretch.program}"), _count(stretch.start),
         _count(stretch.length), counts_text(stretch.operators, _MOST_WORDS))
        for stretch in found.stretches
    ]  # fmt: skip
    only_head = ("Only in", "First node", "Nodes", "Operators")
    return parts + _table("Nodes that only one of the two has", only_head, only, 1, 2)


def _operators(found: Difference) -> list[Markup]:
    """Return the table of operators that differ."""
    differing = [operator for operator in found.operators if operator.differs]
    columns = list(differing[0].numbers) if differing else []
    head = ["Operator", "Nodes of A", "Nodes of B", "Changed"]
    for name in columns:
        title = _COLUMNS.get(name, name.replace("_", " ").capitalize())
        head += [f"{title} of A", f"{title} of B"]
    rows = [tuple(_operator(operator, columns)) for operator in differing]
    caption = "Operators that differ; changed are aligned nodes with other figures, times aside"
    return _table(caption, tuple(head), rows, *range(1, len(head)))


def _operator(operator: Operator, columns: Iterable[str]) -> Iterator[str]:
    """Yield the cells of an operator."""
    yield operator.name
    yield from map(_count, (*operator.count, operator.changed))
    for name in columns:
        for value in operator.numbers[name]:
            yield "—" if value is None else figure_text(name, value)


def _communication(found: Difference) -> list[Markup]:
    """Return the table of collectives and messages."""
    rows = [
        (row.kind.lower().replace("_", "-"), str(row.ranks or "?"), *map(_count, row.count),
         *(figure_text("comm_bytes", size) for size in row.bytes))
        for row in found.communication
    ]  # fmt: skip
    head = ("Kind", "Ranks", "In A", "In B", "Bytes of A", "Bytes of B")
    caption = (
        "Communication of the whole job: a collective counts once for its group, and bytes are "
        "what one member gives"
    )
    return _table(caption, head, rows, 1, 2, 3, 4, 5)


def _times(found: Difference) -> list[Markup]:
    """Return the table of times."""
    rows = [
        (figure.name, *("—" if x is None else figure_text("", x) for x in (figure.a, figure.b)),
         figure.unit)
        for figure in found.times
    ]  # fmt: skip
    caption = "Sums of durations over one rank of each kind; the longest path of any rank"
    return _table(caption, ("What", "A", "B", "Unit"), rows, 1, 2)


def _labels(found: Difference) -> list[Markup]:
    """Return the table of graph-level values that differ."""
    rows = [(name, *map(str, pair)) for name, pair in found.labels.items()]
    return _table("Values of the whole graph that differ", ("Name", "A", "B"), rows, 1, 2)


def _table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *numeric: int
) -> list[Markup]:
    """Return a table of the first rows; nothing if there is none."""
    if not rows:
        return []
    hidden = len(rows) - MOST_ROWS
    more = f" (the first {MOST_ROWS}; {hidden:,} more in the JSON)" if hidden > 0 else ""
    return [table(caption + more, head, rows[:MOST_ROWS], *numeric)]


def _unbroken(name: str) -> str:
    """Return a name that no line breaks."""
    return name.replace(" ", "\N{NO-BREAK SPACE}").replace("-", "\N{NON-BREAKING HYPHEN}")


def _count(value: int) -> str:
    """Return a whole number."""
    return f"{value:,}"
