"""The page and the charts of quality over time, graphs and width, from the files of the runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean

import numpy as np
from scipy.stats import t as student

from .._page import Words, number, table
from .._runs import Record
from ._lines import Dot, Line, Panels, drawing

CLIPPED = {"copied": (0.0, 1.0), "new_neighborhoods": (0.0, 1.0), "mean_ratio": (0.0, np.inf)}
"""Ends beyond which no interval goes; correlations end at 1."""


@dataclass(frozen=True)
class Estimate:
    """A mean over draws of samples of all fits.

    Attributes:
        value: The mean.
        low: Lower end of its 95 % interval, the mean itself where one draw is all.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], name: str) -> "Estimate":
        """Return the mean with Student's interval, inside what the figure can be."""
        value = mean(values)
        if len(values) < 2:
            return cls(value, value, value)
        deviation = float(np.std(values, ddof=1))
        half = float(student.ppf(0.975, len(values) - 1)) * deviation / len(values) ** 0.5
        least, most = CLIPPED.get(name, (-1.0, 1.0))
        return cls(value, max(value - half, least), min(value + half, most))

    def text(self, scale: float = 1.0, digits: int = 2) -> str:
        """Return the value with its interval; without it if all draws agree."""
        if self.low == self.high:
            return number(scale * self.value, digits)
        low, high = (number(scale * end, digits) for end in (self.low, self.high))
        return f"{number(scale * self.value, digits)} [{low}, {high}]"


@dataclass(frozen=True)
class Across:
    """What is varied.

    Attributes:
        name: In the config of a run.
        unit: Of the horizontal axis and of the first column.
        fixed: What has its usual value at all points.
    """

    name: str
    unit: str
    fixed: tuple[str, ...]

    def titled(self, value: float) -> str:
        """Return a value in words."""
        return f"width {value:,.0f}" if self.name == "width" else f"{value:,.0f} {self.unit}"


ACROSS = (
    Across("steps", "steps of training", ("graphs", "width")),
    Across("graphs", "training graphs", ("steps", "width")),
    Across("width", "width", ("steps", "graphs")),
)


def value_of(record: Record, across: Across) -> float:
    """Return where a run stands on an axis."""
    shown = {"steps": "steps", "graphs": "seen", "width": "width"}[across.name]
    holder = record.run.config if across.name == "steps" else record.figures
    return float(holder[shown])


def on_axis(records: Sequence[Record], across: Across) -> list[tuple[float, list[Record]]]:
    """Return the fits of each point of an axis, from the least value on."""
    fits = [record for record in records if record.run.learner != "real"]
    usual = [record for record in fits if record.run.config["name"] == "usual"]
    if not usual:
        return []
    wanted = {name: usual[0].run.config[name] for name in across.fixed}
    mine = [
        record
        for record in fits
        if all(record.run.config[name] == value for name, value in wanted.items())
    ]
    mine.sort(key=lambda record: (value_of(record, across), record.run.seed))
    grouped = groupby(mine, key=lambda record: value_of(record, across))
    return [(value, list(group)) for value, group in grouped]


def estimate(records: Sequence[Record], name: str) -> Estimate | None:
    """Return the mean of a figure over all draws that have it; None where none has."""
    drawn = [draw.get(name) for record in records for draw in record.figures["draws"]]
    values = [float(value) for value in drawn if value is not None]
    return Estimate.of(values, name) if values else None


DRAWN = (("mean_ratio", 1, 2), ("copied", 100, 0), ("new_neighborhoods", 100, 1))
TAUGHT = (("pearson", 1, 2), ("spearman", 1, 2))


