"""The fast model against the reference in one run: ratios of speed, growth with size, memory; JSON.

    python benchmarks/model.py --seconds 30 --tile DATA/flowgraphs/tpu_tile \
        --na-edge DATA/flowgraphs/dgrl_cg/nasbench201s

Both models have about half a million parameters. Every (model, set) runs in a process of its own,
one after another, so that peak memory is its own. Times are given by the wall clock and by the
processor; ratios are of processor time with ``--threads 1`` and of wall-clock time otherwise,
because a machine with other work on it makes the wall clock a poor judge. An epoch covers every
decision of every graph: the reference's ``budget``, by which it would look at a random part of the
prefixes of a large batch, is off, and its batches are small enough to fit into memory without it.
``--precision`` is that of training, for both models, as ``training.precision``; growth is measured
in single precision. Both models sample in single precision; the reference's usual double precision
stands beside it (``sampling_float64``).
"""

import argparse
import json
import multiprocessing
import platform
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from layerdag.cli.main import limit_openmp_spin

# Of the widths that fill the processor's vectors (multiples of 16), those whose parameters on TPU
# Tile are nearest to the fast model's: 504 k and 501 k.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "reference": {
        "layer_size": {"width": 96},
        "node": {"width": 80},
        "edge": {"width": 80},
        "budget": 0,
        "sampling_precision": "float32",
    },
    "fast": {"depth": 2},
}
# Nodes of a micro-batch. On TPU Tile an epoch takes the fast model an eighth longer with 1,350, the
# reference a twentieth with 1,300; memory, 6 GB at 1,300 nodes of NA-Edge, forbids it more there.
TRAINING_NODES = {
    "reference": {"tile": 2_600, "wide": 1_300, "na_edge": 1_300},
    "fast": {"tile": 4_000, "wide": 4_000, "na_edge": 4_000},
}
SAMPLING_BATCHES = {"reference": (16, 64), "fast": (64, 512, 1024)}
TRAINING_SIZES = (50, 200, 1000, 5000)
SAMPLING_SIZES = (50, 200, 1000, 10_000)


@dataclass(frozen=True)
class Shape:
    """Random graphs with ``layers`` layers of ``width`` nodes, ends included."""

    layers: tuple[int, int]
    width: tuple[int, int]
    attributes: tuple[int, ...]
    graphs: int


SHAPES = {
    # Means of TPU Tile (11 layers, 41 nodes); the 400 nodes in 40 layers; NA-Edge.
    "tile": Shape((6, 16), (2, 6), (47,), 504),
    "wide": Shape((40, 40), (10, 10), (47,), 64),
    "na_edge": Shape((145, 153), (1, 2), (9, 2, 5, 4, 5, 4, 4, 5, 4, 3, 3, 5, 4, 5), 64),
}


def random_graphs(shape: Shape) -> list[Any]:
    """Return the random DAGs of a shape, in layer order."""
    import numpy as np
    from random_graphs import random_dag

    rng = np.random.default_rng(0)
    layers_B = rng.integers(shape.layers[0], shape.layers[1] + 1, shape.graphs)
    widths = [rng.integers(shape.width[0], shape.width[1] + 1, n).tolist() for n in layers_B]
    return [random_dag(rng, w, list(shape.attributes), extra_edges=0.1) for w in widths]


def tile_graphs(folder: Path) -> list[Any]:
    """Return the training graphs of TPU Tile."""
    from layerdag.datasets.tpu_tile import load_tpu_tile

    return list(load_tpu_tile(folder).graphs["train"])


def na_edge_graphs(folder: Path) -> list[Any]:
    """Return as many training graphs of NA-Edge as there would be random ones.

    They are the first of a random split; all 1,550 would keep the reference busy for 20 minutes.
    """
    from layerdag.datasets.dgrl import load_dgrl

    return list(load_dgrl(folder).graphs["train"][: SHAPES["na_edge"].graphs])


def _graphs(set_name: str, options: argparse.Namespace) -> list[Any]:
    """Return the graphs of a set: real ones if their folder is given."""
    if set_name == "tile" and options.tile is not None:
        return tile_graphs(options.tile)
    if set_name == "na_edge" and options.na_edge is not None:
        return na_edge_graphs(options.na_edge)
    return random_graphs(SHAPES[set_name])


