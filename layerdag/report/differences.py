"""The page of ``layerdag diff``."""

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from layerdag.differences.difference import Difference, figure_text, lines
from layerdag.graph.attributed_graph import written_name
from layerdag.report.content import Answer
from layerdag.report.page import page, require_replaceable_page, write_page
from layerdag.viz.numbers import number

MAX_ROWS = 200
"""Tables on the page stop here; the JSON has all rows."""

_COLUMNS = {
    "flops": "Operations (FLOPs)",
    "bytes": "Bytes moved",
    "tensor_bytes": "Bytes of tensors",
    "comm_bytes": "Bytes communicated",
    "duration_us": "Duration (us)",
}
_MAX_RIBBONS = 8
_MAX_WORDS = 12
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
    figure = next((known[name] for name in _TELLING if name in known), None)
    if figure is None:
        return
    before, after = float(figure.a or 0), float(figure.b or 0)
    change = after / before - 1
    word = "yes" if abs(change) < 0.005 else f"{100 * change:+.3g} %"
    tone = "good" if abs(change) < 0.05 else "fair" if abs(change) < 0.5 else "poor"
    texts = [_time_text(value, figure.unit) for value in (before, after)]
    reason = f"The {figure.name} of A is {texts[0]}, that of B {texts[1]}."
    yield Answer("Does it take as long?", word, tone, reason, "time")


def _time_text(value: float, unit: str) -> str:
    if unit != "us" or value < 1000:
        return f"{figure_text('', value)} {unit}"
    return f"{number(value / 1e3)} ms" if value < 1e6 else f"{number(value / 1e6)} s"


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
    present = {
        "structure": True,
        "operators": any(operator.differs for operator in found.operators),
        "communication": bool(found.communication),
        "time": bool(found.times),
        "labels": bool(found.labels),
    }
    sections = {name for name, there in present.items() if there}
    return page(
        "difference.html",
        "What differs",
        lead,
        found=found,
        answers=verdicts(found, sections),
        sections=sections,
        columns=_COLUMNS,
        lines=lines(found),
        most_rows=MAX_ROWS,
        most_ribbons=_MAX_RIBBONS,
        most_words=_MAX_WORDS,
    )