def table_of(records: Sequence[Record]) -> str:
    """Return the table of a data set: real graphs first, then the points of all axes.

    The usual point, which is on every axis, has the first row of fits.
    """
    head = [
        "fit", "processor seconds", "nats per graph", "mean ratio", "repeat training, %",
        "new neighborhoods, %", "Pearson", "Spearman", "real: Pearson", "real: Spearman", "fits",
    ]  # fmt: skip
    real = [record for record in records if record.run.learner == "real"]
    rows = [["real graphs", "", "", *_cells(real), "", "", ""]] if real else []
    points: dict[str, list[Record]] = {}
    for across in ACROSS:
        for value, fits in on_axis(records, across):
            is_usual = fits[0].run.config["name"] == "usual"
            points[_usual(fits) if is_usual else across.titled(value)] = fits
    first = sorted(points, key=lambda title: points[title][0].run.config["name"] != "usual")
    return table(head, [*rows, *(_row(title, points[title]) for title in first)])


def _usual(fits: Sequence[Record]) -> str:
    """Return what the usual fit has on all axes."""
    return ", ".join(across.titled(value_of(fits[0], across)) for across in ACROSS)


def _row(title: str, fits: Sequence[Record]) -> list[str]:
    return [
        title,
        f"{mean(fit.figures['fit_seconds'] for fit in fits):,.0f}",
        f"{mean(fit.figures['nats'] for fit in fits):.1f}",
        *_cells(fits),
        *(_of_real(fits, name) for name, _, _ in TAUGHT),
        str(len(fits)),
    ]


def _cells(records: Sequence[Record]) -> list[str]:
    found = [(estimate(records, name), scale, digits) for name, scale, digits in DRAWN + TAUGHT]
    return ["-" if one is None else one.text(scale, digits) for one, scale, digits in found]


def _of_real(records: Sequence[Record], name: str) -> str:
    values = [record.figures["real"][name] for record in records]
    known = [value for value in values if value is not None]
    return number(mean(known)) if known else "-"


def charts_of(records: Sequence[Record]) -> dict[str, str]:
    """Return the chart of each data set by the name of its file."""
    return {f"curves-{task}.svg": _chart(task, mine) for task, mine in by_task(records).items()}


