"""The page of ``layerdag explore``, with a CSV and a JSON file of every outcome beside it."""

import csv
import io
import json
from pathlib import Path

from layerdag.report.page import page, require_replaceable_page, write_page
from layerdag.viz.drawing import CLASS_COLORS
from layerdag.workloads.exploration import Exploration

MAX_ROWS = 300
"""The table of all outcomes on the page stops here; CSV and JSON have them all."""

MAX_SHADE = 48
"""Percent of color in the cell of the fastest plan; more would leave too little contrast in the
dark."""

SLOWEST = 2.0
"""Times as slow as the fastest plan: no color any more."""


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
    clusters = found.study.clusters
    return page(
        "exploration.html",
        "Which plan, on which cluster?",
        lead,
        found=found,
        models=list(dict.fromkeys(outcome.model for outcome in found.outcomes)),
        axes=_axes(found),
        priced=all(cluster.cost_per_hour for cluster in clusters.values()),
        slot_of={name: min(i, CLASS_COLORS - 1) for i, name in enumerate(clusters)},
        most_rows=MAX_ROWS,
        slowest=SLOWEST,
        shade=shade,
    )


def _axes(found: Exploration) -> tuple[str, str]:
    """Return the two degrees of a heat map, those that vary first."""
    names = ("pipeline", "tensor", "zero", "micro_batches", "context", "expert")
    counts = {name: len({o.settings[name] for o in found.outcomes}) for name in names}
    chosen = sorted(names, key=lambda name: (counts[name] < 2, names.index(name)))[:2]
    return chosen[0], chosen[1]


def shade(step_s: float, best_s: float) -> str:
    """Return the percentage of color in the cell of a step time."""
    fraction = max(0.0, 1 - (step_s / best_s - 1) / (SLOWEST - 1)) if best_s else 0.0
    return f"{MAX_SHADE * fraction:.0f}"
