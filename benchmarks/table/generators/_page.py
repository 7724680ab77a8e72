"""The page of all generators, from the files of their runs alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from .._page import Row, conditions_of, number, rows_of, share, table
from .._runs import Record
from ._tasks import LEFT_OUT
from ._words import AFTER, BEFORE, FIGURES, TASKS, THIRD, TITLE

COPIES = "resampler"
"""Learner that makes no new graphs; it is never the best."""


@dataclass(frozen=True)
class Column:
    """A figure of the page.

    Attributes:
        name: In the words about it.
        value: Returns it from a row; None where there is none.
        text: Returns what the table says.
        loss: Returns how bad a value is, given that of real graphs.
    """

    name: str
    value: Callable[[Row], float | None]
    text: Callable[[Row], str]
    loss: Callable[[float, float], float]


def page_of(name: str, records: Sequence[Record], titles: Mapping[str, str]) -> str:
    """Return the page.

    Args:
        name: Of the table.
        records: All of its runs.
        titles: Of the learners, in their order.
    """
    tasks = [task for task in TASKS if any(r.run.config["task"] == task for r in records)]
    parts = [f"# {TITLE}", BEFORE]
    for task in tasks:
        rows = {name: row for name, row in rows_of(records, task).items() if _has_figures(row)}
        parts += [f"## {TASKS[task]}", _table(rows, titles)]
        parts += _missing(task, rows, titles)
    parts += ["## How it was made", conditions_of(records), _choice(records)]
    made = (
        f"This page is made from `benchmarks/results/{name}.jsonl` by "
        f"`python -m benchmarks.table {name} "
        f"--page`; `python -m benchmarks.table {name} --seconds 90 --seeds 1 --trials 2 --tpu-tile "
        "FOLDER --na-edge FOLDER --amp FOLDER` makes the runs that are missing there."
    )
    return "\n\n".join([*parts, made]) + "\n"


def _has_figures(row: Row) -> bool:
    return all("ratio" in one for one in row.figures)


def _share_column(key: str) -> Column:
    def value(row: Row) -> float:
        successes, trials = row.count(key)
        return successes / trials

    def text(row: Row) -> str:
        return share(*row.count(key))

    return Column(key, value, text, lambda value, real: -value)


def _ratio(row: Row) -> float | None:
    found = [one["ratio"] for one in row.figures]
    return None if None in found else mean(found)


def _local(name: str, place: int = 0) -> Callable[[Row], float | None]:
    def value(row: Row) -> float | None:
        found = [one["local"].get(name) for one in row.figures]
        if any(one is None or one[place] is None for one in found):
            return None
        return mean(one[place] for one in found)

    return value


def _nearest(name: str) -> Column:
    """Return the column of a share of nodes, best where it is nearest to that of real graphs."""
    value = _local(name)

    def text(row: Row) -> str:
        found = value(row)
        return "" if found is None else f"{100 * found:.1f}"

    return Column(name, value, text, lambda value, real: abs(value - real))


def _distance(name: str) -> Column:
    """Return the column of a distance, with its ratio to that of as many training graphs."""
    value, real = _local(name), _local(name, 3)

    def text(row: Row) -> str:
        found, other = value(row), real(row)
        return (
            "" if found is None else f"{number(found)} ({number(found / other)})" if other else ""
        )

    return Column(name, value, text, lambda value, real: value)


def _shared(row: Row) -> float | None:
    found = [one.get("shared") for one in row.figures]
    return None if None in found else mean(one[0] for one in found if one)


def _shared_text(row: Row) -> str:
    value = _shared(row)
    return "" if value is None else f"{100 * value:.0f}"


COLUMNS = (
    _share_column("vun"),
    _share_column("valid"),
    Column(
        "ratio",
        _ratio,
        lambda row: "" if _ratio(row) is None else number(_ratio(row) or 0.0),
        lambda value, real: value,
    ),
    _nearest("neighborhood_novelty:1"),
    _nearest("neighborhood_novelty:2"),
    _nearest("neighborhood_repetition:1"),
    _nearest("neighborhood_repetition:2"),
    _distance("type_hashes"),
    _distance("path_frequencies:3"),
    Column("shared", _shared, _shared_text, lambda value, real: abs(value - real)),
)


def _losses(column: Column, rows: Mapping[str, Row]) -> dict[str, float]:
    """Return how bad each learner's figure is, without real graphs and what only copies."""
    real = column.value(rows["real"]) if "real" in rows else None
    found = {name: column.value(row) for name, row in rows.items() if name not in ("real", COPIES)}
    return {
        name: column.loss(value, 0.0 if real is None else real)
        for name, value in found.items()
        if value is not None
    }


def _table(rows: Mapping[str, Row], titles: Mapping[str, str]) -> str:
    head = [
        "",
        *(FIGURES[column.name] for column in COLUMNS),
        "ms per sample",
        "parameters",
        "steps",
    ]
    best = {}
    for column in COLUMNS:
        losses = _losses(column, rows)
        best[column.name] = {n for n, loss in losses.items() if loss == min(losses.values())}
    named = {"real": "real graphs, of the validation part", **titles}
    lines = []
    for name in named:
        if name not in rows:
            continue
        row = rows[name]
        cells = [
            f"**{column.text(row)}**" if name in best[column.name] else column.text(row)
            for column in COLUMNS
        ]
        lines.append([named[name], *cells, *_spent(row)])
    return table(head, lines)


def _spent(row: Row) -> list[str]:
    """Return milliseconds per sample, parameters and steps, as far as they are known."""
    one = row.figures[0]
    time = f"{1000 * one['sampling_seconds']:.0f}" if "sampling_seconds" in one else ""
    parameters = f"{row.parameters:,}" if row.parameters else ""
    steps = f"{one['steps']:,}" if one.get("steps") else ""
    return [time, parameters, steps]


def _missing(task: str, rows: Mapping[str, Row], titles: Mapping[str, str]) -> list[str]:
    """Return which learners were not run, with reasons."""
    reasons = LEFT_OUT.get(task, {})
    missing = [
        f"{title} ({reasons[name]})" if name in reasons else title
        for name, title in titles.items()
        if name not in rows
    ]
    return [f"Not run: {'; '.join(missing)}."] if missing else []


def _choice(records: Sequence[Record]) -> str:
    """Return how settings were chosen."""
    made = [r.run.learner for r in records if r.run.config.get("part") == "trial"]
    most = max(map(made.count, made), default=0)
    return AFTER.format(trials=("no", "no", "two", "three")[most], third=THIRD if most > 2 else "")
