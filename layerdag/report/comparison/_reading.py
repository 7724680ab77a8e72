"""The figures of reports that were written before."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerdag.errors import DataError, UsageError
from layerdag.report.sections import words_of_metric

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
    """Return the file with the figures."""
    if path.is_dir():
        return path / REPORT
    return path.with_suffix(".json") if path.suffix == ".html" else path


def _figures(file: Path) -> Mapping[str, Any]:
    """Return what the file holds."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise DataError(f"{file}: is larger than 200 MB, which no report is.")
        found = json.loads(file.read_text(encoding="utf-8"))
        run = ReportedRun("", found)
        # Everything that is read later is read once, so that what is damaged is told here.
        _ = (run.answers, run.ratios, run.provenance, run.summary, run.attacks)
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file; a report has its figures there.") from None
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file}: is no report of layerdag ({type(error).__name__}).") from error
    return run.figures


def _names(files: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths' folders that tell the files apart."""
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
