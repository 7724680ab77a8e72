"""Processor time and memory of judging many samples: ``python benchmarks/judging.py --num 10000``.

Prints one JSON object: processor time of each metric of ``layerdag.compare`` (what several metrics
share counts for the first of them), peak memory of the process, and the bars: 60 s and 2 GB on one
core for 10,000 graphs of 100 nodes in each of three sets, training, test and generated.

``--stream N`` audits N samples that are never held together, attacks included, against ``--num``
training and as many held-out graphs.

A graph is a slice of a job of the embedded corpus, ``--nodes`` nodes that follow each other in its
order of layers, with their edges; one row in twenty of its attributes is that of a node of another
job.
"""

import argparse
import json
import resource
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.loading import load_dataset
from layerdag.evaluation.metrics.base import Comparison, Metric, attribute_views, metrics_for
from layerdag.evaluation.similarity import DEFAULT_METRICS, comparison_of, row_of
from layerdag.graph.attributed_graph import Split
from layerdag.privacy.auditing import audit_of
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.terminal import track

BAR_SECONDS, BAR_MB, BAR_STREAM_MB = 60, 2000, 4000
FOREIGN_ROWS = 0.05


class Slices:
    """Slices of the jobs of a data set.

    Args:
        jobs: The jobs.
        nodes: Nodes of a slice; smaller jobs are left out.
    """

    def __init__(self, jobs: Sequence[DAG], nodes: int) -> None:
        self._jobs = [dag.in_layer_order() for dag in jobs if dag.num_nodes >= nodes]
        self._rows = torch.cat([dag.x_NA for dag in self._jobs])
        self._nodes = nodes

    def drawn(self, rng: np.random.Generator) -> DAG:
        """Return a slice of a random job, from a random node on."""
        job = self._jobs[int(rng.integers(len(self._jobs)))]
        first = int(rng.integers(job.num_nodes - self._nodes + 1))
        last = first + self._nodes
        inside_E = ((job.edge_index_2E >= first) & (job.edge_index_2E < last)).all(dim=0)
        x_NA = job.x_NA[first:last].clone()
        foreign = rng.random(self._nodes) < FOREIGN_ROWS
        drawn = rng.integers(len(self._rows), size=int(foreign.sum()))
        x_NA[torch.from_numpy(foreign)] = self._rows[torch.from_numpy(drawn)]
        return DAG.build(
            x_NA,
            job.edge_index_2E[:, inside_E] - first,
            edge_type_E=job.edge_type_E[inside_E],
            u_NA=job.u_NA[first:last].clone(),
            conditions=job.conditions,
        )


def graphs_of(slices: Slices, part: str, num: int, seed: int) -> Iterator[DAG]:
    """Yield the graphs of one set."""
    for i in track(range(num), part, num):
        yield slices.drawn(numpy_generator(seed, part, i))


def compared(data: GraphDataset, sets: list[list[DAG]], seed: int) -> dict[str, float]:
    """Return the processor seconds of each metric."""
    views = attribute_views(data.schema)
    seconds = {}
    start = time.process_time()
    comparison = comparison_of((sets[0], sets[1], sets[2]), views, seed, 200)
    seconds["union of the graphs"] = time.process_time() - start
    for metric in metrics_for(DEFAULT_METRICS, views):
        seconds[metric.name] = _seconds(metric, comparison)
    return seconds


def _seconds(metric: Metric, comparison: Comparison) -> float:
    start = time.process_time()
    row_of(metric, comparison)
    return time.process_time() - start


def peak_mb() -> int:
    """Return the most memory that the process ever held."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def judged(data: GraphDataset, slices: Slices, args: argparse.Namespace) -> dict[str, Any]:
    """Compare three sets; return the figures."""
    sets = [
        list(graphs_of(slices, part, args.num, args.seed)) for part in ("train", "test", "made")
    ]
    before = peak_mb()
    seconds = compared(data, sets, args.seed)
    return {
        "graphs_of_each_set": args.num,
        "edges_mean": round(float(np.mean([dag.num_edges for dag in sets[2]])), 1),
        "seconds": round(sum(seconds.values()), 2),
        "bar_seconds": BAR_SECONDS,
        "peak_MB_before": before,
        "peak_MB": peak_mb(),
        "bar_MB": BAR_MB,
        "seconds_of": {name: round(value, 2) for name, value in seconds.items()},
    }


class Stream:
    """Samples that are drawn as often as they are gone through, and never held together."""

    def __init__(self, slices: Slices, num: int, seed: int) -> None:
        self._slices, self._num, self._seed = slices, num, seed

    def __len__(self) -> int:
        return self._num

    def __iter__(self) -> Iterator[DAG]:
        yield from graphs_of(self._slices, "made", self._num, self._seed)


def audited(data: GraphDataset, slices: Slices, args: argparse.Namespace) -> dict[str, Any]:
    """Run the whole audit of a stream; return the figures, without the time of drawing samples."""
    train, held_out = (tuple(graphs_of(slices, p, args.num, args.seed)) for p in ("train", "test"))
    made = Stream(slices, args.stream, args.seed)
    real: dict[Split, tuple[DAG, ...]] = {"train": train, "val": (), "test": held_out}
    names: dict[Split, tuple[str, ...]] = {
        part: tuple(f"{part}-{i}" for i in range(len(dags))) for part, dags in real.items()
    }
    data = data.replaced(graphs=real, names=names, contents={}, extra_train=frozenset())
    start = time.process_time()
    for _ in made:
        pass
    drawn, before = time.process_time(), peak_mb()
    found = audit_of(data, made)
    attacks = () if found.leaks is None else found.leaks.attacks
    return {
        "graphs_of_each_real_set": args.num,
        "samples": args.stream,
        "seconds_of_audit": round(time.process_time() - 2 * drawn + start, 2),
        "held": found.held,
        "novel": found.novelty.novel,
        "areas": {a.name: round(a.auc, 4) for a in attacks},
        "looked_at": {a.name: a.sampled or args.stream for a in attacks},
        "peak_MB_before": before,
        "peak_MB": peak_mb(),
        "bar_MB": BAR_STREAM_MB,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--num", type=int, default=10_000, help="graphs of each set")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stream", type=int, metavar="N", help="audit N samples")
    args = parser.parse_args()
    measured = judged if args.stream is None else audited
    torch.set_num_threads(1)
    data = load_dataset("corpus")
    slices = Slices(data.graphs["train"], args.nodes)
    with threadpool_limits(1):
        found = measured(data, slices, args)
    print(json.dumps({"nodes_of_a_graph": args.nodes, **found}, indent=1))


if __name__ == "__main__":
    main()
