#!/usr/bin/env python
"""Does a completed job go on as the job went on whose first layers were given? As JSON.

    python benchmarks/completion.py --num 48

The first half of the layers of validation jobs is given. The operators of the nodes that come after
are compared with those of the job itself by the total variation of their frequencies: 0 is equal, 1
is disjoint. Beside it: samples for the same conditions without the prefix, cut at the same layer,
and the part of the training job that is nearest by the operators of its first half. Intervals are
bootstrap intervals (95 %) over jobs.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.cli.verbs import checkpoint_path
from layerdag.codec import AttributedGraph
from layerdag.datasets.schema import GraphSchema
from layerdag.datasets.sources import load_corpus
from layerdag.sampling import GenerationSettings, generate, sample_like
from layerdag.training import load_checkpoint

MAX_NODES = 300
RESAMPLES = 2000


def main() -> None:
    """Complete, sample, and print the distances."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", default="pretrained")
    parser.add_argument("--data", default="data")
    parser.add_argument("--num", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    data = load_corpus(args.data, max_nodes=MAX_NODES)
    checkpoint = load_checkpoint(checkpoint_path(args.checkpoint))
    schema = GraphSchema.from_dict(checkpoint.schema)
    order = numpy_generator(args.seed, "jobs").permutation(len(data.graphs["val"]))
    known = [data.schema.decode(dag) for dag in data.graphs["train"]]
    found: dict[str, list[float]] = {"completed": [], "conditions alone": [], "nearest job": []}
    sizes: list[float] = []
    for place in order[: args.num]:
        dag = data.graphs["val"][place]
        job = data.schema.decode(dag)
        half = max(1, dag.num_layers // 2)
        asked = {name: v for name, v in dag.conditions.items() if name in schema.condition_names}
        settings = GenerationSettings(
            num=1, seed=args.seed, conditions=asked, max_nodes=4 * MAX_NODES
        )
        completing = GenerationSettings(
            num=1, seed=args.seed, conditions=asked, max_nodes=4 * MAX_NODES, prefix=job,
            prefix_layers=half,
        )  # fmt: skip
        (completed,) = generate(checkpoint.model, schema, completing)
        (plain,) = sample_like(checkpoint.model, schema, [asked], settings)
        nearest = min(known, key=lambda other: _distance(job, other, slice(0, half)))
        rest = slice(half, None)
        found["completed"].append(_distance(job, completed.graph, rest))
        found["conditions alone"].append(_distance(job, plain.graph, rest))
        found["nearest job"].append(_distance(job, nearest, rest))
        sizes.append(completed.dag.num_nodes / dag.num_nodes)
    rng = numpy_generator(args.seed, "resamples")
    result = {"num": len(sizes), "seed": args.seed, "nodes_ratio_10_50_90": _quantiles(sizes)}
    result |= {name: _interval(values, rng) for name, values in found.items()}
    gain = np.subtract(found["conditions alone"], found["completed"])
    result["conditions alone less completed"] = _interval(gain, rng)
    print(json.dumps(result, indent=1))


def _distance(one: AttributedGraph, other: AttributedGraph, layers: slice) -> float:
    """Return the total variation of the operators in some layers; 1 where one has no node."""
    frequencies = [_frequencies(graph, layers) for graph in (one, other)]
    if not all(frequencies):
        return 1.0
    names = frequencies[0].keys() | frequencies[1].keys()
    return sum(abs(frequencies[0].get(n, 0) - frequencies[1].get(n, 0)) for n in names) / 2


def _frequencies(graph: AttributedGraph, layers: slice) -> dict[str, float]:
    """Return the share of each operator among the nodes of some layers."""
    inside = set(range(int(graph.layer_N.max()) + 1)[layers])
    layer_N = graph.layer_N.tolist()
    counts = Counter(
        op for op, at in zip(graph.categories["op"], layer_N, strict=True) if at in inside
    )
    return {name: count / counts.total() for name, count in counts.items()}


def _quantiles(values: Sequence[float]) -> list[float]:
    """Return the 10 %, 50 % and 90 % quantiles."""
    return [round(float(q), 3) for q in np.quantile(values, (0.1, 0.5, 0.9))]


def _interval(values: Sequence[float] | np.ndarray, rng: np.random.Generator) -> list[float]:
    """Return the mean and its 95 % interval over resamples."""
    value_B = np.asarray(values)
    rows_RB = rng.integers(0, len(value_B), (RESAMPLES, len(value_B)))
    low, high = np.quantile(value_B[rows_RB].mean(1), (0.025, 0.975))
    return [round(float(x), 3) for x in (value_B.mean(), low, high)]


if __name__ == "__main__":
    main()
