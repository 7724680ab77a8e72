"""Pages: the templates they are made of, how they are written, and the page of a report."""

import dataclasses
import json
import math
from collections.abc import Iterable
from enum import Enum
from functools import cache
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from layerdag.dag.dag import DAG
from layerdag.differences.difference import counts_text, figure_text
from layerdag.errors import UsageError
from layerdag.evaluation.metrics.base import Declaration
from layerdag.evaluation.validity import GRAPH_RULES, StructureReport
from layerdag.privacy.copies import DistanceToClosestRecord
from layerdag.privacy.membership import FALSE_POSITIVE_RATE, LOW_RATES, AttackResult
from layerdag.report import charts, words
from layerdag.report.content import AS_REAL, CLOSE, ReportContent
from layerdag.runtime.files import settle, write_files
from layerdag.statistics import MARGIN, Verdict
from layerdag.surrogates.scoring import SCORES
from layerdag.version import __version__
from layerdag.viz.drawing import CLASS_COLORS
from layerdag.viz.numbers import interval, number, percent, percents

FORMAT = "layerdag-report/1"
"""In the JSON, which a schema describes; another number says that something means another thing."""

STRIP_LOW, STRIP_HIGH = 0.25, 16.0
"""Ratios at the ends of the strip beside them in a table."""


