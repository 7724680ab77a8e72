"""Times of operators, fitted to measured ones."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.codec.formats import read_any
from layerdag.errors import UsageError
from layerdag.runtime.rng import numpy_generator
from layerdag.simulator.compute import MeasuredCompute
from layerdag.simulator.learned import OperatorTrees, measured_rows
from layerdag.statistics import Interval, bootstrap_weights
from layerdag.surrogates.scoring import too_few_tested
from layerdag.traces.chakra.corpus import read_index, read_runs
from layerdag.traces.trace import Trace

REPLICATES = 500


@dataclass(frozen=True)
class OperatorErrors:
    """How good predicted times of operators are, on jobs that no fit saw.

    Attributes:
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

    def __str__(self) -> str:
        """Return a line for each figure."""
        lines = [f"on {self.operators:,} operators of {self.jobs} test jobs:"]
        for name, (value, around) in self.figures.items():
            shown = f"  ({around.low:.3g} to {around.high:.3g})" if around else ""
            lines.append(f"  {name:18} {value:8.3g}{shown}")
        if few := too_few_tested(self.jobs, "jobs"):
            lines.append(f"  {few}")
        return "\n".join(lines)


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
    totals = (np.cumsum(row[job_S]) for row in weights_RJ)
    places = [np.searchsorted(total_S, total_S[-1] / 2) for total_S in totals]
    draws_R = np.exp(all_S[order_S][np.array(places)])
    value = float(draws_R[0])
    return value, Interval.around(value, draws_R[1:], 1.0)


def _log_errors(trees: OperatorTrees, job: Sequence[Trace]) -> np.ndarray:
    found = [np.zeros(0)]
    for trace in job:
        rows = measured_rows(trace)
        measured_M = MeasuredCompute().replayed_ns(trace, rows) / 1000
        found.append(np.log(trees.microseconds(trace, rows) / measured_M))
    return np.concatenate(found)
