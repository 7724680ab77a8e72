"""The page of ``layerdag diff``."""

import html
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from layerdag.differences.difference import (
    AlignedPrograms,
    Difference,
    Operator,
    PairedValue,
    counts_text,
    figure_text,
    lines,
)
from layerdag.graph.attributed_graph import written_name
from layerdag.report.content import Answer
from layerdag.report.page import cards, document, require_replaceable_page, write_page
from layerdag.viz.html import Markup, element, number, scrolling, section, table

WIDTH, BAR, GAP = 960, 16, 60
_LEFT = 26.0
_MOST_RIBBONS = 400
_LEAST = 0.8


def ribbon(program: AlignedPrograms) -> Markup:
    """Return the figure of one pair of programs.

    Bars have the color of what corresponds; what only one has is drawn in the second color. The
    longest runs are drawn if there are very many.
    """
    scale = (WIDTH - _LEFT - 4) / max(*program.nodes, 1)
    runs = sorted(program.runs, key=lambda run: -run[2])[:_MOST_RIBBONS]
    top, bottom = 2, 2 + BAR + GAP
    shapes = [
        _bar(_LEFT, top, program.nodes[0] * scale, "base"),
        _bar(_LEFT, bottom, program.nodes[1] * scale, "base"),
        f'<text class="tick" x="4" y="{top + 12}">A</text>',
        f'<text class="tick" x="4" y="{bottom + 12}">B</text>',
    ]
    for at_a, at_b, length in runs:
        left_a, left_b, size = _LEFT + at_a * scale, _LEFT + at_b * scale, length * scale
        if at_b < 0:
            shapes.append(_bar(left_a, top, size, "gone"))
        elif at_a < 0:
            shapes.append(_bar(left_b, bottom, size, "new"))
        else:
            shapes.append(_band(left_a, left_b, size, top + BAR, bottom))
    label = (
        f"{program.name}: {program.nodes[0]:,} nodes of A above {program.nodes[1]:,} of B, "
        f"{program.aligned:,} aligned"
    )
    return Markup(
        f'<figure class="chart ribbons"><figcaption>{html.escape(label)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {bottom + BAR + 4}" role="img" '
        f'aria-label="{html.escape(label)}">{"".join(shapes)}</svg></figure>'
    )


def _bar(left: float, top: int, width: float, style: str) -> str:
    width = max(width, _LEAST)
    color = {"base": "ribbon-base", "gone": "ribbon-gone", "new": "ribbon-new"}[style]
    return f'<rect class="{color}" x="{left:.2f}" y="{top}" width="{width:.2f}" height="{BAR}"/>'


def _band(left_a: float, left_b: float, width: float, top: int, bottom: int) -> str:
    width = max(width, _LEAST)
    middle = (top + bottom) / 2
    right_a, right_b = left_a + width, left_b + width
    return (
        f'<path class="ribbon" d="M{left_a:.2f} {top}C{left_a:.2f} {middle} {left_b:.2f} {middle} '
        f"{left_b:.2f} {bottom}H{right_b:.2f}C{right_b:.2f} {middle} {right_a:.2f} {middle} "
        f'{right_a:.2f} {top}Z"/>'
    )


_TELLING = ("simulated makespan", "critical path", "compute")


def verdicts(found: Difference, sections: Collection[str]) -> list[Answer]:
    """Return whether two programs are the same, communicate as much, and take as long.

    Args:
        found: What differs.
        sections: What the page has; a verdict links to nothing else.
    """
    made = [_program(found), *_communication(found), *_time(found)]
    return [
        Answer(one.question, one.answer, one.tone, one.reason, one.at if one.at in sections else "")
        for one in made
    ]


def _program(found: Difference) -> Answer:
    a, b = (sum(program.nodes[side] for program in found.programs) for side in (0, 1))
    aligned = sum(program.aligned for program in found.programs)
    differs = {"operators", "structure"} & set(found.differing)
    lacking = f"{a - aligned:,} are only in A and {b - aligned:,} only in B"
    reason = f"{aligned:,} nodes correspond, {lacking}."
    word, tone = ("no", "poor") if differs else ("yes", "good")
    at = "operators" if differs == {"operators"} else "structure"
    return Answer("Is it the same program?", word, tone, reason, at)


