"""What surrogates learn from: graphs, targets, masked attributes, operators."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.codec.formats import read_any
from layerdag.dag.dag import DAG
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import Condition
from layerdag.runtime.notes import Note, NoteCollector
from layerdag.runtime.rng import numpy_generator
from layerdag.samples.reader import count_samples, iter_samples
from layerdag.schema.schema import GraphSchema
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.learned import OperatorTrees, measured_rows
from layerdag.statistics import Interval, bootstrap_weights
from layerdag.traces.chakra.corpus import read_index, read_runs
from layerdag.traces.trace import Trace

REAL, SYNTHETIC, SUBSAMPLE, REDRAWN, SHUFFLED, AUGMENTED = CONDITIONS = (
    "real",
    "synthetic",
    "real subsample",
    "real, drawn again",
    "real, shuffled targets",
    "real + synthetic",
)
RELABELED = "synthetic, labels of surrogates"
"""Needs two families: each learns from the labels that the others, fitted to real graphs, give."""

SUBSAMPLE_FRACTION = 0.25
TOGETHER = " + synthetic"
_FEW = re.compile(r"\d+ real( \+ synthetic)?")
MIN_REAL = 4
"""Real graphs that a surrogate can be fitted to."""


@dataclass(frozen=True, eq=False)
class Labeled:
    """Graphs with one target each.

    Attributes:
        dags: The graphs.
        target_B: float64 targets, the same unit everywhere.
    """

    dags: tuple[DAG, ...]
    target_B: np.ndarray

    def __post_init__(self) -> None:
        if len(self.dags) != self.target_B.size:
            raise UsageError(
                f"There are {len(self.dags)} graphs but {self.target_B.size} targets; "
                "pass one target per graph."
            )

    def taken(self, rows: np.ndarray) -> "Labeled":
        """Return the given rows."""
        return Labeled(tuple(self.dags[i] for i in rows.tolist()), self.target_B[rows])

    def joined(self, other: "Labeled") -> "Labeled":
        """Return the graphs of both."""
        return Labeled(self.dags + other.dags, np.concatenate([self.target_B, other.target_B]))


def few_real(counts: Sequence[int], available: int) -> tuple[str, ...]:
    """Return the conditions of so many real graphs, alone and together with synthetic ones.

    Args:
        counts: Numbers of real graphs.
        available: Real training graphs that there are.

    Raises:
        UsageError: If a number is too small, or there are not so many.
    """
    for count in counts:
        if not MIN_REAL <= count <= available:
            raise UsageError(
                f"Surrogates cannot be fitted to {count} of {available} real training graphs; take "
                f"from {MIN_REAL} to {available}."
            )
    alone = [f"{count} real" for count in dict.fromkeys(counts)]
    return tuple(name + more for name in alone for more in ("", TOGETHER))


def require_condition(name: str) -> None:
    """Raise UsageError unless a condition is known."""
    known = (*CONDITIONS, RELABELED)
    if name not in known and not _FEW.fullmatch(name):
        raise UsageError(
            f"There is no condition '{name}'; known are {', '.join(known)}, and those of "
            "few_real(counts, available)."
        )


def training_set(condition: str, real: Labeled, synthetic: Labeled, seed: int) -> Labeled:
    """Return the training graphs of one condition.

    "20 real" and "20 real + synthetic" have the same twenty graphs with the same seed, and those
    are among the "50 real" of that seed.

    Args:
        condition: One of ``CONDITIONS`` or of ``few_real``.
        real: All real training graphs.
        synthetic: All synthetic graphs, with the labels that the condition asks for.
        seed: Of what is drawn.
    """
    if condition == SYNTHETIC:
        return synthetic
    if condition.endswith(TOGETHER):
        alone = training_set(condition.removesuffix(TOGETHER), real, synthetic, seed)
        return alone.joined(synthetic)
    if condition == REAL:
        return real
    count = len(real.dags)
    if condition[0].isdigit():
        few = int(condition.partition(" ")[0])
        return real.taken(numpy_generator(seed, "few real graphs").permutation(count)[:few])
    rng = numpy_generator(seed, "training set", condition)
    if condition == SHUFFLED:
        return Labeled(real.dags, rng.permutation(real.target_B))
    if condition == REDRAWN:
        return real.taken(rng.integers(count, size=count))
    return real.taken(rng.permutation(count)[: max(int(SUBSAMPLE_FRACTION * count), 2)])


@dataclass(frozen=True)
class SampleStream:
    """Samples on the disk, as often as they are gone through; one is held at a time.

    Attributes:
        folder: Of samples, a file or folder each or in parts; or one part.
        schema: What the codes mean.
        count: Number of samples.
    """

    folder: Path
    schema: GraphSchema
    count: int
    _found: NoteCollector = field(default_factory=lambda: NoteCollector(""), repr=False)
    _noted: set[str] = field(default_factory=set, repr=False)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was not understood in the samples that were gone through."""
        return self._found.notes

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.count

    def __iter__(self) -> Iterator[DAG]:
        """Yield the samples in order, with the conditions that were noted.

        Raises:
            DataError: If a sample is missing or damaged.
        """
        for sample in iter_samples(self.folder):
            graph = self.schema.kind.stored_graph(sample)
            if graph.notes and sample.name not in self._noted:
                self._noted.add(sample.name)
                self._found.extend(graph.notes)
            yield self.schema.encode(graph).with_conditions(sample.conditions)