@cache
def _templates() -> Environment:
    """Return the templates, with all that they show figures by as filters."""
    found = Environment(
        loader=PackageLoader("layerdag.report"),
        autoescape=True,
        undefined=StrictUndefined,
        extensions=["jinja2.ext.do"],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    every = (
        number, percent, percents, interval, on_strip, unbroken, counts_text, figure_text,
        words.attack_words, words.ceiling_words, words.condition_words, words.family_words,
        words.fits, words.metric_words, words.score_words, words.summary_words,
        charts.distribution_chart, charts.front_chart, charts.graph_chart, charts.ribbon_chart,
        charts.shares_chart, charts.timeline_chart,
    )  # fmt: skip
    found.filters |= {function.__name__: function for function in every}
    found.filters["thousands"] = "{:,}".format
    return found


def page(template: str, title: str, lead: str, **values: object) -> str:
    """Return a page, which needs nothing from anywhere.

    Args:
        template: Name of a file in ``templates/``.
        title: Its heading.
        lead: A sentence or two below it.
        **values: What the template shows.
    """
    found = _templates().get_template(template)
    return found.render(title=title, lead=lead, links=[], version=__version__, **values)


def on_strip(ratio: float) -> str:
    """Return where a ratio stands on its strip of 120 pixels, which is logarithmic."""
    inside = min(max(ratio, STRIP_LOW), STRIP_HIGH)
    return f"{4 + 112 * math.log(inside / STRIP_LOW) / math.log(STRIP_HIGH / STRIP_LOW):.1f}"


def unbroken(name: str) -> str:
    """Return a name that no line ends in."""
    return name.replace(" ", "\N{NO-BREAK SPACE}").replace("-", "\N{NON-BREAKING HYPHEN}")


def require_replaceable_report(path: str | Path) -> None:
    """Raise UsageError if a page or its figures would replace a file that is none of a report."""
    if not Path(path).name:
        raise UsageError(f"'{path}' is no name of a page; write a path that ends in .html.")
    settle(path)
    figures = Path(path).with_suffix(".json")
    if figures == Path(path):
        raise UsageError(f"{path}: the figures of the page get this name; end the page's in .html.")
    if not figures.exists():
        if Path(path).is_file():
            raise UsageError(
                f"{path}: has no figures beside it ({figures.name}), so it is no report of "
                "layerdag and never replaced; give the page another name, or move the file away."
            )
        return
    if not {"title", "lead", "summary"} <= _keys_of(figures):
        raise UsageError(
            f"{figures}: the figures of the page {Path(path).name} belong there, but it holds "
            "something else, which is never replaced; give the page another name."
        )


def _keys_of(figures: Path) -> set[str]:
    """Return the names in a JSON object; none if the file holds something else."""
    try:
        content = json.loads(figures.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return set()
    return set(content) if isinstance(content, dict) else set()


def require_replaceable_page(
    path: str | Path, kind: str, keys: Iterable[str], beside: Iterable[str] = (".json",)
) -> None:
    """Refuse to write a page where something stands that is not of its kind.

    Args:
        path: Of the page.
        kind: What it is of, with its article: "a comparison".
        keys: That its figures, the ``.json`` file beside it, always have.
        beside: Endings of the files that are written beside the page.

    Raises:
        UsageError: If the page has another ending than .html, or would replace something else.
    """
    path = Path(path)
    if path.suffix != ".html":
        raise UsageError(f"{path}: the page of {kind} is a .html file; name it so.")
    settle(path)
    files = (path, *(path.with_suffix(suffix) for suffix in beside))
    there = [file for file in files if file.exists()]
    if not there:
        return
    if not set(keys) <= _keys_of(path.with_suffix(".json")):
        raise UsageError(
            f"{there[0]}: the page of {kind} and its figures belong there, but what is there is "
            "not of one, and is never replaced; choose another name."
        )


def write_page(path: Path, page: str, *beside: tuple[str, str]) -> None:
    """Write a page and the files beside it, so that they are always of one result.

    Args:
        path: Of the page. An old one stands until the new one takes its place.
        page: The page.
        *beside: Ending and text of each other file: ``(".json", figures)``. The last one is missing
            while the others change (`write_files`), so that no page stands beside foreign figures.

    Raises:
        UsageError: If ``path`` is a folder, or another process is just writing the page.
        OSError: If the disk is full, or the place cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file.")
    files = [(path.with_suffix(ending), text.encode()) for ending, text in beside]
    write_files(path, [(path, page.encode()), *files])


def write_report(content: ReportContent, path: str | Path) -> Path:
    """Write the page to ``path`` and its figures to the same name with ``.json``; return ``path``.

    Both are self-contained: no script, no font, no picture is loaded from elsewhere.

    Raises:
        GraphError: If a graph to be drawn has a cycle.
        UsageError: If the figures would replace a file of something else.
    """
    path = Path(path)
    require_replaceable_report(path)
    figures = json.dumps(report_figures(content), indent=1, allow_nan=False)
    write_page(path, render(content), (".json", figures + "\n"))
    return path


def report_figures(content: ReportContent) -> dict[str, object]:
    """Return the figures as ``report.json`` holds them (docs/reference/report.schema.json)."""
    found = plain(content)
    assert isinstance(found, dict)
    return {"format": FORMAT, **found}


def render(content: ReportContent) -> str:
    """Return the page as one HTML document.

    Raises:
        GraphError: If a graph to be drawn has a cycle.
    """
    drawn = (*content.pictures, *(p for n in content.neighbors for p in (n.real, n.sample)))
    slot_of = charts.classes_by_size(drawn)
    shown = [kind for job in content.timelines for lane in job.lanes for kind in lane.kind_S]
    for kind in shown:
        slot_of.setdefault(kind, min(len(slot_of), CLASS_COLORS - 1))
    categories = [words.categories_in_words(one) for one in content.shares]
    rows = () if content.similarity is None else content.similarity.rows
    computed = [row for row in rows if not row.generated.error]
    return page(
        "report.html",
        content.title,
        content.lead,
        content=content,
        slot_of=slot_of,
        shown_slots={kind: slot for kind, slot in slot_of.items() if kind in shown},
        distances=sorted(
            (row for row in computed if row.is_distance),
            key=lambda row: math.inf if row.matched_ratio is None else -row.matched_ratio,
        ),
        figures=[row for row in computed if not row.is_distance],
        varied=[one for one in categories if len(one.occurring) > 1],
        alike=[one for one in categories if len(one.occurring) == 1],
        scores=SCORES,
        graph_rules=GRAPH_RULES,
        as_real=AS_REAL,
        close=CLOSE,
        margin=MARGIN,
        false_positive_rate=f"{FALSE_POSITIVE_RATE:.0%}",
        low_rates=", ".join(f"{100 * rate:g}%" for rate in LOW_RATES),
        verdict_tones={
            Verdict.LEAKS: "poor",
            Verdict.TOO_FEW: "fair",
            Verdict.REVERSED: "fair",
            Verdict.CHANCE: "good",
        },
    )


def plain(value: object) -> object:
    """Return ``value`` as JSON-serializable data; NaN and infinities become None.

    Dataclasses become objects, arrays lists. Graphs and labels of nodes are left out: the JSON
    holds figures, not graphs.
    """
    if isinstance(value, DAG):
        return {"nodes": value.num_nodes, "edges": value.num_edges}
    if isinstance(value, Declaration | AttackResult | DistanceToClosestRecord | StructureReport):
        return plain(value.to_dict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.name not in ("label_N", "class_N", "kind_S", "start_ms_S", "end_ms_S")
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
