"""The stages of a release in order: read, split, train, sample, evaluate, write."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerdag._runtime import write_text
from layerdag.api.publication._evaluation import evaluate_samples
from layerdag.api.publication._folder import (
    FOUND,
    Work,
    held_work,
)
from layerdag.api.publication._page import Results
from layerdag.api.publication._settings import ReleaseSettings
from layerdag.api.publication._split import (
    LEAST_RUNS,
    Need,
    dataset_of,
    needs_of,
    run_of_graphs,
    split_jobs,
)
from layerdag.api.publication._verdict import (
    Outcome,
    ReleaseVerdict,
    too_few_runs,
    verdict_of,
)
from layerdag.api.publication._writing import write_release
from layerdag.api.publication.drawing import draw_samples
from layerdag.api.publication.reading import FoundJobs, read_jobs
from layerdag.api.publication.training import (
    TRAINING_FRACTION,
    AuditedWeights,
    audited_student,
    cross_fitted_if_affordable,
    real_graphs,
    trained_teacher,
)
from layerdag.datasets import SPLITS, GraphDataset
from layerdag.datasets.schema import LABEL
from layerdag.errors import UsageError
from layerdag.sampling import GeneratedGraph

SAMPLING_SHARE = 0.35
"""Of the budget, after training; the rest is for evaluation."""
_LEAST_SECONDS = 10.0

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
    """

    out: Path
    private: Path
    verdict: ReleaseVerdict | None
    results: Results | None

    @property
    def released(self) -> bool:
        """Whether samples lie in ``out`` to be published."""
        return self.verdict is not None and self.verdict.outcome is not Outcome.NO

    @property
    def weights(self) -> AuditedWeights | None:
        """The audited student; None unless weights were asked for and samples are released."""
        return None if self.results is None else self.results.weights

    @property
    def complete(self) -> bool:
        """Whether all that was asked for may be published, weights included."""
        asked = self.results is not None and self.results.settings.with_weights
        return self.released and (not asked or (self.weights is not None and self.weights.released))

    def to_dict(self) -> dict[str, object]:
        """Return verdict, reasons and counts as plain data; all figures are in report.json."""
        verdict, results = self.verdict, self.results
        document: dict[str, object] = {
            "released": self.released,
            "verdict": None if verdict is None else verdict.line,
            "outcome": "unfinished" if verdict is None else verdict.outcome.value,
            "out": str(self.out),
            "private": str(self.private),
        }
        if verdict is None or results is None:
            return document
        drawn = results.drawn
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
            "weights": self._weights_document(),
            "cross_fit": self._folds_document(),
            "drawn_per_kept": None if drawn is None else drawn.price,
            "outcomes": {} if drawn is None else dict(drawn.counts()),
            "seconds": {name: round(spent, 1) for name, spent in results.seconds.items()},
        }

    def _weights_document(self) -> dict[str, object] | None:
        """Return what was found on the weights, as plain data."""
        audited = self.weights
        if audited is None:
            return None
        verdict, audit = audited.verdict, audited.audit
        return {
            "released": audited.released,
            "verdict": verdict.line,
            "remedies": list(verdict.remedies),
            "audit": None if audit is None else audit.to_dict(),
        }

    def _folds_document(self) -> dict[str, object] | None:
        """Return what was found on models of folds, as plain data."""
        evaluation = None if self.results is None else self.results.evaluation
        folded = None if evaluation is None else evaluation.cross_fit
        return None if folded is None else folded.to_dict()

    def __str__(self) -> str:
        """Return the verdicts of one line each, and what helps if something is not released."""
        if self.verdict is None:
            return f"Not finished: repeat the call without 'until' to go on ({self.private})."
        lines = [self.verdict.line, *(f"  {word}" for word in self.verdict.remedies)]
        if self.weights is not None:
            verdict = self.weights.verdict
            lines += [verdict.line, *(f"  {word}" for word in verdict.remedies)]
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
            temperature, best_of, license, init, with_weights, public,
            shadows, cross_fit, until, overwrite.

    Returns:
        The verdict with its reasons; ``released`` says whether there are samples to publish.

    Raises:
        UsageError: If a setting is out of bounds, or a folder may not be replaced.
        DataError: If nothing can be read.
    """
    labels, public = (settings.pop(name, None) for name in ("labels", "public"))
    try:
        asked = ReleaseSettings(
            Path(traces),
            Path(out),
            labels=None if labels is None else Path(str(labels)),
            public=None if public is None else Path(str(public)),
            **settings,
        )
    except TypeError as error:
        raise UsageError(f"release: {error}; see its settings in the documentation.") from None
    return run_release(asked, tell)


def run_release(settings: ReleaseSettings, tell: Tell) -> Release:
    """Run the stages; see ``release``."""
    request = settings.request()
    with held_work(settings.private, settings.out, request, overwrite=settings.overwrite) as work:
        if work.is_resumed:
            tell(f"going on with the release that was begun in {work.path}")
        clock = _Clock()
        jobs = read_jobs(settings)
        _note_found(work, jobs)
        for line in jobs.sentences():
            tell(f"found: {line}")
        clock.lap("read")
        if jobs.num_runs < LEAST_RUNS and settings.until == "read":
            tell(f"a release needs at least {LEAST_RUNS} distinct runs")
            return Release(settings.out, work.path, None, None)
        if jobs.num_runs < LEAST_RUNS:
            empty = Results(
                settings, jobs, None, (), None, (), None, too_few_runs(jobs.num_runs), {}, {}
            )
            return _finished(work, empty, tell)
        data = dataset_of(jobs, settings.seed)
        needs = _needs(data, jobs.num_runs)
        _tell_split(data, needs, tell)
        work.require_same("read", "fingerprint", data.fingerprint)
        work.note("read", {"fingerprint": data.fingerprint})
        if settings.until == "read":
            return Release(settings.out, work.path, None, None)
        return _learned(settings, work, jobs, data, needs, clock, tell)


def _learned(
    settings: ReleaseSettings,
    work: Work,
    jobs: FoundJobs,
    data: GraphDataset,
    needs: tuple[Need, ...],
    clock: "_Clock",
    tell: Tell,
) -> Release:
    """Train, sample, evaluate and write."""
    seconds = TRAINING_FRACTION * settings.budget
    tell(f"training for at most {seconds:.0f} s")
    checkpoint = trained_teacher(settings, data, work, seconds)
    clock.lap("train")
    if settings.until == "train":
        return Release(settings.out, work.path, None, None)
    left = max((1 - TRAINING_FRACTION) * settings.budget - clock.seconds["read"], 0.0)
    allowed = max(min(SAMPLING_SHARE * settings.budget, 0.6 * left), _LEAST_SECONDS)
    tell(f"sampling for at most {allowed:.0f} s")
    drawn = draw_samples(settings, jobs, data, checkpoint, work, allowed)
    kept = tuple(_named(drawn.kept(settings.num)))
    clock.lap("sample")
    tell(f"kept {len(kept)} of {len(drawn.outcomes)} drawn samples")
    if settings.until == "sample":
        return Release(settings.out, work.path, None, None)
    tell("evaluating and attacking the samples")
    parts = split_jobs(jobs, settings.seed)
    held = set((*data.names["val"], *data.names["test"]))
    real = [graph for graph in (*parts["val"], *parts["test"]) if graph.name in held]
    evaluation = evaluate_samples(data, real, drawn, kept, checkpoint) if kept else None
    clock.lap("evaluate")
    if evaluation is not None and (settings.cross_fit is not None or not needs[0].is_met):
        wanted = replace(settings, num=len(kept))
        spent = clock.seconds["evaluate"]
        folded = cross_fitted_if_affordable(wanted, jobs, work, spent, tell)
        evaluation = replace(evaluation, cross_fit=folded)
        if folded is not None:
            clock.lap("cross-fit")
    verdict = verdict_of(settings, drawn, evaluation, needs)
    weights = None
    if settings.with_weights and verdict.outcome is not Outcome.NO:
        tell(f"training a student on the samples, and {settings.shadows} shadow models")
        by_name = {graph.name: graph for part in parts.values() for graph in part}
        real_ones = real_graphs(data, by_name, run_of_graphs(jobs), settings.seed)
        weights = audited_student(settings, data, real_ones, kept, work, seconds)
        clock.lap("weights")
    training = work.stages.get("train", {})
    results = Results(
        settings, jobs, data, needs, drawn, kept, evaluation, verdict, clock.seconds, training,
        weights,
    )  # fmt: skip
    return _finished(work, results, tell)


class _Clock:
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, stage: str) -> None:
        """Note the seconds since the last call."""
        now = time.monotonic()
        self.seconds[stage] = now - self._last
        self._last = now


def _needs(data: GraphDataset, runs: int) -> tuple[Need, ...]:
    return needs_of(data, runs, [isinstance(d.conditions.get(LABEL), float) for d in data.held_out])


def _note_found(work: Work, jobs: FoundJobs) -> None:
    """Write what was read for the owner."""
    document = {
        "jobs": [graph.name for graph in jobs.graphs],
        "distinct_runs": jobs.num_runs,
        "labeled": jobs.labeled,
        "labels": list(jobs.labels.sources),
        "left_out": list(jobs.left_out),
        "other_files": dict(jobs.others),
    }
    write_text(work.path / FOUND, json.dumps(document, indent=1) + "\n")


def _tell_split(data: GraphDataset, needs: Sequence[Need], tell: Tell) -> None:
    """Say how many graphs each part and each test has."""
    sizes = [len(data.graphs[part]) for part in SPLITS]
    tell("split by run: {} for training, {} for validation, {} for test".format(*sizes))
    for reason in data.left_out[:5]:
        tell(f"  left out of the split: {reason}")
    for need in needs:
        tell(f"  {need.sentence()}")


def _named(samples: Sequence[GeneratedGraph]) -> Iterator[GeneratedGraph]:
    """Yield samples with the names that they are published under."""
    for i, sample in enumerate(samples):
        yield replace(sample, name=f"sample-{i:05d}")


def _finished(work: Work, results: Results, tell: Tell) -> Release:
    """Write what was found."""
    written = write_release(work, results, tell)
    return Release(written.settings.out, work.path, written.verdict, written)
