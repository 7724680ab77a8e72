"""The three verdicts on two programs, each with its reason in one sentence."""

from collections.abc import Collection, Iterator

from layerdag.report import Answer
from layerdag.viz import number
from layerdag.workloads.differences import Difference, Figure, figure_text

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
    """Return whether operators and dependencies are the same."""
    a, b = (sum(program.nodes[side] for program in found.programs) for side in (0, 1))
    aligned = sum(program.aligned for program in found.programs)
    differs = {"operators", "structure"} & set(found.differing)
    lacking = f"{a - aligned:,} are only in A and {b - aligned:,} only in B"
    reason = f"{aligned:,} nodes correspond, {lacking}."
    word, tone = ("no", "poor") if differs else ("yes", "good")
    at = "operators" if differs == {"operators"} else "structure"
    return Answer("Is it the same program?", word, tone, reason, at)


def _communication(found: Difference) -> Iterator[Answer]:
    """Yield whether as much is communicated, if anything is."""
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
    """Yield whether both take as long, by the most telling time that both have."""
    known = {figure.name: figure for figure in found.times if figure.a and figure.b is not None}
    for name in _TELLING:
        if name in known:
            yield _as_long(known[name])
            return


def _as_long(figure: Figure) -> Answer:
    """Return the verdict on one time."""
    before, after = float(figure.a or 0), float(figure.b or 0)
    change = after / before - 1
    word = "yes" if abs(change) < 0.005 else f"{100 * change:+.3g} %"
    tone = "good" if abs(change) < 0.05 else "fair" if abs(change) < 0.5 else "poor"
    texts = [_time_text(value, figure.unit) for value in (before, after)]
    reason = f"The {figure.name} of A is {texts[0]}, that of B {texts[1]}."
    return Answer("Does it take as long?", word, tone, reason, "time")


def _time_text(value: float, unit: str) -> str:
    """Return a time, microseconds as the unit that people read."""
    if unit != "us" or value < 1000:
        return f"{figure_text('', value)} {unit}"
    return f"{number(value / 1e3)} ms" if value < 1e6 else f"{number(value / 1e6)} s"
