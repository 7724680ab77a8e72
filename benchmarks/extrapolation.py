#!/usr/bin/env python
"""Are sampled steps right that have many times the layers and nodes of any training graph?

    echo "{layers: [2, 3], test_layers: [12,16,20,24,28,32], pipeline: 1, rounds: 1}">deep.yaml
    layerdag workload corpus --space deep.yaml --num 1000 --seed 0 --out outputs/deeper
    layerdag train experiment=llm data.folder=outputs/deeper out=outputs/deeper-model
    python benchmarks/extrapolation.py outputs/deeper outputs/deeper-model/best

prints JSON. Training steps have two or three layers and at most 160 nodes. One step is sampled for
each test point of 600 to 1,200 nodes, asked for by the point's own conditions; layers are then
copied, so that what is compared are whole steps.

- ``mean_ratio``: test points are cut into two halves. The distances of the samples asked for one
  half to the steps of the other, over those of the steps of the first half themselves, mean over
  numbers of nodes, edges and layers, mean width, in- and out-degree and operator; both ways. 1 is
  what the right steps reach.
- ``by_depth``: the same in each fifth of the layers, for widths, degrees and operators.
- ``layers``: fraction with as many forward passes of attention as the point has layers;
- ``program``: fraction whose operators, edges and groups are exactly those of the point's step;
- ``novelty``: fraction of the nodes whose neighborhood of operators (radius 1, 2, 3) no training
  step has, beside the same of the right steps;
- ``makespan``: error of the simulated time, median and 90th percentile.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llm_steps import Outcome, fraction, quantiles

from layerdag.dag.dag import DAG
from layerdag.datasets.folder import load_folder
from layerdag.evaluation.metrics.base import AttributeView
from layerdag.evaluation.similarity import compare, compare_by_depth
from layerdag.graph.attributed_graph import AttributedGraph, read_json
from layerdag.graph.topology import neighborhood_colors
from layerdag.sampling.generation import sample_like
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import checkpoint_schema, load_checkpoint
from layerdag.workloads.llm_corpus import read_space

OPERATOR = (AttributeView("op"),)
SHAPE = (
    "nodes", "edges", "layers", "mean_width", "in_degree", "out_degree", "attribute:op",
)  # fmt: skip
RADII = (1, 2, 3)


@dataclass(frozen=True)
class Operators:
    """Gives whole steps operator codes in common.

    Attributes:
        codes: By operator; grows.
    """

    codes: dict[str, int] = field(default_factory=dict)

    def dag(self, graph: AttributedGraph) -> DAG:
        """Return the graph with its operators alone."""
        code_N = [self.codes.setdefault(op, len(self.codes)) for op in graph.categories["op"]]
        edge_index_2E = torch.from_numpy(graph.edge_index_2E)
        return DAG.build(torch.tensor(code_N)[:, None], edge_index_2E)


def main() -> None:
    """Sample, and print the figures."""
    args = _arguments()
    torch.set_num_threads(1)
    corpus = Path(args.corpus)
    manifest = json.loads((corpus / "corpus.json").read_text())
    machine = read_space(manifest["space"]).machine
    checkpoint = load_checkpoint(args.checkpoint)
    schema = checkpoint_schema(checkpoint)
    data = load_folder(corpus, labels=corpus / "labels.csv", numbers="relative", num_bins=48)
    operators = Operators()
    train = [operators.dag(_whole(schema, corpus, name)) for name in data.names["train"]]
    points, right = [], []
    for name, dag in zip(data.names["test"], data.graphs["test"], strict=True):
        whole = _whole(schema, corpus, name)
        if args.least <= whole.num_nodes <= args.most:
            points.append(dag)
            right.append(whole)
    known = set(schema.condition_names)
    rows = [{k: v for k, v in dag.conditions.items() if k in known} for dag in points]
    settings = GenerationSettings(
        seed=args.seed, temperature=args.temperature, best_of=1, guidance=1.0, max_nodes=400
    )
    made = sample_like(checkpoint.model.eval(), schema, rows, settings)
    samples = [schema.whole(schema.decode(one.dag)) for one in made]
    words: dict[str, int] = {}
    pairs = [
        (Outcome.of(sample, machine, words), Outcome.of(true, machine, words))
        for sample, true in zip(samples, right, strict=True)
    ]
    error = np.array([abs(own.makespan_s / true.makespan_s - 1) for own, true in pairs])
    layers = [float(dag.conditions["layers"]) for dag in points]
    drawn, real = [[operators.dag(g) for g in graphs] for graphs in (samples, right)]
    print(json.dumps({
        "corpus": manifest["parts"], "step": checkpoint.meta.step, "seed": args.seed,
        "temperature": args.temperature,
        "largest_training_step": max(dag.num_nodes for dag in train),
        "points": len(points),
        "nodes": [min(dag.num_nodes for dag in drawn), max(dag.num_nodes for dag in drawn)],
        "layers": fraction([own.attention == n for (own, _), n in zip(pairs, layers, strict=True)]),
        "program": fraction([own.colors == true.colors for own, true in pairs]),
        "makespan": quantiles(error),
        "novelty": _novelty(train, drawn), "novelty_of_right_steps": _novelty(train, real),
        **_similarity(drawn, real),
    }, indent=1))  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="folder of 'layerdag workload corpus' with test_layers")
    parser.add_argument("checkpoint", help="folder of a checkpoint")
    parser.add_argument("--least", type=int, default=600, help="nodes of a test point")
    parser.add_argument("--most", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=0.1)
    return parser.parse_args()


def _whole(schema: Any, corpus: Path, name: str) -> AttributedGraph:
    """Return the step of a point, all layers unrolled."""
    found: AttributedGraph = schema.whole(read_json(corpus / f"{name}.json.gz"))
    return found


def _novelty(train: Sequence[DAG], dags: Sequence[DAG]) -> list[float]:
    """Return the fraction of nodes in new neighborhoods for each radius, mean over graphs."""

    def colors(dag: DAG) -> np.ndarray:
        return neighborhood_colors(dag.x_NA[:, 0].numpy(), dag.edge_index_2E.numpy(), RADII[-1])

    known = [np.unique(np.concatenate(rows)) for rows in zip(*map(colors, train), strict=True)]
    new = [[1 - np.isin(colors(dag)[r], known[r]).mean() for r in RADII] for dag in dags]
    return [round(float(value), 4) for value in np.mean(new, axis=0)]


def _similarity(drawn: Sequence[DAG], real: Sequence[DAG]) -> dict[str, Any]:
    """Return mean ratios of whole steps and of fifths of their layers, over both ways."""
    whole, fifths = [], []
    for own, other in (
        (slice(0, None, 2), slice(1, None, 2)),
        (slice(1, None, 2), slice(0, None, 2)),
    ):
        sets = real[own], real[other], drawn[own]
        report = compare(*sets, OPERATOR, replicates=2)
        found = [report.row(name).ratio for name in SHAPE]
        whole.append(np.mean([ratio for ratio in found if ratio is not None]))
        bins = compare_by_depth(*sets, OPERATOR, replicates=2)
        fifths.append([np.nan if b.mean_ratio is None else b.mean_ratio for b in bins])
    return {
        "mean_ratio": round(float(np.mean(whole)), 3),
        "by_depth": [round(float(ratio), 3) for ratio in np.mean(fifths, axis=0)],
    }


if __name__ == "__main__":
    main()