def stream_samples(folder: str | Path, schema: GraphSchema) -> SampleStream:
    """Return what ``layerdag sample`` wrote as a stream.

    Args:
        folder: Of samples, a file or folder each or in parts; or one part.
        schema: What the codes are to mean.

    Raises:
        DataError: If the manifest is missing or damaged, or there is no whole part.
    """
    return SampleStream(Path(folder), schema, count_samples(folder))


def read_samples(folder: str | Path, schema: GraphSchema) -> tuple[DAG, ...]:
    """Read what ``layerdag sample`` wrote, with the conditions that it noted.

    Args:
        folder: Of samples, a file or folder each or in parts; or one part.
        schema: What the codes are to mean.

    Raises:
        DataError: If the manifest or a sample is missing or damaged.
    """
    return tuple(SampleStream(Path(folder), schema, 0))


def labeled(
    dags: Sequence[DAG], schema: GraphSchema, target: str, hidden: Sequence[str]
) -> Labeled:
    """Return graphs with the condition ``target`` as their number, some attributes hidden.

    Raises:
        DataError: If no graph carries the target.
        UsageError: If a hidden attribute is not in the schema.
    """
    known: list[Condition | None] = [dag.conditions.get(target) for dag in dags]
    kept = [
        (dag, float(y)) for dag, y in zip(dags, known, strict=True) if isinstance(y, int | float)
    ]
    if not kept:
        raise unlabeled(target)
    shown = mask_attributes([dag for dag, _ in kept], schema, hidden)
    return Labeled(tuple(shown), np.array([y for _, y in kept]))


def unlabeled(target: str) -> DataError:
    """Return the error that no graph has a target."""
    return DataError(
        f"No graph has a number '{target}'; name another condition with --target, or a label file "
        "with --labels."
    )


def targets(dags: Sequence[DAG], target: str) -> np.ndarray:
    """Return the condition ``target`` of each graph, float64 (B,); NaN where it is no number."""
    values = [dag.conditions.get(target) for dag in dags]
    return np.array([y if isinstance(y, int | float) else np.nan for y in values], dtype=float)


def mask_attributes(dags: Sequence[DAG], schema: GraphSchema, hidden: Sequence[str]) -> list[DAG]:
    """Return the graphs with the named attributes set to code 0 everywhere.

    A surrogate of the step time must not see measured durations: their sum nearly is the target.

    Raises:
        UsageError: If an attribute is not in the schema.
    """
    names = [attribute.name for attribute in schema.attributes]
    for name in hidden:
        if name not in names:
            raise UsageError(
                f"There is no attribute '{name}' to exclude; known: {', '.join(names)}."
            )
    columns = [names.index(name) for name in hidden]
    result = []
    for dag in dags:
        x_NA, u_NA = dag.x_NA.clone(), dag.u_NA.clone()
        x_NA[:, columns] = 0
        u_NA[:, columns] = 0.0
        result.append(dag.with_columns(x_NA, u_NA))
    return result


REPLICATES = 500


