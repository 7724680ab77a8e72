#!/usr/bin/env python
"""Do samples take the step time that was asked for? Simulated over requested, beside real jobs.

    python benchmarks/step_times.py data SAMPLES

prints, as JSON, for test jobs of the corpus and for the samples that ``layerdag sample`` wrote: the
simulated time of a step on the preset cluster ``small``, over the step time that was measured (real
jobs) or asked for (samples), at 10, 50 and 90 % of the jobs, by number of ranks and over all. The
cluster is not the machine that real jobs ran on, so their ratios are not 1 either. Each median has
its 95 % interval from jobs drawn again (1,000 times, seed 0).
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerdag.runtime.rng import numpy_generator
from layerdag.samples.reader import iter_samples
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.run import simulate
from layerdag.traces.chakra.corpus import read_index, read_runs
from layerdag.traces.trace import Workload


@dataclass(frozen=True)
class _Step:
    """A job: its ranks, and its simulated time over the time it was to take."""

    ranks: int
    ratio: float


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="folder of the corpus")
    parser.add_argument("samples", help="folder that 'layerdag sample' wrote")
    args = parser.parse_args()
    figures = {"real test jobs": _real(args.corpus), "samples": _sampled(args.samples)}
    print(json.dumps({name: _by_ranks(steps) for name, steps in figures.items()}, indent=1))


def _real(corpus: str) -> Iterator[_Step]:
    """Yield the test jobs."""
    for run in read_runs(corpus, read_index(corpus)):
        if run.record.split == "test":
            yield _step(run.workload(), run.record.step_time_s_min)


def _sampled(folder: str) -> Iterator[_Step]:
    """Yield the samples."""
    for sample in iter_samples(folder):
        yield _step(sample.workload(), float(sample.conditions["label"]))


def _step(workload: Workload, seconds: float) -> _Step:
    """Return the ratio of a job that was to take so long."""
    ranks = len(workload.traces)
    result = simulate(workload, Cluster.preset("small").with_ranks(ranks))
    return _Step(ranks, float(result.finish_ns.max()) / 1e9 / seconds)


def _by_ranks(steps: Iterable[_Step]) -> dict[str, Any]:
    """Return the quantiles of the jobs of each number of ranks, and of all."""
    found = list(steps)
    groups = {str(n): [s for s in found if s.ranks == n] for n in sorted({s.ranks for s in found})}
    return {name: _quantiles(group) for name, group in {**groups, "all": found}.items()}


def _quantiles(steps: list[_Step]) -> dict[str, Any]:
    """Return quantiles of the ratios, and the interval of the median."""
    ratio_B = np.array([step.ratio for step in steps])
    rng = numpy_generator(0, "step times")
    drawn_RB = ratio_B[rng.integers(len(ratio_B), size=(1000, len(ratio_B)))]
    return {
        "jobs": len(steps),
        "10, 50, 90 %": np.quantile(ratio_B, (0.1, 0.5, 0.9)).round(2).tolist(),
        "median, 95 % interval": np.quantile(np.median(drawn_RB, axis=1), (0.025, 0.975))
        .round(2)
        .tolist(),
    }


if __name__ == "__main__":
    main()