def _communication(found: Difference) -> Iterator[Answer]:
    if not found.communication:
        return
    counts = [sum(row.count[side] for row in found.communication) for side in (0, 1)]
    sizes = [
        figure_text("comm_bytes", sum(row.bytes[side] for row in found.communication))
        for side in (0, 1)
    ]
    differs = "communication" in found.differing
    reason = (
        f"A has {counts[0]:,} collectives and messages of {sizes[0]}, B has {counts[1]:,} of "
        f"{sizes[1]}."
    )
    word, tone = ("no", "fair") if differs else ("yes", "good")
    yield Answer("Does it communicate the same?", word, tone, reason, "communication")


def _time(found: Difference) -> Iterator[Answer]:
    known = {figure.name: figure for figure in found.times if figure.a and figure.b is not None}
    for name in _TELLING:
        if name in known:
            yield _as_long(known[name])
            return


def _as_long(figure: PairedValue) -> Answer:
    before, after = float(figure.a or 0), float(figure.b or 0)
    change = after / before - 1
    word = "yes" if abs(change) < 0.005 else f"{100 * change:+.3g} %"
    tone = "good" if abs(change) < 0.05 else "fair" if abs(change) < 0.5 else "poor"
    texts = [_time_text(value, figure.unit) for value in (before, after)]
    reason = f"The {figure.name} of A is {texts[0]}, that of B {texts[1]}."
    return Answer("Does it take as long?", word, tone, reason, "time")


def _time_text(value: float, unit: str) -> str:
    if unit != "us" or value < 1000:
        return f"{figure_text('', value)} {unit}"
    return f"{number(value / 1e3)} ms" if value < 1e6 else f"{number(value / 1e6)} s"


MOST_ROWS = 200
"""Tables on the page stop here; the JSON has all rows."""

_COLUMNS = {
    "flops": "Operations (FLOPs)",
    "bytes": "Bytes moved",
    "tensor_bytes": "Bytes of tensors",
    "comm_bytes": "Bytes communicated",
    "duration_us": "Duration (us)",
}
_MOST_PAGE_RIBBONS = 8
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
    found = replace(found, a=written_name(found.a), b=written_name(found.b))
    write_page(path, _render(found), (".json", json.dumps(found.summary(), indent=1) + "\n"))
    return path


def _render(found: Difference) -> str:
    differing = ", ".join(found.differing)
    sentence = f"differ in {differing}." if differing else "are equal in all that counts."
    # The page is handed on, so it says nothing of folders.
    lead = f"A is {Path(found.a).name}, B is {Path(found.b).name}. They {sentence}"
    if found.ignored:
        lead += f" Not counted: {', '.join(found.ignored)}."
    made = (
        ("structure", "Structure", _structure(found)),
        ("operators", "Operators", _operators(found)),
        ("communication", "Communication", _communication_section(found)),
        ("time", "Time", _times(found)),
        ("labels", "Labels", _labels(found)),
        ("summary", "In short", _summary(found)),
    )
    sections = [(name, title, section(name, title, *parts)) for name, title, parts in made if parts]
    there = {name for name, _, _ in sections}
    verdict = section("verdict", "Verdict", cards(verdicts(found, there)))
    return document("What differs", lead, [("verdict", "Verdict", verdict), *sections])


def _summary(found: Difference) -> list[Markup]:
    notes = [element("p", note) for note in found.notes]
    text = element("pre", "\n".join(lines(found)))
    shown = scrolling(text, "What differs, as the terminal shows it")
    return [*notes, element("details", element("summary", "As the terminal shows it"), shown)]


def _structure(found: Difference) -> list[Markup]:
    key = "Nodes in program order. Gray: only in A. Orange: only in B. Blue: aligned."
    parts = [element("p", key)]
    parts += [ribbon(program) for program in found.programs[:_MOST_PAGE_RIBBONS]]
    hidden = len(found.programs) - _MOST_PAGE_RIBBONS
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
    yield operator.name
    yield from map(_count, (*operator.count, operator.changed))
    for name in columns:
        for value in operator.numbers[name]:
            yield "—" if value is None else figure_text(name, value)


def _communication_section(found: Difference) -> list[Markup]:
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
    rows = [
        (figure.name, *("—" if x is None else figure_text("", x) for x in (figure.a, figure.b)),
         figure.unit)
        for figure in found.times
    ]  # fmt: skip
    caption = "Sums of durations over one rank of each kind; the longest path of any rank"
    return _table(caption, ("What", "A", "B", "Unit"), rows, 1, 2)


def _labels(found: Difference) -> list[Markup]:
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
    return name.replace(" ", "\N{NO-BREAK SPACE}").replace("-", "\N{NON-BREAKING HYPHEN}")


def _count(value: int) -> str:
    return f"{value:,}"
