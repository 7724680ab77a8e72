"""``ld.release``: the stages of a release, in order."""

import csv
import io
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.codec.vocabulary import find_leaked_strings
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.discovery import FoundJobs
from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import LABEL, SPLITS
from layerdag.privacy.copies import keys_of_one_run
from layerdag.publication.cross_fitting import (
    MIN_RUNS,
    RunRequirement,
    cross_fitted_if_affordable,
    dataset_of,
    needs_of,
    run_of_graphs,
    split_jobs,
)
from layerdag.publication.drawing import draw_samples, keys_of, published_conditions
from layerdag.publication.evaluation import (
    ReleaseDecision,
    ReleaseVerdict,
    evaluate_samples,
    too_few_runs,
    verdict_of,
)
from layerdag.publication.pages import (
    ReleaseFindings,
    data_card,
    held_out_alike,
    owners_content,
    public_content,
    read_me,
    split_unit,
)
from layerdag.publication.schedule import Schedule, TimeLeft
from layerdag.publication.settings import ReleaseSettings, read_jobs
from layerdag.publication.training import train_model
from layerdag.publication.workspace import (
    CARD,
    FOUND,
    MANIFEST,
    PUBLIC_READ_ME,
    REFUSED,
    RELEASE,
    REPORT,
    SAMPLES,
    TABLE,
    VERDICT,
    PrivateWorkspace,
    workspace_lock,
)
from layerdag.report.page import write_report
from layerdag.runtime.files import atomic_folder, discard_folder, write_text
from layerdag.runtime.notes import Note
from layerdag.runtime.reading import Limits
from layerdag.sampling.generated import GeneratedGraph
from layerdag.version import __version__


def write_release(
    work: PrivateWorkspace, results: ReleaseFindings, tell: Callable[[str], None]
) -> ReleaseFindings:
    """Write the release, or the report of why there is none."""
    settings = results.settings
    refused = work.path / REFUSED
    with atomic_folder(settings.out, RELEASE, overwrite=True) as draft:
        if results.kept:
            columns = _write_samples(results, draft)
            _write_about(results, draft, columns)
            foreign = [
                *(one.sentence() for one in find_leaked_strings(draft, results.jobs.private)),
                *_shared_numbers(results),
            ]
            if foreign:
                assert results.drawn is not None
                results = replace(
                    results,
                    verdict=verdict_of(
                        settings, results.drawn, results.evaluation, results.needs, foreign
                    ),
                )
        discard_folder(refused)
        if results.verdict.outcome is ReleaseDecision.NO:
            if (draft / SAMPLES).is_dir():
                shutil.move(draft / SAMPLES, refused)
            for name in (CARD, TABLE):
                (draft / name).unlink(missing_ok=True)
            _write_about(results, draft, None)
    write_report(owners_content(results), work.path / REPORT)
    flags = {"creator": settings.creator, "url": settings.url, "cite": settings.cite}
    missing = [
        f"--{name}" for name, value in (flags | {"license": settings.license}).items() if not value
    ]
    if missing and results.verdict.outcome is not ReleaseDecision.NO:
        tell(f"{CARD} does not say yet what {', '.join(missing)} would state")
    tell(f"report: {settings.out / REPORT}")
    tell(f"the owner's report, not to be shared: {work.path / REPORT}")
    if refused.is_dir():
        tell(f"the samples that were refused: {refused}")
    return results


