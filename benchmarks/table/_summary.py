"""All tables in one of at most ten rows, for README."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from ._page import Row, number, rows_of, share, table
from ._runs import Record
from .labels._gains import pooled
from .labels._label_quintile import pearson_of
from .labels._tpu_tile import FOLDS, TAUGHT, drawn_scores, fraction, mean_of, of_parts
from .training._curves_page import ACROSS, estimate, on_axis

MOST = 10
BEGIN, END = "<!-- summary of benchmarks/results -->", "<!-- end of the summary -->"
"""Lines of README between which the table stands."""


@dataclass(frozen=True)
class Line:
    """A row of the summary.

    Attributes:
        what: Measured, with its unit.
        ours: What came out, with its interval.
        other: A published figure, or what was made for comparison.
    """

    what: str
    ours: str
    other: str


Lines = Callable[[Sequence[Record]], list[Line]]


def lines_of(results: Mapping[str, Sequence[Record]]) -> list[tuple[str, Line]]:
    """Return the rows with the names of their tables; tables without runs have none.

    Args:
        results: Runs of each table.
    """
    found = [
        (name, line)
        for name, lines in LINES.items()
        if results.get(name)
        for line in lines(results[name])
    ]
    others = [name for name, records in results.items() if records and name not in LINES]
    return [*found, *((name, Line(f"{name}: see its page", "", "")) for name in others)][:MOST]


def summary_table(results: Mapping[str, Sequence[Record]], folder: str = "") -> str:
    """Return the table, its links relative to a folder, such as ``docs/results/``."""
    rows = [
        [line.what, line.ours, line.other, f"[{name}]({folder}{name}.md)"]
        for name, line in lines_of(results)
    ]
    return table(
        (
            "what is measured",
            "layerdag",
            "published, or for comparison",
            "table",
        ),
        rows,
    )


def with_summary(readme: str, results: Mapping[str, Sequence[Record]]) -> str:
    """Return README's text with the table between its two marks.

    Raises:
        ValueError: If a mark is not there once.
    """
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise ValueError(f"README.md: expected the lines {BEGIN!r} and {END!r} once each.")
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{summary_table(results, 'docs/results/')}\n{END}{after}"


def _latent_preferential(records: Sequence[Record]) -> list[Line]:
    rows = rows_of(records, "rho0")
    what = "Latent rule: samples that are valid, unique and new, %"
    if "fast" not in rows:
        return []
    once = f"; drawn once {_vun(rows['fast, one draw'])}" if "fast, one draw" in rows else ""
    return [Line(what, _vun(rows["fast"]) + once, "LayerDAG 56 ± 2")]


def _er_dag(records: Sequence[Record]) -> list[Line]:
    rows = rows_of(records, "er")
    if "fast" not in rows:
        return []
    other = "Directo 94; LayerDAG 21.5"
    longer = f"; three times as long {_vun(rows['fast_longer'])}" if "fast_longer" in rows else ""
    what = "Dense random DAGs: samples that are valid, unique and new, %"
    return [Line(what, _vun(rows["fast"]) + longer, other)]


def _vun(row: Row) -> str:
    return share(*row.count("vun"))


def _label_quintile(records: Sequence[Record]) -> list[Line]:
    found = []
    for task, title in (("scheduled_top", "latent-preferential"), ("tpu_tile_top", "TPU Tile")):
        mine = [r for r in records if r.run.config["task"] == task and r.run.learner != "real"]
        if mine:
            what = f"Labels beyond training, {title}: Pearson of surrogates of samples"
            other = ""
            if task == "tpu_tile_top":
                other = "LayerDAG 0.22 ± 0.11 on ten times the graphs"
            ours = pearson_of(mine, "label, as asked")
            if any("label, measured" in record.figures["rows"] for record in mine):
                ours += f"; labels measured by its scheduler {pearson_of(mine, 'label, measured')}"
            found.append(Line(what, ours, other))
    return found


def _few_real(records: Sequence[Record]) -> list[Line]:
    mine = [r.figures for r in records if r.run.config["task"] == "jobs"]
    if not mine:
        return []
    gains = [
        pooled([one["labels"]["of surrogates"]["gain"][family]["pearson"] for one in mine])
        for family in ("message_passing", "boosting")
    ]
    what = "Fifty real jobs and samples: gain in Pearson, message passing; trees"
    return [Line(what, "; ".join(gains), "")]


def _tpu_tile(records: Sequence[Record]) -> list[Line]:
    records, drawn = of_parts(records)
    made = "" if len(records) == FOLDS else f" ({len(records)} of {FOLDS} folds)"
    taught = fraction(drawn_scores(records, "boosting"), TAUGHT, "pearson")
    as_drawn = f"; as `layerdag sample` draws {_mean([*map(mean_of, drawn)])}" if drawn else ""
    what = f"TPU Tile in nine folds{made}"
    return [
        Line(
            f"{what}: Pearson of trees of samples, over that of real graphs",
            taught,
            "LayerDAG 0.87",
        ),
        Line(
            f"{what}: mean ratio of distances to real graphs",
            f"{_mean([*map(mean_of, records)])}{as_drawn}",
            "",
        ),
    ]


def _mean(values: Sequence[float]) -> str:
    """Return the mean over folds with Student's 95 % interval, without it for a single one."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return number(mean)
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
    half = float(student.ppf(0.975, len(values) - 1)) * spread
    return f"{number(mean)} [{number(mean - half)}, {number(mean + half)}]"