@dataclass(frozen=True)
class OperatorErrors:
    """How good predicted times of operators are, on jobs that no fit saw.

    Attributes:
        jobs: Number of jobs.
        operators: Number of measured operators in them.
        figures: "median_factor" (half of the operators are predicted within this factor),
            "within_10_percent" and "within_25_percent" (fractions of operators); value and 95 %
            interval over resampled jobs.
    """

    jobs: int
    operators: int
    figures: Mapping[str, tuple[float, Interval | None]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def fit_operators(
    source: str | Path, seed: int = 0
) -> tuple[OperatorTrees, OperatorErrors | None, int]:
    """Return operator trees, their errors on test jobs, and the number of jobs fitted on.

    Args:
        source: Folder of a corpus, of which the training part is fitted and the test part
            predicted, or a workload, which has no test part.
        seed: Of the fit.

    Raises:
        ConfigError: If fewer than 20 compute nodes state a duration.
        TraceError: If a trace is missing or damaged.
    """
    if not (Path(source) / "index.jsonl").is_file():
        traces = list({id(trace): trace for trace in read_any(source).traces}.values())
        return OperatorTrees.fit(traces, seed), None, 1
    jobs: dict[str, list[tuple[Trace, ...]]] = {"train": [], "val": [], "test": []}
    for run in read_runs(source, read_index(source)):
        if run.record.split in jobs:
            jobs[run.record.split].append(run.traces)
    if not jobs["train"]:
        raise UsageError(f"{source}: has no run of the part 'train'; give a corpus with one.")
    trees = OperatorTrees.fit([trace for job in jobs["train"] for trace in job], seed)
    return trees, operator_errors(trees, jobs["test"], seed), len(jobs["train"])


def operator_errors(
    trees: OperatorTrees, jobs: Sequence[Sequence[Trace]], seed: int = 0
) -> OperatorErrors | None:
    """Compare predicted with measured times of operators; None where no job has any."""
    error_by_job = [error for job in jobs if (error := _log_errors(trees, job)).size]
    if not error_by_job:
        return None
    count_J = np.array([error.size for error in error_by_job], dtype=float)
    rng = numpy_generator(seed, "operator errors")
    weights_RJ = np.concatenate(
        [np.ones((1, count_J.size)), bootstrap_weights(rng, REPLICATES, count_J.size)]
    )
    figures = {
        "within_10_percent": _within(0.1, error_by_job, weights_RJ),
        "within_25_percent": _within(0.25, error_by_job, weights_RJ),
        "median_factor": _median_factor(error_by_job, weights_RJ),
    }
    return OperatorErrors(len(error_by_job), int(count_J.sum()), figures)


def _within(
    limit: float, error_by_job: Sequence[np.ndarray], weights_RJ: np.ndarray
) -> tuple[float, Interval | None]:
    held_J = np.array([(np.abs(np.expm1(error)) <= limit).sum() for error in error_by_job])
    count_J = np.array([error.size for error in error_by_job])
    draws_R = weights_RJ @ held_J / (weights_RJ @ count_J)
    value = float(draws_R[0])
    return value, Interval.around(value, draws_R[1:], 0.0, 1.0)


def _median_factor(
    error_by_job: Sequence[np.ndarray], weights_RJ: np.ndarray
) -> tuple[float, Interval | None]:
    all_S = np.abs(np.concatenate(error_by_job))
    order_S = np.argsort(all_S)
    sizes = [error.size for error in error_by_job]
    job_S = np.repeat(np.arange(len(sizes)), sizes)[order_S]
    draws_R = np.exp([_weighted_median(all_S[order_S], row[job_S]) for row in weights_RJ])
    value = float(draws_R[0])
    return value, Interval.around(value, draws_R[1:], 1.0)


def _log_errors(trees: OperatorTrees, job: Sequence[Trace]) -> np.ndarray:
    found = [np.zeros(0)]
    for trace in job:
        rows = measured_rows(trace)
        measured_M = MeasuredCompute().replayed_ns(trace, rows) / 1000
        found.append(np.log(trees.microseconds(trace, rows) / measured_M))
    return np.concatenate(found)


def _weighted_median(ascending_S: np.ndarray, weight_S: np.ndarray) -> float:
    cumulated_S = np.cumsum(weight_S)
    return float(ascending_S[np.searchsorted(cumulated_S, cumulated_S[-1] / 2)])