def _write_about(results: ReleaseFindings, draft: Path, columns: list[str] | None) -> None:
    """Write report, verdict and manifest; the card where there are samples."""
    write_report(public_content(results), draft / REPORT)
    write_text(draft / VERDICT, results.verdict.line + "\n")
    manifest = {
        "layerdag_version": __version__,
        "released": results.verdict.outcome is not ReleaseDecision.NO,
        "verdict": results.verdict.line,
        "samples": len(results.kept) if columns else 0,
    }
    write_text(draft / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    if columns is not None:
        card = data_card(results, draft, columns)
        write_text(draft / CARD, json.dumps(card, indent=1) + "\n")
    write_text(draft / PUBLIC_READ_ME, read_me(results, has_samples=columns is not None))


def _write_samples(results: ReleaseFindings, draft: Path) -> list[str]:
    """Write the samples and the table of them; return its columns."""
    folder = draft / SAMPLES
    folder.mkdir()
    rows: list[dict[str, object]] = []
    for sample in results.kept:
        row: dict[str, object] = {
            "name": sample.name,
            "nodes": sample.dag.num_nodes,
            "edges": sample.dag.num_edges,
        }
        made = sample.made_files(sample.schema.kind.formats[0], None, Limits()).write(folder)
        if "ranks" in made:
            row["ranks"] = made["ranks"]
        rows.append({**row, **dict(published_conditions(sample))})
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(draft / TABLE, text.getvalue())
    return columns


def _shared_numbers(results: ReleaseFindings) -> list[str]:
    what = "call" if results.jobs.kind.has_steps else "numbers"
    keys = [keys_of(graph) for graph in results.jobs.graphs]
    names = run_of_graphs(results.jobs)
    unique = keys_of_one_run(keys, [names[graph.name] for graph in results.jobs.graphs])
    return [
        f"{sample.name}: has a node with the {what} of a single real run."
        for sample in results.kept
        if np.isin(keys_of(sample.written_graph()), unique).any()
    ]


Tell = Callable[[str], None]
_LOG = logging.getLogger("layerdag")


@dataclass(frozen=True, eq=False)
class Release:
    """What became of a release.

    Attributes:
        out: Its folder.
        private: The folder beside it that stays with the owner.
        verdict: May the samples be published, and why not; None if a stage before was the last.
        results: All figures; None as above.
        notes: What the readers of the traces did not understand.
    """

    out: Path
    private: Path
    verdict: ReleaseVerdict | None
    results: ReleaseFindings | None
    notes: tuple[Note, ...] = ()

    def __repr__(self) -> str:
        """Return the folder and the verdict; ``print`` shows the figures."""
        verdict = "no verdict" if self.verdict is None else "with a verdict"
        return f"Release({str(self.out)!r}, {verdict})"

    @property
    def released(self) -> bool:
        """Whether samples lie in ``out`` to be published."""
        return self.verdict is not None and self.verdict.outcome is not ReleaseDecision.NO

    def to_dict(self) -> dict[str, object]:
        """Return verdict, reasons and counts as plain data; all figures are in report.json."""
        verdict, results = self.verdict, self.results
        document: dict[str, object] = {
            "released": self.released,
            "verdict": None if verdict is None else verdict.line,
            "outcome": "unfinished" if verdict is None else verdict.outcome.value,
            "out": str(self.out),
            "private": str(self.private),
            "notes": [note.to_json() for note in self.notes],
        }
        if verdict is None or results is None:
            return document
        drawn, evaluation = results.drawn, results.evaluation
        folded = None if evaluation is None else evaluation.cross_fit
        return {
            **document,
            "reasons": [reason.what for reason in verdict.reasons],
            "remedies": list(verdict.remedies),
            "reserves": list(verdict.reserves),
            "found": list(results.jobs.sentences()),
            "left_out": list(results.jobs.left_out),
            "needs": [need.sentence() for need in results.needs],
            "samples": len(results.kept),
            "drawn": 0 if drawn is None else len(drawn.outcomes),
            "cross_fit": None if folded is None else folded.to_dict(),
            "drawn_per_kept": None if drawn is None else drawn.price,
            "outcomes": {} if drawn is None else dict(drawn.counts()),
            "seconds": {name: round(spent, 1) for name, spent in results.seconds.items()},
        }

    def __str__(self) -> str:
        """Return the verdict of one line, and what helps if nothing is released."""
        if self.verdict is None:
            return f"Not finished: repeat the call without 'until' to go on ({self.private})."
        lines = [self.verdict.line, *(f"  {word}" for word in self.verdict.remedies)]
        return "\n".join(lines)


def release(
    traces: str | Path,
    out: str | Path,
    *,
    tell: Tell = _LOG.info,
    **settings: Any,
) -> Release:
    """Make a package that may be published from somebody's traces, or say why not.

    Reads whatever lies in the folder, splits it by run, trains from the shipped checkpoint,
    samples without copies, evaluates, attacks, and writes samples, data card and report. A call
    that was stopped goes on where it was. ``OUT.private`` beside the release stays with the owner.

    Args:
        traces: Folder.
        out: Folder of the release.
        tell: Takes each line on what was found.
        **settings: Of ``ReleaseSettings``: budget (seconds), num, seed, labels, max_nodes, steps,
            temperature, best_of, license, creator, url, cite, cross_fit, until, overwrite.

    Returns:
        The verdict with its reasons; ``released`` says whether there are samples to publish.

    Raises:
        UsageError: If a setting is out of bounds, or a folder may not be replaced.
        DataError: If nothing can be read.
    """
    labels = settings.pop("labels", None)
    try:
        asked = ReleaseSettings(
            Path(traces),
            Path(out),
            labels=None if labels is None else Path(str(labels)),
            **settings,
        )
    except TypeError as error:
        raise UsageError(f"release: {error}; see its settings in the documentation.") from None
    return run_release(asked, tell)


def run_release(settings: ReleaseSettings, tell: Tell) -> Release:
    """Run the stages; see ``release``."""
    request = settings.request()
    with workspace_lock(
        settings.private, settings.out, request, overwrite=settings.overwrite
    ) as work:
        if work.is_resumed:
            tell(f"going on with the release that was begun in {work.path}")
        clock = Schedule(settings.budget)
        jobs = read_jobs(settings)
        _note_found(work, jobs)
        for line in jobs.sentences():
            tell(f"found: {line}")
        clock.lap("read")
        if jobs.num_runs < MIN_RUNS and settings.until == "read":
            tell(f"a release needs at least {MIN_RUNS} distinct runs")
            return Release(settings.out, work.path, None, None, jobs.notes)
        if jobs.num_runs < MIN_RUNS:
            empty = ReleaseFindings(
                settings, jobs, None, (), None, (), None, too_few_runs(jobs.num_runs), {}, {}
            )
            return _finished(work, empty, tell)
        data = dataset_of(jobs, settings.seed)
        needs = needs_of(
            data,
            jobs.num_runs,
            [isinstance(dag.conditions.get(LABEL), float) for dag in data.held_out],
        )
        _tell_split(data, jobs, needs, tell)
        work.require_same("read", "fingerprint", data.fingerprint)
        work.note("read", {"fingerprint": data.fingerprint})
        if settings.until == "read":
            return Release(settings.out, work.path, None, None, jobs.notes)
        return _learned(settings, work, jobs, data, needs, clock, tell)


def _learned(
    settings: ReleaseSettings,
    work: PrivateWorkspace,
    jobs: FoundJobs,
    data: GraphDataset,
    needs: tuple[RunRequirement, ...],
    clock: Schedule,
    tell: Tell,
) -> Release:
    seconds = clock.for_training
    tell(f"training for at most {seconds:.0f} s")
    checkpoint = train_model(settings, data, work, seconds)
    clock.lap("train")
    if settings.until == "train":
        return Release(settings.out, work.path, None, None, jobs.notes)
    allowed = clock.for_sampling
    tell(f"sampling for at most {allowed:.0f} s")
    drawn = draw_samples(settings, jobs, data, checkpoint, work, allowed)
    kept = tuple(_named(drawn.kept(settings.num)))
    clock.lap("sample")
    tell(f"kept {len(kept)} of {len(drawn.outcomes)} drawn samples")
    if settings.until == "sample":
        return Release(settings.out, work.path, None, None, jobs.notes)
    tell("evaluating and attacking the samples")
    parts = split_jobs(jobs, settings.seed)
    held = set((*data.names["val"], *data.names["test"]))
    real = [graph for graph in (*parts["val"], *parts["test"]) if graph.name in held]
    left = clock.left_before_writing(work)
    evaluation = (
        evaluate_samples(data, real, drawn, kept, checkpoint, TimeLeft(left)) if kept else None
    )
    clock.lap("evaluate")
    if evaluation is not None and evaluation.left_out:
        tell(
            f"left out, for no time of the budget was left: {', '.join(evaluation.left_out)}; the "
            "same command with a larger --budget adds them"
        )
    if evaluation is not None and (settings.cross_fit is not None or not needs[0].is_met):
        wanted = replace(settings, num=len(kept))
        left = clock.left_before_writing(work)
        folded = cross_fitted_if_affordable(wanted, jobs, work, left, tell)
        evaluation = replace(evaluation, cross_fit=folded)
        if folded is not None:
            clock.lap("cross-fit")
    verdict = verdict_of(settings, drawn, evaluation, needs)
    training = work.stages.get("train", {})
    results = ReleaseFindings(
        settings, jobs, data, needs, drawn, kept, evaluation, verdict, clock.seconds, training,
    )  # fmt: skip
    return _finished(work, results, tell)


def _note_found(work: PrivateWorkspace, jobs: FoundJobs) -> None:
    document = {
        "jobs": [graph.name for graph in jobs.graphs],
        "distinct_runs": jobs.num_runs,
        "programs": jobs.num_programs,
        "labeled": jobs.labeled,
        "labels": list(jobs.labels.sources),
        "left_out": list(jobs.left_out),
        "notes": [note.to_json() for note in jobs.notes],
        "other_files": dict(jobs.others),
    }
    write_text(work.path / FOUND, json.dumps(document, indent=1) + "\n")


def _tell_split(
    data: GraphDataset, jobs: FoundJobs, needs: Sequence[RunRequirement], tell: Tell
) -> None:
    sizes = [len(data.graphs[part]) for part in SPLITS]
    held_out, unit = held_out_alike(data, jobs), split_unit(data, jobs)
    tell("split by {}: {} for training, {} for validation, {} for test".format(unit, *sizes))
    for reason in data.left_out[:5]:
        tell(f"  left out of the split: {reason}")
    if held_out is not None:
        tell(f"  {held_out}")
    for need in needs:
        tell(f"  {need.sentence()}")


def _named(samples: Sequence[GeneratedGraph]) -> Iterator[GeneratedGraph]:
    for i, sample in enumerate(samples):
        yield replace(sample, name=f"sample-{i:05d}")


def _finished(work: PrivateWorkspace, results: ReleaseFindings, tell: Tell) -> Release:
    written = write_release(work, results, tell)
    out, notes = written.settings.out, written.jobs.notes
    return Release(out, work.path, written.verdict, written, notes)
