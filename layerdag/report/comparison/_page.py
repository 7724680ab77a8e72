"""The page itself, with the figures beside it as JSON."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from layerdag._runtime import write_text
from layerdag.report import AS_REAL, CLOSE, document, require_replaceable_page
from layerdag.report.comparison._reading import ReportedRun
from layerdag.report.sections import attack_words, summary_words
from layerdag.viz import Markup, element, joined, number, section, table, text

_TONES = ("good", "fair", "poor")
_ATTACK_TONES = {"tells training graphs apart": "poor", "no better than chance": "good"}
_NONE = "—"


def require_replaceable_comparison(path: str | Path) -> None:
    """Raise UsageError if the files of a page would replace something else."""
    require_replaceable_page(path, "a comparison", {"runs", "verdicts", "ratios"})


def write_comparison(runs: Sequence[ReportedRun], path: str | Path) -> Path:
    """Write the page to ``path`` and its figures to the same name with .json; return ``path``.

    Raises:
        UsageError: If one of the two would replace something that is not of a comparison.
    """
    path = Path(path)
    require_replaceable_comparison(path)
    figures = json.dumps(comparison_figures(runs), indent=1, allow_nan=False)
    write_text(path.with_suffix(".json"), figures + "\n")
    write_text(path, _render(runs))
    return path


def comparison_figures(runs: Sequence[ReportedRun]) -> dict[str, object]:
    """Return verdicts, ratios and lines of the summary by run, as plain data."""
    return {
        "runs": [run.name for run in runs],
        "verdicts": {
            question: {run.name: run.answers.get(question, {}).get("answer") for run in runs}
            for question in _keys(runs, lambda run: run.answers)
        },
        "ratios": {
            what: {run.name: run.ratios.get(what) for run in runs}
            for what in _keys(runs, lambda run: run.ratios)
        },
        "summary": {
            what: {run.name: run.summary.get(what) for run in runs}
            for what in _keys(runs, lambda run: run.summary)
        },
    }


def _render(runs: Sequence[ReportedRun]) -> str:
    """Return the page as one HTML document."""
    made = (
        ("verdict", "Verdicts", [*_verdicts(runs)]),
        ("made", "How they were made", [*_provenance(runs)]),
        ("similarity", "Similarity", [*_ratios(runs)]),
        ("membership", "Membership attacks", [*_attacks(runs)]),
        ("summary", "Summary", [*_summary(runs)]),
    )
    sections = [(name, title, section(name, title, *parts)) for name, title, parts in made if parts]
    lead = f"The reports of {len(runs)} runs side by side: {', '.join(run.name for run in runs)}."
    return document("Runs compared", lead, sections)


def _keys(
    runs: Sequence[ReportedRun], of: Callable[[ReportedRun], Mapping[str, object]]
) -> list[str]:
    """Return the names that any run has, in the order of the first one that has them."""
    return list(dict.fromkeys(name for run in runs for name in of(run)))


def _verdicts(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
    """Yield the table of verdicts, the reason below each."""
    questions = _keys(runs, lambda run: run.answers)
    rows = [(question, *(_verdict(run, question) for run in runs)) for question in questions]
    if rows:
        yield table("What each report says first", ("question", *_names(runs)), rows)


def _verdict(run: ReportedRun, question: str) -> Markup | str:
    """Return the verdict of a run as a word in its color, and why."""
    one = run.answers.get(question)
    if one is None:
        return _NONE
    tone = one.get("tone", "")
    style = f"verdict {tone}" if tone in _TONES else "verdict"
    word = element("span", str(one.get("answer", "")), class_=style)
    reason = element("span", str(one.get("reason", "")), class_="quiet")
    return joined([word, Markup("<br>"), reason])


def _provenance(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
    """Yield what differs in how the runs were made, and what is equal in a sentence."""
    labels = _keys(runs, lambda run: run.provenance)
    values = {label: [run.provenance.get(label, _NONE) for run in runs] for label in labels}
    rows = [(label, *found) for label, found in values.items() if len(set(found)) > 1]
    equal = [f"{label} ({found[0]})" for label, found in values.items() if len(set(found)) == 1]
    if rows:
        yield table("What differs", ("how", *_names(runs)), rows)
    if equal:
        yield element("p", f"Equal in all: {', '.join(equal)}.", class_="quiet")


def _ratios(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
    """Yield the ratios of each metric, those first in which the runs differ most."""
    names = _keys(runs, lambda run: run.ratios)
    if not names:
        return
    yield element(
        "p",
        "Distance from held-out graphs, divided by that of as many training graphs: 1 is as near "
        "as real graphs are. Runs differ most in what stands first.",
    )
    rows = [
        (name, *(_ratio(run.ratios.get(name)) for run in runs))
        for name in sorted(names, key=lambda name: -_spread(runs, name))
    ]
    columns = range(1, 1 + len(runs))
    yield table("Ratio at equal count", ("what is compared", *_names(runs)), rows, *columns)


def _spread(runs: Sequence[ReportedRun], name: str) -> float:
    """Return how many times the largest ratio of a metric is the smallest."""
    found = [run.ratios[name] for run in runs if name in run.ratios]
    return max(found) / max(min(found), 1e-9)


def _ratio(value: float | None) -> Markup | str:
    """Return a ratio in the color of its verdict."""
    if value is None:
        return _NONE
    tone = "good" if value <= AS_REAL else "fair" if value <= CLOSE else "poor"
    return element("span", number(value, 2), class_=tone)


def _attacks(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
    """Yield the attacks on all samples of each run."""
    names = _keys(runs, lambda run: run.attacks)
    rows = [
        (
            "Nearer to training" if name == "nearness" else attack_words(name),
            *(_attack(run, name) for run in runs),
        )
        for name in names
    ]
    if rows:
        caption = "Share or area under the curve with its 95 % interval; .5 is chance"
        yield table(caption, ("attack", *_names(runs)), rows)


def _attack(run: ReportedRun, name: str) -> Markup | str:
    """Return the figure of an attack, and its verdict below."""
    one = run.attacks.get(name)
    if one is None:
        return _NONE
    between = one["interval"]
    figure = f"{number(one['auc'], 2)} [{number(between['low'], 2)}, {number(between['high'], 2)}]"
    word = str(one["verdict"])
    pill = element("span", word, class_=f"verdict {_ATTACK_TONES.get(word, 'fair')}")
    return joined([text(figure), Markup("<br>"), pill])


def _summary(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
    """Yield the lines of the summaries."""
    names = _keys(runs, lambda run: run.summary)
    rows = [
        (summary_words(name), *(run.summary.get(name, _NONE) for run in runs)) for name in names
    ]
    if rows:
        columns = range(1, 1 + len(runs))
        yield table("The figure of the samples", ("figure", *_names(runs)), rows, *columns)


def _names(runs: Sequence[ReportedRun]) -> tuple[str, ...]:
    return tuple(run.name for run in runs)