def _generators(records: Sequence[Record]) -> list[Line]:
    rows = rows_of(records, "tpu_tile")
    ratios = {
        name: _mean(known)
        for name, row in rows.items()
        if (known := [one["ratio"] for one in row.figures if one.get("ratio") is not None])
    }
    if "fast" not in ratios:
        return []
    others = [name for name in ratios if name.split(",")[0] not in ("fast", "real", "resampler")]
    best = min(others, key=lambda name: _least(rows[name]), default=None)
    beside = "" if best is None else f"the nearest of {len(others)} others: {best} {ratios[best]}"
    what = "Every generator after equal time, TPU Tile: mean ratio of distances"
    return [Line(what, ratios["fast"], beside)]


def _least(row: Row) -> float:
    return min(float(one["ratio"]) for one in row.figures)


def _predictors(records: Sequence[Record]) -> list[Line]:
    """Return the share of latencies within a tenth, of all families where that has been made."""
    for group, what, beside in (
        ("all", "13 families", "GraphSAGE 60.0, nn-Meter 99.0"),
        ("cg", "the split of DGRL", "no published figure found"),
    ):
        for record in records:
            config = record.run.config
            if (config["group"], config["label"], record.run.learner) == (
                group,
                "cortex",
                "boosting",
            ):
                shares = record.figures["scores"]["id"]["mean"]["within_10"]
                value, low, high = (100 * float(one) for one in shares)
                title = f"Latency of networks on a CPU, {what}: predicted within 10 %, %"
                return [Line(title, f"{value:.1f} [{low:.0f}, {high:.0f}]", beside)]
    return []


def _curves(records: Sequence[Record]) -> list[Line]:
    mine = [record for record in records if record.run.config["task"] == "tpu_tile"]
    points = on_axis(mine, ACROSS[0])
    real = estimate([record for record in mine if record.run.learner == "real"], "mean_ratio")
    if not points:
        return []
    found = [(steps, estimate(fits, "mean_ratio")) for steps, fits in (points[0], points[-1])]
    ours = "; ".join(f"{one.text()}" for _, one in found if one is not None)
    steps = " and ".join(f"{steps:,.0f}" for steps, _ in found)
    other = "" if real is None else f"real graphs drawn again {real.text()}"
    return [Line(f"TPU Tile after {steps} steps: mean ratio of distances", ours, other)]


LINES: Mapping[str, Lines] = {
    "latent-preferential": _latent_preferential,
    "er-dag": _er_dag,
    "label-quintile": _label_quintile,
    "few-real": _few_real,
    "tpu-tile": _tpu_tile,
    "generators": _generators,
    "predictors": _predictors,
    "curves": _curves,
    "ablations": lambda records: [],
}
