"""What ``layerdag surrogate`` prints of scores and predictions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from layerdag.graph import DAG
from layerdag.surrogates import (
    RELATIVE,
    Evaluation,
    OperatorErrors,
    ScoreEstimate,
    Surrogate,
    TransferReport,
)

_COLUMNS = ("spearman", "mape", "within_10_percent")


def prediction_rows(
    model: Surrogate, paths: Sequence[str], dags: Sequence[DAG], level: float
) -> Iterator[dict[str, Any]]:
    """Yield for each graph its path, the first target with its interval, and ``others``."""
    columns = [_columns(one, dags, level) for one in (model, *model.others)]
    for index, (path, strange) in enumerate(zip(paths, model.unfamiliar(dags), strict=True)):
        first, *others = ({key: one[key][index] for key in one} for one in columns)
        row: dict[str, Any] = {"path": path, model.target: first.pop("value"), **first}
        row["unfamiliar"] = strange
        if others:
            row["others"] = dict(zip(model.targets[1:], others, strict=True))
        yield row


def prediction_text(row: Mapping[str, Any], target: str) -> str:
    """Return one predicted number of a row with its interval in brackets."""
    found = row["others"][target] if target in row.get("others", ()) else row
    number = found.get("value", found.get(target))
    if "low" not in found:
        return f"{number:.6g}"
    around = f"{found['low']:.4g} to {found['high']:.4g}"
    return f"{number:.6g} ({100 * found['level']:.4g} % interval: {around})"


def _columns(one: Surrogate, dags: Sequence[DAG], level: float) -> dict[str, list[float]]:
    """Return what one surrogate predicts, a list for each column."""
    if one.calibration is None:
        return {"value": one.predict(dags).tolist()}
    found = one.predict_intervals(dags, level)
    ends = {"low": found.low_B.tolist(), "high": found.high_B.tolist()}
    return {"value": found.value_B.tolist(), **ends, "level": [level] * len(dags)}


def operator_lines(errors: OperatorErrors | None) -> Iterator[str]:
    """Yield one line for each figure of predicted operators; nothing without test jobs."""
    if errors is None:
        return
    yield f"on {errors.operators:,} operators of {errors.jobs} test jobs:"
    for name, (value, around) in errors.figures.items():
        shown = f"  ({around.low:.3g} to {around.high:.3g})" if around else ""
        yield f"  {name:18} {value:8.3g}{shown}"


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


def transfer_lines(report: TransferReport) -> Iterator[str]:
    """Yield one line for each family and condition, then what the rows say together."""
    yield f"tested on {report.tested_on} real graphs, seeds {', '.join(map(str, report.seeds))}"
    width = max(len(row.condition) for row in report.rows)
    for row in report.rows:
        figures = "  ".join(f"{name} {one.mean:7.3f}" for name, one in row.scores.items())
        yield f"{row.family:16} {row.condition:{width}}  {row.trained_on:5} graphs  {figures}"
    for reached in report.fractions:
        if reached.score in RELATIVE and reached.interval is not None:
            yield (
                f"{reached.family:16} synthetic reaches {reached.value:.0%} of the real "
                f"{reached.score} (95 % interval {reached.interval.low:.0%} to "
                f"{reached.interval.high:.0%})"
            )
    for gain in report.gains:
        if gain.score in RELATIVE and gain.interval is not None:
            yield (
                f"{gain.family:16} {gain.condition}: {gain.score} {gain.value:+.3f} beside the "
                f"real ones alone (95 % interval {gain.interval.low:+.3f} to "
                f"{gain.interval.high:+.3f})"
            )
    for one in report.conditional:
        off, off_real = (100 * found["mape"].mean for found in (one.synthetic, one.real))
        rank, rank_real = (found["spearman"].mean for found in (one.synthetic, one.real))
        yield (
            f"{one.family:16} fitted to real graphs: mean error {off:.0f} % on the labels of "
            f"samples, {off_real:.0f} % on those of real test graphs (spearman {rank:.3f} and "
            f"{rank_real:.3f})"
        )
