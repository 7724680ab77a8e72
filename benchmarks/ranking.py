#!/usr/bin/env python
"""Do workloads order clusters as real ones do, and does a deliberately bad generator lose? JSON.

    python benchmarks/ranking.py data [--samples FOLDER] > ranking.json

Jobs of several ranks of the corpus run on 16 clusters of which none is better than another in
everything: the faster a link, the longer its latency, and the faster the compute, the longer, too.
Durations are shortened (``--speedup``), as communication hardly matters beside operators of one CPU
thread. Real test jobs give the order that counts; beside it stand training jobs, samples (those of
several ranks in a folder that ``layerdag sample`` wrote), and bad generators made of the training
jobs: message sizes exchanged between jobs, message sizes drawn at random, durations a hundred times
too long, and one single job.

Three figures: Kendall's tau of the order of the clusters by the mean logarithm of the time (1:
the same), the mean absolute difference of these logarithms after the mean over the clusters is
taken off ("profile"), and the total variation of how often each cluster is the best ("best").
Intervals are bootstrap intervals over the jobs of both sides.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from layerdag._runtime import numpy_generator, track
from layerdag.codec import AttributedGraph, unfold_sampled
from layerdag.datasets.sources import load_corpus, run_graph
from layerdag.errors import LayerdagError
from layerdag.evaluation.metrics import Interval
from layerdag.simulator import (
    Cluster,
    NetworkConfig,
    SystemConfig,
    Topology,
    UnsupportedCollectives,
    simulate,
)
from layerdag.simulator.compute import MeasuredCompute
from layerdag.surrogates import read_samples
from layerdag.traces import Workload, read_index, read_runs

REPLICATES = 300
NETWORKS = (
    (0.1, 0.5), (0.3, 1.0), (1.0, 2.0), (3.0, 4.0),
    (10.0, 8.0), (30.0, 16.0), (100.0, 32.0), (300.0, 64.0),
)  # fmt: skip
"""Latency in microseconds and GiB/s of a link, of which none is better in both."""
SLOWER_LINK, FASTER_COMPUTE = 2.0, 0.7
LARGEST_MESSAGE = 2.0**30
TOO_LONG = 100.0


@dataclass(frozen=True)
class Job:
    """A job of several ranks.

    Attributes:
        graph: Its nodes.
        ranks: How many.
    """

    graph: AttributedGraph
    ranks: int

    def with_numbers(self, **numbers: np.ndarray) -> "Job":
        """Return the job with other numbers."""
        return replace(self, graph=replace(self.graph, numbers={**self.graph.numbers, **numbers}))

    def workload(self, speedup: float) -> Workload:
        """Return its traces with shorter durations."""
        shorter = self.with_numbers(duration=self.graph.numbers["duration"] / speedup)
        return unfold_sampled(shorter.graph, self.ranks).workload


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="folder of the corpus")
    parser.add_argument("--samples", help="folder that 'layerdag sample' wrote")
    parser.add_argument("--jobs", type=int, default=60, help="of each set")
    parser.add_argument("--largest", type=int, default=300, help="nodes of a job")
    parser.add_argument("--speedup", type=float, default=1000.0, help="of compute")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    real = {part: _drawn(args, part) for part in ("train", "test")}
    rng = numpy_generator(args.seed, "bad generators")
    sets = {"train": real["train"]}
    if args.samples:
        sets["samples"] = _sampled(args)
    sets |= bad_generators(real["train"], rng)
    order = _times(real["test"], args.speedup, "test")
    found = {
        name: _against(order, _times(jobs, args.speedup, name), args.seed)
        for name, jobs in sets.items()
    }
    settings = vars(args) | {"clusters": 2 * len(NETWORKS)}
    print(json.dumps({"settings": settings, "against test jobs": found}, indent=1))


def _drawn(args: argparse.Namespace, part: str) -> list[Job]:
    """Return jobs of several ranks of a part of the corpus, drawn at random."""
    jobs = [
        Job(graph, run.record.world_size)
        for run in read_runs(args.corpus, read_index(args.corpus))
        if run.record.split == part and run.record.world_size > 1
        for graph in (run_graph(run),)
        if graph.num_nodes <= args.largest
    ]
    order = numpy_generator(args.seed, "jobs", part).permutation(len(jobs))
    return [jobs[i] for i in order[: args.jobs]]


def _sampled(args: argparse.Namespace) -> list[Job]:
    """Return the samples of several ranks, as many as there are real jobs."""
    schema = load_corpus(args.corpus).schema
    jobs = [
        Job(schema.decode(dag), int(dag.conditions["world_size"]))
        for dag in read_samples(args.samples, schema)
        if dag.conditions["world_size"] != "1" and dag.num_nodes <= args.largest
    ]
    return jobs[: args.jobs]


def bad_generators(jobs: Sequence[Job], rng: np.random.Generator) -> dict[str, list[Job]]:
    """Return sets of jobs that are each wrong in one way."""
    pool = np.concatenate([_messages(job)[_messages(job) > 0] for job in jobs])
    return {
        "sizes exchanged": [_resized(job, rng.choice(pool, job.graph.num_nodes)) for job in jobs],
        "sizes at random": [
            _resized(job, np.rint(LARGEST_MESSAGE ** rng.random(job.graph.num_nodes)))
            for job in jobs
        ],
        "durations too long": [
            job.with_numbers(duration=job.graph.numbers["duration"] * TOO_LONG) for job in jobs
        ],
        "one job": [jobs[0]] * len(jobs),
    }


def _messages(job: Job) -> np.ndarray:
    """Return the bytes that each node sends, 0 for none."""
    sizes_N: np.ndarray = np.nan_to_num(job.graph.numbers["comm_bytes"])
    return sizes_N


def _resized(job: Job, sizes_N: np.ndarray) -> Job:
    """Return the job whose messages have other sizes."""
    known_N = job.graph.numbers["comm_bytes"]
    return job.with_numbers(comm_bytes=np.where(_messages(job) > 0, sizes_N, known_N))


def _clusters(ranks: int) -> Iterator[tuple[Cluster, float]]:
    """Yield each cluster with the factor by which its compute is faster or slower."""
    plain = SystemConfig.uniform("ring")
    system = replace(plain, unsupported_collectives=UnsupportedCollectives.REPLAY)
    for latency, bandwidth in NETWORKS:
        for slower, compute in ((1.0, 1.0), (SLOWER_LINK, FASTER_COMPUTE)):
            network = NetworkConfig.single(
                Topology.SWITCH, ranks, bandwidth, 1e3 * latency * slower
            )
            yield Cluster(network, system), compute


def _times(jobs: Sequence[Job], speedup: float, name: str) -> np.ndarray:
    """Return the logarithm of the makespan of each job on each cluster, shape (jobs, clusters)."""
    rows = []
    for job in track(jobs, name, len(jobs)):
        try:
            workloads = {c: job.workload(speedup / c) for c in (1.0, FASTER_COMPUTE)}
            rows.append(
                [
                    simulate(workloads[c], cluster, compute=MeasuredCompute()).makespan_ns
                    for cluster, c in _clusters(job.ranks)
                ]
            )
        except LayerdagError as error:
            raise SystemExit(f"{name}, {job.graph.name}: {error}") from None
    return np.log(np.array(rows, dtype=float))


def _against(real_JC: np.ndarray, other_JC: np.ndarray, seed: int) -> Mapping[str, Any]:
    """Return the three figures with the ends of their intervals."""
    rng = numpy_generator(seed, "ranking bootstrap")
    draws = [_figures(real_JC, other_JC)]
    for _ in range(REPLICATES):
        draws.append(_figures(*(rng.choice(one, len(one)) for one in (real_JC, other_JC))))
    return {
        name: _rounded(values, *FIGURES[name])
        for name, values in zip(FIGURES, np.array(draws).T, strict=True)
    } | {"jobs": len(other_JC)}


def _rounded(draws_R: np.ndarray, lower: float, upper: float) -> list[float]:
    """Return the figure and the ends of its interval."""
    around = Interval.around(float(draws_R[0]), draws_R[1:], lower, upper)
    ends = () if around is None else (around.low, around.high)
    return [round(float(value), 3) for value in (draws_R[0], *ends)]


FIGURES = {"tau": (-1.0, 1.0), "profile": (0.0, math.inf), "best": (0.0, 1.0)}
"""Figures with their least and greatest possible values."""


def _figures(real_JC: np.ndarray, other_JC: np.ndarray) -> tuple[float, float, float]:
    """Return tau, the difference of the profiles, and that of the best clusters."""
    means = [one_JC.mean(axis=0) for one_JC in (real_JC, other_JC)]
    profiles = [mean_C - mean_C.mean() for mean_C in means]
    size = real_JC.shape[1]
    best = [
        np.bincount(one_JC.argmin(axis=1), minlength=size) / len(one_JC)
        for one_JC in (real_JC, other_JC)
    ]
    return (
        float(kendalltau(*means).statistic),
        float(np.abs(profiles[0] - profiles[1]).mean()),
        float(np.abs(best[0] - best[1]).sum() / 2),
    )


if __name__ == "__main__":
    main()