def by_task(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the runs of each data set, in the order of the page."""
    found = {
        task: [record for record in records if record.run.config["task"] == task]
        for task in WORDS.tasks
    }
    return {task: mine for task, mine in found.items() if mine}


def _chart(task: str, records: Sequence[Record]) -> str:
    rows = [
        Panels(["nats per graph (validation)"], _nats(records), log=True),
        _panels(records, [("mean ratio of distances to test graphs", "mean_ratio")], log=True),
        _panels(
            records,
            [("copies of training graphs", "copied"), ("new neighborhoods", "new_neighborhoods")],
            ends=(0.0, 1.0),
        ),
        _panels(
            records, [("Pearson", "pearson"), ("Spearman of boosted trees", "spearman")], ends=None
        ),
    ]
    label = f"{WORDS.tasks[task]}: figures of samples over training time, graphs and width"
    return drawing(label, [across.unit for across in ACROSS], rows)


def _nats(records: Sequence[Record]) -> list[list[Line]]:
    found = []
    for across in ACROSS:
        means = [
            (value, mean(fit.figures["nats"] for fit in fits))
            for value, fits in on_axis(records, across)
        ]
        found.append([Line([Dot(value, nats, nats, nats) for value, nats in means])])
    return found


def _panels(
    records: Sequence[Record],
    lines: Sequence[tuple[str, str]],
    *,
    log: bool = False,
    ends: tuple[float, float] | None = None,
) -> Panels:
    """Return a row of panels.

    Args:
        records: Of a data set.
        lines: Title and figure of each.
        log: Of the vertical axis.
        ends: Of the vertical axis.
    """
    real = [record for record in records if record.run.learner == "real"]
    columns = []
    for across in ACROSS:
        column = []
        for _, name in lines:
            points = [(x, estimate(fits, name)) for x, fits in on_axis(records, across)]
            dots = [Dot(x, one.value, one.low, one.high) for x, one in points if one is not None]
            level = estimate(real, name)
            column.append(Line(dots, None if level is None else level.value))
        columns.append(column)
    return Panels([title for title, _ in lines], columns, log, ends)


def page_of(records: Sequence[Record], missing: Mapping[str, Sequence[str]]) -> str:
    """Return the page.

    Args:
        records: All runs.
        missing: Names of points by data set that no run has been made of.
    """
    parts = [f"# {WORDS.title}", WORDS.before]
    for task, mine in by_task(records).items():
        parts += [
            f"## {WORDS.tasks[task]}",
            f"![{WORDS.tasks[task]}: charts of the table below](../images/curves-{task}.svg)",
        ]
        parts.append(table_of(mine))
    parts += ["## How it was made", made_on(records), _draws(records), WORDS.published]
    if missing:
        names = [f"{WORDS.tasks[task]}: {', '.join(points)}" for task, points in missing.items()]
        parts.append(f"Not made yet: {'; '.join(names)}.")
    parts.append(MADE)
    return "\n\n".join(parts) + "\n"


def made_on(records: Sequence[Record]) -> str:
    """Return how many runs there are, their time and machine."""
    machine = records[0].hardware
    load = mean(record.hardware["load"][0] for record in records)
    spent = sum(record.processor_seconds for record in records) / 60
    return (
        f"{len(records)} runs in {spent:.0f} processor minutes of one thread ({machine['cores']} "
        f"shared {machine['machine']} cores without a GPU, load {load:.1f} in the mean, torch "
        f"{machine['torch']}). Steps are given; processor seconds are of the whole fit with its "
        "validations."
    )


def _draws(records: Sequence[Record]) -> str:
    """Return how many samples stand behind a figure, and what intervals are of."""
    fits = [record for record in records if record.run.learner != "real"]
    counts = {
        task: f"{mine[0].run.config['draws']} x {mine[0].run.config['samples']}"
        for task, mine in by_task(fits).items()
    }
    each = ", ".join(f"{count} ({WORDS.tasks[task]})" for task, count in counts.items())
    return (
        f"Samples of each fit: {each}; those with twice the nodes of the largest training graph "
        "are left out. Intervals are Student's, 95 %, over the draws of all fits of a point; they "
        "do not include what the few test graphs leave open."
    )


WORDS = Words(
    title="What do time, graphs and width buy?",
    before=(
        "How good samples of `fast` are over training time, the number of training graphs and the "
        "width of the model. The first fit of a table is the usual one; each other fit differs "
        "from it as its name says, and has a learning-rate schedule of its own. Samples are drawn "
        "once each for the conditions of the training graphs, with labels of the posterior.\n\n"
        "*Nats*: of a validation graph, without its conditions. *Mean ratio*: of seven distances "
        "to the test graphs (Wasserstein-1; total variation for operators) over those of all real "
        "training graphs. *New neighborhoods*: nodes whose neighborhood of radius 1 no real "
        "training graph has. *Pearson*, *Spearman*: of boosted trees that learned from samples and "
        "predict the labels of the test graphs; *real*: of trees that learned from the real graphs "
        "that the generator saw. Real graphs: training graphs drawn again, ten draws; their copies "
        "and neighborhoods are those of the test part."
    ),
    tasks={
        "tpu_tile": "TPU Tile, its validation file",
        "jobs": "Jobs of the corpus of at most 160 nodes",
    },
    published=(
        "Models that see few graphs still see all validation graphs, which choose the weights, "
        "and the words and bins of the whole training part; surrogates of jobs do not see "
        "durations. No paper that we know has such curves."
    ),
)

MADE = (
    "This page and its charts are made from `benchmarks/results/curves.jsonl` by `python -m "
    "benchmarks.table curves --page`; `python -m benchmarks.table curves --tpu-tile FOLDER` makes "
    "the runs that are missing there, of the jobs alone without the folder."
)
