#!/usr/bin/env python
"""Does a completed or edited job go on as the job itself, of which some layers were given? As JSON.

    python benchmarks/completion.py --num 48
    python benchmarks/completion.py --resampled middle --num 24

The first half of the layers of validation jobs is given, or the first and the last third. The
operators of the other nodes are compared with those of the job itself by the total variation
of their frequencies: 0 is equal, 1 is disjoint. Beside it: samples for the same conditions
without given layers, cut at the same layers, and that part of the training job that is nearest by
the operators of its given layers.

With the middle resampled, a kept later node whose parents were in part removed is at a seam. It
and its neighbors are known if some training job has a node of this operator whose parents and
whose children have these operators. The share of seams that are known is printed beside that of the
same nodes in the job itself, and likewise the share of new and of removed nodes.

Intervals are bootstrap intervals (95 %) over jobs.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from layerdag.datasets.corpus import load_corpus
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.runtime.rng import numpy_generator
from layerdag.sampling.generation import generate, sample_like
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import checkpoint_path, load_checkpoint

MAX_NODES = 300
RESAMPLES = 2000

Neighborhood = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Operator of a node, of its parents and of its children."""


def main() -> None:
    """Complete or edit, sample, and print the distances."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", default="pretrained")
    parser.add_argument("--data", default="data")
    parser.add_argument("--resampled", choices=("rest", "middle"), default="rest")
    parser.add_argument("--num", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    data = load_corpus(args.data, max_nodes=MAX_NODES)
    checkpoint = load_checkpoint(checkpoint_path(args.checkpoint))
    schema = GraphSchema.from_dict(checkpoint.schema)
    order = numpy_generator(args.seed, "jobs").permutation(len(data.graphs["val"]))
    known = [data.schema.decode(dag) for dag in data.graphs["train"]]
    seen = {neighborhood for graph in known for neighborhood in _neighborhoods(graph)}
    cut = {"rest": _second_half, "middle": _middle_third}[args.resampled]
    made = "completed" if args.resampled == "rest" else "edited"
    found: dict[str, list[float]] = defaultdict(list)
    sizes: list[float] = []
    for place in order[: args.num]:
        dag = data.graphs["val"][place]
        job = data.schema.decode(dag)
        removed = cut(dag.num_layers)
        asked = {name: v for name, v in dag.conditions.items() if name in schema.condition_names}
        settings = GenerationSettings(
            num=1, seed=args.seed, conditions=asked, max_nodes=4 * MAX_NODES
        )
        giving = GenerationSettings(
            num=1, seed=args.seed, conditions=asked, max_nodes=4 * MAX_NODES, prefix=job,
            prefix_layers=removed.start,
            suffix_layers=None if removed.stop is None else dag.num_layers - removed.stop,
        )  # fmt: skip
        (sample,) = generate(checkpoint.model, schema, giving)
        (plain,) = sample_like(checkpoint.model, schema, [asked], settings)
        nearest, its = min(
            ((other, _same_place(removed, other)) for other in known),
            key=lambda other: _distance_of_rest(job, removed, *other),
        )
        found[made].append(_distance(job, removed, sample.graph, removed))
        found["conditions alone"].append(_distance(job, removed, plain.graph, removed))
        found["nearest job"].append(_distance(job, removed, nearest, its))
        sizes.append(sample.dag.num_nodes / dag.num_nodes)
        if removed.stop is not None:
            shares = _known_shares(job, sample.graph, removed, seen)
            for name, value in shares.items():
                found[name].append(value)
    rng = numpy_generator(args.seed, "resamples")
    result = {"num": len(sizes), "seed": args.seed, "nodes_ratio_10_50_90": _quantiles(sizes)}
    result |= {name: _interval(values, rng) for name, values in found.items()}
    gain = np.subtract(found["conditions alone"], found[made])
    result[f"conditions alone less {made}"] = _interval(gain, rng)
    print(json.dumps(result, indent=1))


def _second_half(layers: int) -> slice:
    """Return the layers after the first half of so many."""
    return slice(max(1, layers // 2), None)


def _middle_third(layers: int) -> slice:
    """Return the layers between the first and the last third of so many."""
    third = max(1, layers // 3)
    return slice(third, layers - third)


def _same_place(removed: slice, other: AttributedGraph) -> slice:
    """Return the layers of another job: those of the same numbers, or the middle third of its."""
    return removed if removed.stop is None else _middle_third(_layers(other))


def _layers(graph: AttributedGraph) -> int:
    """Return the number of layers of a graph."""
    return int(graph.layer_N.max()) + 1


def _distance_of_rest(
    one: AttributedGraph, first: slice, other: AttributedGraph, second: slice
) -> float:
    """Return the distance of what is given of one graph from the same of another."""
    before = _distance(one, slice(0, first.start), other, slice(0, second.start))
    if first.stop is None:
        return before
    return before + _distance(one, slice(first.stop, None), other, slice(second.stop, None))


def _known_shares(
    job: AttributedGraph,
    sample: AttributedGraph,
    removed: slice,
    seen: set[Neighborhood],
) -> dict[str, float]:
    """Return which shares of the nodes at seams and inside are known, of the sample and the job."""
    shares = {}
    for name, graph in {"edited": sample, "real": job}.items():
        inside_N = (graph.layer_N >= removed.start) & (graph.layer_N < removed.stop)
        source_E, target_E = graph.edge_index_2E
        seam_N = np.zeros(graph.num_nodes, dtype=bool)
        seam_N[target_E[inside_N[source_E] & (graph.layer_N[target_E] >= removed.stop)]] = True
        known_N = np.array([neighborhood in seen for neighborhood in _neighborhoods(graph)])
        shares[f"known at seams, {name}"] = float(known_N[seam_N].mean())
        shares[f"known inside, {name}"] = float(known_N[inside_N].mean())
    return shares


def _neighborhoods(graph: AttributedGraph) -> list[Neighborhood]:
    """Return the neighborhood of each node."""
    operators = graph.categories["op"]
    parents: list[list[str]] = [[] for _ in operators]
    children: list[list[str]] = [[] for _ in operators]
    for source, target in graph.edge_index_2E.T.tolist():
        parents[target].append(operators[source])
        children[source].append(operators[target])
    return [
        (operator, tuple(sorted(before)), tuple(sorted(after)))
        for operator, before, after in zip(operators, parents, children, strict=True)
    ]


def _distance(one: AttributedGraph, first: slice, other: AttributedGraph, second: slice) -> float:
    """Return the total variation of the operators in some layers; 1 where one has no node."""
    frequencies = [_frequencies(one, first), _frequencies(other, second)]
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