def _collated(graphs: list[Any]) -> Any:
    """Return graphs as one batch without conditions."""
    import torch

    from layerdag.dag.dag import DAGBatch

    none = torch.zeros(len(graphs), 0)
    return DAGBatch.from_dags(graphs, none, none.long())


def _model(name: str, graphs: list[Any], arguments: dict[str, Any]) -> Any:
    """Return a new model for these graphs."""
    from layerdag.dag.dag import GraphSizes
    from layerdag.dag.statistics import GraphStatistics
    from layerdag.models.spec import ModelSpec, build_model

    columns = zip(*(graph.x_NA.amax(dim=0).tolist() for graph in graphs), strict=True)
    sizes = GraphSizes(tuple(max(column) + 1 for column in columns))
    return build_model(ModelSpec(name, sizes, GraphStatistics.measure(graphs, sizes), arguments))


def _timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return (wall-clock seconds, processor seconds, result)."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - processor, result


def _peak_mb() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compare(name: str, set_name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train ``name`` for a while on a set, then sample at several batch sizes."""
    import torch

    from layerdag.training.batches import BucketedSource

    torch.set_num_threads(options.threads)
    graphs = _graphs(set_name, options)
    model = _model(name, graphs, ARGUMENTS[name])
    source = BucketedSource(_collated(graphs), 256, TRAINING_NODES[name][set_name], 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    generator = torch.Generator().manual_seed(0)

    def step(graphs_G: torch.Tensor) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16"):
            terms = model.losses(source.load(graphs_G), generator)
        optimizer.zero_grad()
        torch.stack([term.mean() for term in terms.values()]).sum().backward()
        optimizer.step()

    step(source.epoch_batches(0)[0])
    wall, processor, trained, epoch = 0.0, 0.0, 0, 0
    while wall < options.seconds:
        for graphs_G in source.epoch_batches(epoch):
            spent = _timed(partial(step, graphs_G))
            wall, processor = wall + spent[0], processor + spent[1]
            trained += graphs_G.numel()
            if wall >= options.seconds and trained >= len(graphs):
                break
        epoch += 1
    share = len(graphs) / trained
    return {
        "model": name,
        "set": set_name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "graphs": len(graphs),
        "nodes_per_graph": sum(graph.num_nodes for graph in graphs) / len(graphs),
        "epoch_wall_s": wall * share,
        "epoch_processor_s": processor * share,
        "sampling": [_sampling(model.eval(), graphs, n) for n in SAMPLING_BATCHES[name]],
        "sampling_float64": _in_double(name, model, graphs),
        "peak_mb": _peak_mb(),
    }


def _in_double(name: str, model: Any, graphs: list[Any]) -> list[dict[str, float]]:
    """Return the reference's speeds in its usual precision, for information."""
    if name != "reference":
        return []
    model.sampling_precision = "float64"
    return [_sampling(model.eval(), graphs, n) for n in SAMPLING_BATCHES[name]]


def _sampling(model: Any, graphs: list[Any], count: int) -> dict[str, float]:
    """Return the sampling speed at one batch size, in graphs of the set's mean size."""
    import torch

    from layerdag.models.base import SampleRequest

    none = torch.zeros(count, 0)
    mean = sum(graph.num_nodes for graph in graphs) / len(graphs)
    limit = max(graph.num_nodes for graph in graphs)
    request = SampleRequest(none, none.long(), tuple(range(count)), max_nodes=limit, max_layers=300)
    wall, processor, result = _timed(lambda: model.sample(request))
    drawn = sum(dag.num_nodes for dag in result.dags) / mean
    return {
        "batch": count,
        "mean_size_graphs_per_wall_s": drawn / wall,
        "mean_size_graphs_per_processor_s": drawn / processor,
        "nodes_per_graph": drawn * mean / count,
    }


def training_cost(nodes: int, options: argparse.Namespace) -> dict[str, float]:
    """Return the cost of a training step per graph of ``nodes`` nodes, for the fast model."""
    import torch

    torch.set_num_threads(options.threads)
    width = 10
    attributes = (60, 8, 16, 16, 16)
    count = max(1, 2000 // nodes)
    graphs = random_graphs(Shape((nodes // width,) * 2, (width,) * 2, attributes, count))
    model, batch = _model("fast", graphs, {}), _collated(graphs)

    def step() -> None:
        terms = model.losses(batch, torch.Generator().manual_seed(0))
        torch.stack([term.mean() for term in terms.values()]).sum().backward()

    times = [_timed(step)[:2] for _ in range(4)]
    wall, processor = (min(column) / count for column in zip(*times, strict=True))
    return {"nodes": nodes, "wall_s": wall, "processor_s": processor, "peak_mb": _peak_mb()}


def sampling_cost(nodes: int, options: argparse.Namespace) -> dict[str, float]:
    """Return the cost of sampling per graph of ``nodes`` nodes in layers of ten, at batch 8."""
    import torch

    from layerdag.models.base import SampleRequest

    torch.set_num_threads(options.threads)
    width, count = 10, 8
    model = _model("fast", random_graphs(Shape((30, 30), (width,) * 2, (60, 8, 16, 16), 4)), {})
    with torch.no_grad():
        readout = model.heads.size_readout.project
        readout.weight.zero_()
        readout.bias.fill_(-1e9)[width] = 0.0
    none = torch.zeros(count, 0)
    request = SampleRequest(none, none.long(), tuple(range(count)), nodes, nodes)
    wall, processor, _ = _timed(lambda: model.eval().sample(request))
    return {
        "nodes": nodes,
        "wall_s": wall / count,
        "processor_s": processor / count,
        "peak_mb": _peak_mb(),
    }


def exponent(costs: list[dict[str, float]], key: str) -> float:
    """Return the slope of log cost over log nodes, by least squares."""
    import numpy as np

    nodes, cost = (np.log([row[name] for row in costs]) for name in ("nodes", key))
    return float(np.polyfit(nodes, cost, 1)[0])


def ratios(results: list[dict[str, Any]], clock: str) -> dict[str, dict[str, float]]:
    """Return how many times faster the fast model is on each set."""
    found = {}
    for name in dict.fromkeys(row["set"] for row in results):
        slow, fast = (
            next(row for row in results if (row["set"], row["model"]) == (name, model))
            for model in ("reference", "fast")
        )
        speed = f"mean_size_graphs_per_{clock}_s"
        found[name] = {
            "training": slow[f"epoch_{clock}_s"] / fast[f"epoch_{clock}_s"],
            "sampling": max(row[speed] for row in fast["sampling"])
            / max(row[speed] for row in slow["sampling"]),
        }
    return found


def main() -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--tile", type=Path, help="folder of TPU Tile; else random graphs like it")
    parser.add_argument("--na-edge", type=Path, help="folder of NA-Edge (dgrl); else random graphs")
    parser.add_argument(
        "--seconds", type=float, default=30, help="training time, at least an epoch"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--no-growth", dest="growth", action="store_false")
    options = parser.parse_args()
    limit_openmp_spin()  # as the command line does; the processes below inherit it
    spawn = multiprocessing.get_context("spawn")
    clock = "processor" if options.threads == 1 else "wall"
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:

        def alone(work: Callable[..., Any], *arguments: Any) -> Any:
            return pool.submit(work, *arguments, options).result()

        results = [alone(compare, model, name) for name in options.sets for model in ARGUMENTS]
        training = [alone(training_cost, n) for n in TRAINING_SIZES if options.growth]
        sampling = [alone(sampling_cost, n) for n in SAMPLING_SIZES if options.growth]
    report = {
        "machine": {
            "platform": platform.platform(),
            "threads": options.threads,
            "clock": clock,
            "training_precision": options.precision,
        },
        "times_faster": ratios(results, clock),
        "results": results,
        "growth": {"training": training, "sampling": sampling},
    }
    if options.growth:
        report["exponents"] = {
            "training": exponent(training, f"{clock}_s"),
            "sampling": exponent(sampling, f"{clock}_s"),
        }
    json.dump(report, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
