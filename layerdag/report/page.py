"""A report as one HTML page, and as JSON."""

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from enum import Enum
from importlib.resources import files
from pathlib import Path

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.errors import UsageError
from layerdag.evaluation.metrics.base import Declaration
from layerdag.evaluation.validity import StructureReport
from layerdag.privacy.copies import DistanceToClosestRecord
from layerdag.privacy.membership import AttackResult
from layerdag.report.content import Answer, ReportContent
from layerdag.report.sections import (
    distributions,
    membership,
    neighbors,
    pictures,
    provenance,
    similarity,
    simulation,
    summary,
    timelines,
    usefulness,
    validity,
)
from layerdag.runtime.files import settle, write_files
from layerdag.version import __version__
from layerdag.viz.html import Markup, element, joined, section, text

# A page needs nothing from anywhere, so it forbids itself everything but its own style.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, lead: str, sections: Sequence[tuple[str, str, Markup]]) -> str:
    """Return one HTML document.

    Args:
        title: Its heading.
        lead: A sentence or two below it.
        sections: Identifier, words of the link, and content of each.
    """
    links = (element("li", element("a", label, href=f"#{name}")) for name, label, _ in sections)
    head = element(
        "header",
        element("h1", title),
        element("p", lead, class_="lead"),
        element("nav", element("ul", *links), aria_label="Sections"),
    )
    main = element("main", *(part for _, _, part in sections), id="main")
    foot = element(
        "footer", f"Written by layerdag {__version__}. The figures lie beside this page as JSON."
    )
    skip = element("a", "Skip to the content", class_="skip", href="#main")
    style = (files("layerdag.report") / "style.css").read_text()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{text(title).html}</title><style>{style}</style></head>"
        f"<body>{joined((skip, head, main, foot)).html}</body></html>\n"
    )


_TONES = {"good": "answer tone-good", "fair": "answer tone-fair", "poor": "answer tone-poor"}
_WHERE = {
    "summary": "the summary",
    "membership": "membership attacks",
    "similarity": "similarity",
    "usefulness": "what predictors learned",
    "validity": "validity and novelty",
    "provenance": "provenance and limits",
}


def answers(content: ReportContent) -> Markup | None:
    """Return a card for each question."""
    return section("verdict", "Verdict", cards(content.answers)) if content.answers else None


def cards(every: Sequence[Answer]) -> Markup:
    """Return questions side by side, each with answer, reason, and a link to the figures."""
    return element("div", *map(_card, every), class_="answers")


def _card(one: Answer) -> Markup:
    link = element("a", f"Why: {_WHERE.get(one.at, one.at)}", href=f"#{one.at}")
    return element(
        "div",
        element("h3", one.question),
        element("p", one.answer, class_="word"),
        element("p", one.reason),
        *([element("p", link)] if one.at else []),
        class_=_TONES[one.tone],
    )


FORMAT = "layerdag-report/1"
"""In the JSON, which a schema describes; another number says that something means another thing."""

SECTIONS = (
    ("verdict", "Verdict", answers),
    ("summary", "Summary", summary),
    ("neighbors", "Samples and neighbors", neighbors),
    ("timelines", "Timelines", timelines),
    ("pictures", "Pictures", pictures),
    ("validity", "Validity", validity),
    ("membership", "Membership", membership),
    ("similarity", "Similarity", similarity),
    ("distributions", "Distributions", distributions),
    ("usefulness", "Usefulness", usefulness),
    ("simulation", "Simulation", simulation),
    ("provenance", "Provenance", provenance),
)


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
    try:
        content = json.loads(figures.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not {"title", "lead", "summary"} <= content.keys():
        raise UsageError(
            f"{figures}: the figures of the page {Path(path).name} belong there, but it holds "
            "something else, which is never replaced; give the page another name."
        )


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
    try:
        content = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not set(keys) <= content.keys():
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
    page = render(content)
    figures = json.dumps(report_figures(content), indent=1, allow_nan=False)
    write_page(path, page, (".json", figures + "\n"))
    return path


def report_figures(content: ReportContent) -> dict[str, object]:
    """Return the figures as ``report.json`` holds them (docs/reference/report.schema.json)."""
    found = plain(content)
    assert isinstance(found, dict)
    return {"format": FORMAT, **found}


def render(content: ReportContent) -> str:
    """Return the page as one HTML document."""
    made = [(name, label, make(content)) for name, label, make in SECTIONS]
    present = [(name, label, part) for name, label, part in made if part is not None]
    return document(content.title, content.lead, present)


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
