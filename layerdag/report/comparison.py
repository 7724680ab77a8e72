"""The page of ``layerdag runs``: several reports side by side."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerdag.errors import DataError, UsageError
from layerdag.report.content import AS_REAL, CLOSE
from layerdag.report.page import document, require_replaceable_page, write_page
from layerdag.report.sections import attack_words, summary_words, words_of_metric
from layerdag.runtime.json_shape import parse_json, plain_reason, require_shape
from layerdag.viz.html import Markup, element, joined, number, section, table, text

REPORT = "report.json"
_MOST_BYTES = 200 * 1024 * 1024


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """The report of a run.

    Attributes:
        name: What tells it from the others.
        figures: What its JSON holds (docs/reference/report.schema.json).
    """

    name: str
    figures: Mapping[str, Any]

    @property
    def answers(self) -> Mapping[str, Mapping[str, str]]:
        """The verdicts by their question."""
        return {str(one["question"]): one for one in self.figures.get("answers") or ()}

    @property
    def ratios(self) -> Mapping[str, float]:
        """The ratio at equal count of each metric, by what is compared."""
        similar = self.figures.get("similarity") or {}
        return dict(_ratios(similar.get("rows") or ()))

    @property
    def provenance(self) -> Mapping[str, str]:
        """How it was made."""
        return {str(label): str(value) for label, value in self.figures.get("provenance") or ()}

    @property
    def summary(self) -> Mapping[str, str]:
        """The figure of the samples in each line of the summary."""
        return {str(row["what"]): str(row["synthetic"]) for row in self.figures["summary"]}

    @property
    def attacks(self) -> Mapping[str, Mapping[str, Any]]:
        """The attacks on all samples by name, nearness first."""
        leaks = self.figures.get("leaks") or ()
        if not leaks:
            return {}
        near = {**leaks[-1]["nearness"], "what": "nearer to training than to held-out graphs"}
        near["auc"] = near["share"]
        return {"nearness": near, **{one["name"]: one for one in leaks[-1]["attacks"]}}


def read_reports(paths: Sequence[str | Path]) -> tuple[ReportedRun, ...]:
    """Read reports.

    Args:
        paths: ``report.json``, ``report.html`` beside one, or the folder of one, for each run.

    Raises:
        UsageError: If fewer than two are given, or two are the same.
        DataError: If one is not there, or is no report.
    """
    files = [_file(Path(path)) for path in paths]
    if len(files) < 2:
        raise UsageError("Name two reports or more, one for each run.")
    if len({file.resolve() for file in files}) < len(files):
        raise UsageError("Two of the reports are the same file; name each run once.")
    return tuple(
        ReportedRun(name, _figures(file)) for name, file in zip(_names(files), files, strict=True)
    )


def _file(path: Path) -> Path:
    if path.is_dir():
        return path / REPORT
    return path.with_suffix(".json") if path.suffix == ".html" else path


_SHAPE = {
    "summary": [{"what": str, "synthetic": str}],
    "answers?": ([{"question": str}], None),
    "provenance?": ([list], None),
    "similarity?": ({"rows?": ([dict], None)}, None),
    "leaks?": ([{"nearness": dict, "attacks": [{"name": str}]}], None),
}


def _figures(file: Path) -> Mapping[str, Any]:
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise DataError(f"{file}: is larger than 200 MB, which no report is.")
        found = parse_json(file.read_text(encoding="utf-8"))
        require_shape(found, _SHAPE)
        run = ReportedRun("", found)
        # Everything that is read later is read once, so that what is damaged is told here.
        _ = (run.answers, run.ratios, run.provenance, run.summary, run.attacks)
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file; a report has its figures there.") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}); check the file.") from None
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file}: is no report of layerdag ({plain_reason(error)}); write it again with the "
            "command that made the page."
        ) from error
    return run.figures


def _names(files: Sequence[Path]) -> list[str]:
    stems = [
        file.with_suffix("").parts if file.name != REPORT else file.parent.resolve().parts
        for file in files
    ]
    for depth in range(1, max(map(len, stems)) + 1):
        names = ["/".join(parts[-depth:]) for parts in stems]
        if len(set(names)) == len(names):
            return names
    return [str(file) for file in files]


def _ratios(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield what is compared, and its ratio at equal count where it has one."""
    for row in rows:
        matched, value = row["matched"], row["generated"]["value"]
        if matched and value is not None and math.isfinite(matched):
            metric = row["generated"]["metric"]
            title = words_of_metric(metric["name"], metric["what"])
            yield title, float(value) / float(matched)


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
    write_page(path, _render(runs), (".json", figures + "\n"))
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
    made = (
        ("verdict", "Verdicts", [*_verdicts(runs)]),
        ("made", "How they were made", [*_provenance(runs)]),
        ("similarity", "Similarity", [*_ratio_cells(runs)]),
        ("membership", "Membership attacks", [*_attacks(runs)]),
        ("summary", "Summary", [*_summary(runs)]),
    )
    sections = [(name, title, section(name, title, *parts)) for name, title, parts in made if parts]
    lead = f"The reports of {len(runs)} runs side by side: {', '.join(run.name for run in runs)}."
    return document("Runs compared", lead, sections)


