"""The page of ``layerdag explore``, with a CSV and a JSON file of every outcome beside it."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from layerdag.report.charts import front_chart, heat_map
from layerdag.report.page import document, require_replaceable_page, write_page
from layerdag.viz.html import Markup, element, joined, number, percent, section, table
from layerdag.workloads.exploration import Exploration, PlanOutcome

MOST_ROWS = 300
"""The table of all outcomes on the page stops here; CSV and JSON have them all."""

_COLORS = 8


def require_replaceable_exploration(path: str | Path) -> None:
    """Raise UsageError if the files of a page would replace something else."""
    require_replaceable_page(
        path, "an exploration", {"outcomes", "pareto_front"}, (".json", ".csv")
    )


def write_exploration(found: Exploration, path: str | Path) -> Path:
    """Write the page to ``path`` and all outcomes to the same name with .json and .csv.

    Returns:
        ``path``.

    Raises:
        UsageError: If one of the three would replace something that is not of an exploration.
    """
    path = Path(path)
    require_replaceable_exploration(path)
    table = io.StringIO()
    rows = [outcome.row() for outcome in found.outcomes]
    writer = csv.DictWriter(table, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    summary = json.dumps(found.summary(), indent=1) + "\n"
    write_page(path, _render(found), (".csv", table.getvalue()), (".json", summary))
    return path


def _render(found: Exploration) -> str:
    too_large = sum(not outcome.fits for outcome in found.outcomes)
    lead = (
        f"{len(found.outcomes)} plans, {len(found.simulated)} of them simulated; {too_large} need "
        "more memory than an accelerator has. No step was run: operations and messages follow from "
        "the model's shape, times from a roofline, and from collectives as the notes below say."
    )
    models = list(dict.fromkeys(outcome.model for outcome in found.outcomes))
    sections = [
        ("best", "Best plans", _best(found)),
        ("maps", "Heat maps", _maps(found, models)),
        ("front", "Pareto front", _front(found, models)),
        ("all", "All outcomes", _all(found)),
    ]
    return document("Which plan, on which cluster?", lead, sections)


def _best(found: Exploration) -> Markup:
    rows = [
        (
            f"{outcome.model} on {outcome.cluster}", f"{outcome.ranks:,}", outcome.plan,
            number(outcome.step_s), number(outcome.tokens_per_s), percent(outcome.utilization),
            percent(outcome.forecast_utilization),
            percent((outcome.exposed_s or 0.0) / (outcome.step_s or 1.0)),
            f"{outcome.memory_gib:,.1f}", f"{outcome.margin_gib:,.1f}",
            number(outcome.cost) if outcome.cost else "—",
        )
        for outcome in found.best()
    ]  # fmt: skip
    head = ("Model and cluster", "Ranks", "Plan", "Seconds per step", "Tokens per second",
        "Utilization", "Forecast", "Exposed", "Memory, GiB", "Left, GiB",
        "Cost of a step")  # fmt: skip
    caption = (
        "The fastest plan of each model on each cluster: seconds and cost of a step, utilization "
        "of the peak FLOPs (recomputation not counted), what measured steps of the device forecast "
        "of it, share of exposed communication and idle time, memory of the fullest rank"
    )
    told = joined(element("p", sentence) for sentence in found.assumptions)
    best = table(caption, head, rows, 1, 3, 4, 5, 6, 7, 8, 9, 10)
    return section("best", "Best plans", joined((best, told)))


def _maps(found: Exploration, models: Sequence[str]) -> Markup:
    return section("maps", "Heat maps", joined(_each_map(found, models)))


def _each_map(found: Exploration, models: Sequence[str]) -> Iterator[Markup]:
    rows, columns = _axes(found)
    fastest = {(best.model, best.cluster): best.step_s or 0.0 for best in found.best()}
    for model in models:
        least = min((time for (name, _), time in fastest.items() if name == model), default=0.0)
        for cluster in found.study.clusters:
            mine = [o for o in found.outcomes if (o.model, o.cluster) == (model, cluster)]
            best = fastest.get((model, cluster), 0.0)
            slower = f", {best / least:.3g} times the fastest cluster" if best > least else ""
            if mine:
                yield element("h3", f"{model} on {cluster}{slower}")
                yield heat_map(mine, rows, columns, best)


def _axes(found: Exploration) -> tuple[str, str]:
    names = ("pipeline", "tensor", "zero", "micro_batches", "context", "expert")
    counts = {name: len({o.settings[name] for o in found.outcomes}) for name in names}
    chosen = sorted(names, key=lambda name: (counts[name] < 2, names.index(name)))[:2]
    return chosen[0], chosen[1]


def _front(found: Exploration, models: Sequence[str]) -> Markup:
    clusters = found.study.clusters
    priced = all(cluster.cost_per_hour for cluster in clusters.values())
    slot_of = {name: min(i, _COLORS - 1) for i, name in enumerate(clusters)}
    front = found.pareto_front()
    what = "cost" if priced else "memory"
    parts = [element("p", f"No other plan is better than these in both time and {what}.")]
    for model in models:
        mine = [outcome for outcome in found.simulated if outcome.model == model]
        best = [outcome for outcome in front if outcome.model == model]
        if mine:
            parts += [element("h3", model), front_chart(mine, best, slot_of, priced)]
            parts += [_legend(slot_of), _front_table(best)]
    return section("front", "Pareto front", joined(parts))


def _legend(slot_of: dict[str, int]) -> Markup:
    dot = (
        '<svg viewBox="0 0 12 12" aria-hidden="true"><circle class="k{}" cx="6" cy="6" r="5"/>'
        "</svg>"
    )
    items = (
        element("li", Markup(dot.format(slot)), element("span", name))
        for name, slot in slot_of.items()
    )
    return element("ul", *items, class_="legend")


def _front_table(front: Sequence[PlanOutcome]) -> Markup:
    rows = [
        (outcome.cluster, outcome.plan, number(outcome.step_s), f"{outcome.memory_gib:,.1f}",
         number(outcome.cost) if outcome.cost else "—")
        for outcome in front
    ]  # fmt: skip
    head = ("Cluster", "Plan", "Seconds per step", "GiB, fullest rank", "Cost of a step")
    return table("Plans on the front", head, rows, 2, 3, 4)


def _all(found: Exploration) -> Markup:
    rows = [
        (f"{o.model} on {o.cluster}", o.plan, number(o.step_s), f"{o.memory_gib:,.1f}", _note(o))
        for o in found.outcomes[:MOST_ROWS]
    ]
    head = ("Model and cluster", "Plan", "Seconds per step", "GiB, fullest rank", "Note")
    hidden = len(found.outcomes) - len(rows)
    more = f" (the first {len(rows)}; {hidden} more in the CSV beside this page)" if hidden else ""
    shown = table(
        f"Every plan on every cluster: {len(found.outcomes)} outcomes{more}", head, rows, 2, 3
    )
    reasons = [(reason, str(count)) for reason, count in found.left_out.items()]
    left = [table("Plans that cannot be", ("Reason", "Plans"), reasons, 1)] if reasons else []
    return section("all", "All outcomes", shown, *left)


def _note(outcome: PlanOutcome) -> str:
    return outcome.error or ("" if outcome.fits else "too large for its memory")
