"""Throughput and peak memory of preprocessing, training and sampling, as JSON.

    python benchmarks/training.py --models reference fast --shapes tile deep

Graphs are random, of the shapes of real sets, so that nothing but the package is needed. Every
(model, shape) runs in a process of its own, which makes the peak memory its own.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerdag.cli.main import limit_openmp_spin


@dataclass(frozen=True)
class Shape:
    """A kind of graphs: the ranges of layers and widths, and the codes of the attributes."""

    layers: tuple[int, int]
    width: tuple[int, int]
    attributes: tuple[int, ...]


SHAPES = {
    # About the means of TPU Tile, NA-Edge and jobs of collected execution traces.
    "tile": Shape((6, 16), (2, 6), (47,)),
    "deep": Shape((140, 160), (1, 2), (9, 2, 5, 4, 5, 4, 4, 5, 4, 3, 3, 5, 4, 5)),
    "trace": Shape((30, 80), (1, 8), (60, 4, 8, 5, 3, 6, 16, 16, 16, 16)),
}


def make_graphs(shape: Shape, count: int) -> list[Any]:
    """Return ``count`` random DAGs of a shape, in random node order."""
    import numpy as np
    import torch
    from random_graphs import random_dag

    rng = np.random.default_rng(0)
    graphs = []
    for _ in range(count):
        layers = int(rng.integers(shape.layers[0], shape.layers[1] + 1))
        widths = rng.integers(shape.width[0], shape.width[1] + 1, layers).tolist()
        dag = random_dag(rng, widths, list(shape.attributes), extra_edges=0.1)
        graphs.append(dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes))))
    return graphs


def measure(model: str, shape_name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one model on one shape of graphs."""
    import torch

    from layerdag.dag.dag import DAGBatch, GraphSizes
    from layerdag.dag.statistics import GraphStatistics
    from layerdag.models.spec import ModelSpec, build_model
    from layerdag.training.loop import train
    from layerdag.training.run import TrainingRun
    from layerdag.training.settings import TrainSettings

    torch.set_num_threads(options.threads)
    shape = SHAPES[shape_name]
    graphs = make_graphs(shape, options.graphs)
    start = time.perf_counter()
    ordered = [graph.in_layer_order() for graph in graphs]
    none = torch.zeros(len(ordered), 0)
    data = DAGBatch.from_dags(ordered, none, none.long())
    sizes = GraphSizes(shape.attributes)
    spec = ModelSpec(model, sizes, GraphStatistics.measure(ordered, sizes))
    preprocessing = time.perf_counter() - start
    base_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        job = TrainingRun(spec, data, data, Path(folder))
        settings = TrainSettings(
            max_steps=None,
            max_seconds=options.seconds,
            batch_graphs=options.batch,
            evaluate_every=10**9,
            log_every=1,
            precision="float32",
        )
        recorder = _Speeds()
        train(job, settings, loggers=[recorder])
        trained = _load(Path(folder) / "best")
    training_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sampling = _sample(trained, data.num_nodes // data.num_graphs, options.samples)
    return {
        "model": model,
        "shape": shape_name,
        "graphs": len(graphs),
        "nodes_per_graph": data.num_nodes / data.num_graphs,
        "parameters": sum(p.numel() for p in build_model(spec).parameters()),
        "preprocessing_graphs_per_second": len(graphs) / preprocessing,
        "training_graphs_per_second": recorder.median(),
        "seconds_per_epoch": len(graphs) / recorder.median(),
        **sampling,
        "memory_before_training_mb": base_memory / 1024,
        "peak_memory_training_mb": training_memory / 1024,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


class _Speeds:
    """A logger that keeps the training speeds."""

    def __init__(self) -> None:
        self.speeds: list[float] = []

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the speed of a window."""
        if "train/graphs_per_second" in values:
            self.speeds.append(values["train/graphs_per_second"])

    def picture(self, step: int, name: str, file: Path) -> None:
        """Ignore pictures."""

    def close(self) -> None:
        """There is nothing to let go of."""

    def median(self) -> float:
        """Return the median speed of a step, the first (slow) one among many."""
        return sorted(self.speeds)[len(self.speeds) // 2]


def _load(path: Path) -> Any:
    """Return the model of a checkpoint."""
    from layerdag.training.checkpoint import load_checkpoint

    return load_checkpoint(path).model


def _sample(model: Any, mean_nodes: int, count: int) -> dict[str, float]:
    """Return the sampling speed at one batch of ``count`` graphs, by graphs and by nodes."""
    import torch

    from layerdag.models.base import SampleRequest

    none = torch.zeros(count, 0)
    request = SampleRequest(
        none, none.long(), tuple(range(count)), max_nodes=2 * mean_nodes, max_layers=200
    )
    start = time.perf_counter()
    result = model.sample(request)
    seconds = time.perf_counter() - start
    nodes = sum(dag.num_nodes for dag in result.dags)
    return {
        "sampling_graphs_per_second": count / seconds,
        "sampling_nodes_per_second": nodes / seconds,
        "sampled_nodes_per_graph": nodes / count,
        "sampled_truncated": sum(result.truncated),
    }


def main() -> int:
    """Measure what was asked for and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["reference", "fast"])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--graphs", type=int, default=64, help="graphs of each set")
    parser.add_argument("--batch", type=int, default=16, help="graphs of a training batch")
    parser.add_argument("--samples", type=int, default=16, help="graphs sampled at once")
    parser.add_argument("--seconds", type=float, default=30, help="training time of each model")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    limit_openmp_spin()  # as `layerdag train` does; the processes below inherit it
    tasks = [(model, shape, options) for shape in options.shapes for model in options.models]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        results = [pool.submit(measure, *task).result() for task in tasks]
    machine = {"platform": platform.platform(), "threads": options.threads}
    json.dump({"machine": machine, "results": results}, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
