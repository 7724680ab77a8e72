"""What ``layerdag surrogate`` prints of scores and predictions."""

from collections.abc import Iterator

from layerdag.surrogates import Evaluation, ScoreEstimate

_COLUMNS = ("spearman", "mape", "within_10_percent")


def evaluation_lines(found: Evaluation) -> Iterator[str]:
    """Yield one line for each score and level, then a table of the groups."""
    for name, score in found.scores.items():
        yield f"  {name:18} {score.value:8.3g}{_around(score)}"
    for one in found.coverage:
        width = (
            f"upper end {one.width:.2f} times the lower"
            if one.is_factor
            else f"width {one.width:.3g}"
        )
        yield (
            f"  intervals of {one.level:.0%} hold {one.covered:.0%} of the targets "
            f"({one.interval.low:.0%} to {one.interval.high:.0%}); median {width}"
        )
    if found.groups:
        yield from _group_table(found)


def _group_table(found: Evaluation) -> Iterator[str]:
    """Yield a line for each group of graphs."""
    groups = found.groups or {}
    width = max(len(name) for name in [*groups, "group"])
    heads = "".join(f"{name:>19}" for name in _COLUMNS)
    level = next((one.level for one in found.coverage if one.level == 0.9), None)
    yield f"  {'group':{width}}  graphs{heads}" + ("   90 % held" if level else "")
    for name, one in groups.items():
        cells = "".join(f"{one.scores[column].value:19.3g}" for column in _COLUMNS)
        held = "".join(f"{c.covered:12.0%}" for c in one.coverage if c.level == level)
        yield f"  {name:{width}}  {one.graphs:6}{cells}{held}"


def _around(score: ScoreEstimate) -> str:
    """Return the interval of a score in brackets."""
    if score.interval is None:
        return ""
    return f"  ({score.interval.low:.3g} to {score.interval.high:.3g})"