def _keys(
    runs: Sequence[ReportedRun], of: Callable[[ReportedRun], Mapping[str, object]]
) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in of(run)))


def _verdicts(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
    questions = _keys(runs, lambda run: run.answers)
    rows = [(question, *(_verdict(run, question) for run in runs)) for question in questions]
    if rows:
        yield table("What each report says first", ("question", *_run_names(runs)), rows)


def _verdict(run: ReportedRun, question: str) -> Markup | str:
    one = run.answers.get(question)
    if one is None:
        return _NONE
    tone = one.get("tone", "")
    style = f"verdict {tone}" if tone in _TONES else "verdict"
    word = element("span", str(one.get("answer", "")), class_=style)
    reason = element("span", str(one.get("reason", "")), class_="quiet")
    return joined([word, Markup("<br>"), reason])


def _provenance(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
    labels = _keys(runs, lambda run: run.provenance)
    values = {label: [run.provenance.get(label, _NONE) for run in runs] for label in labels}
    rows = [(label, *found) for label, found in values.items() if len(set(found)) > 1]
    equal = [f"{label} ({found[0]})" for label, found in values.items() if len(set(found)) == 1]
    if rows:
        yield table("What differs", ("how", *_run_names(runs)), rows)
    if equal:
        yield element("p", f"Equal in all: {', '.join(equal)}.", class_="quiet")


def _ratio_cells(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
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
    yield table("Ratio at equal count", ("what is compared", *_run_names(runs)), rows, *columns)


def _spread(runs: Sequence[ReportedRun], name: str) -> float:
    found = [run.ratios[name] for run in runs if name in run.ratios]
    return max(found) / max(min(found), 1e-9)


def _ratio(value: float | None) -> Markup | str:
    if value is None:
        return _NONE
    tone = "good" if value <= AS_REAL else "fair" if value <= CLOSE else "poor"
    return element("span", number(value, 2), class_=tone)


def _attacks(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
    names = _keys(runs, lambda run: run.attacks)
    rows = [
        (
            "Nearer to training" if name == "nearness" else attack_words(name),
            *(_attack(run, name) for run in runs),
        )
        for name in names
    ]
    if rows:
        caption = "Share or AUROC with its 95 % interval; 0.5 is chance"
        yield table(caption, ("attack", *_run_names(runs)), rows)


def _attack(run: ReportedRun, name: str) -> Markup | str:
    one = run.attacks.get(name)
    if one is None:
        return _NONE
    between = one["interval"]
    figure = f"{number(one['auc'], 2)} [{number(between['low'], 2)}, {number(between['high'], 2)}]"
    word = str(one["verdict"])
    pill = element("span", word, class_=f"verdict {_ATTACK_TONES.get(word, 'fair')}")
    return joined([text(figure), Markup("<br>"), pill])


def _summary(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
    names = _keys(runs, lambda run: run.summary)
    rows = [
        (summary_words(name), *(run.summary.get(name, _NONE) for run in runs)) for name in names
    ]
    if rows:
        columns = range(1, 1 + len(runs))
        yield table("The figure of the samples", ("figure", *_run_names(runs)), rows, *columns)


def _run_names(runs: Sequence[ReportedRun]) -> tuple[str, ...]:
    return tuple(run.name for run in runs)
