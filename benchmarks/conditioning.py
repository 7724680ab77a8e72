#!/usr/bin/env python
"""Do samples have the family and size they were asked for? As JSON, by guidance and best-of-n.

    python benchmarks/conditioning.py --num 48 --guidance 1 1.5 3 --best-of 1 4

The conditions are those of validation jobs. A sample counts as of the family of the training job
that is nearest to it by the operators it holds (cosine of the square roots of their counts); the
same rule on the real validation jobs gives the ceiling, and a seventh is chance. Sizes, for nodes
and layers: correlation of the logarithms of asked and found numbers, the median of their absolute
difference, the 10, 50 and 90 % quantiles of the ratio of found to asked ones, and the share of
samples within 10 %.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.datasets.corpus import load_corpus
from layerdag.runtime.rng import numpy_generator
from layerdag.sampling.generation import sample_rows
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.training.checkpoint import checkpoint_path, load_checkpoint

MAX_NODES = 400


def main() -> None:
    """Sample for each weight and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", default="pretrained")
    parser.add_argument("--data", default="data")
    parser.add_argument("--num", type=int, default=48)
    parser.add_argument("--guidance", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--best-of", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    data = load_corpus(args.data, max_nodes=MAX_NODES)
    checkpoint = load_checkpoint(checkpoint_path(args.checkpoint))
    schema = GraphSchema.from_dict(checkpoint.schema)
    judge = _Nearest(data.schema, data.graphs["train"])
    order = numpy_generator(args.seed, "conditions").permutation(len(data.graphs["val"]))
    asked = [data.graphs["val"][i] for i in order[: args.num]]
    families = [dag.conditions["family"] for dag in asked]
    result = {
        "num": len(asked),
        "seed": args.seed,
        "real": {"family": judge.share(data.schema, asked, families)},
    }
    rows = [dag.conditions for dag in asked]
    for weight, best_of in product(args.guidance, args.best_of):
        settings = GenerationSettings(
            seed=args.seed, guidance=weight, best_of=best_of, max_nodes=4 * MAX_NODES
        )
        made = [s.dag for s in sample_rows(checkpoint.model, schema, rows, settings)]
        result[f"guidance {weight:g}, best of {best_of}"] = {
            "family": judge.share(schema, made, families),
            **_sizes(asked, made),
        }
    print(json.dumps(result, indent=1))


def _sizes(asked: Sequence[DAG], made: Sequence[DAG]) -> dict[str, object]:
    """Return how near the samples come to the numbers of nodes and layers they were asked for."""
    return {
        **_nearness("nodes", *([dag.num_nodes for dag in dags] for dags in (asked, made))),
        **_nearness("layers", *([dag.num_layers for dag in dags] for dags in (asked, made))),
    }


def _nearness(name: str, asked: Sequence[int], made: Sequence[int]) -> dict[str, object]:
    asked_B, made_B = np.log(asked), np.log(made)
    ratio_B = np.exp(made_B - asked_B)
    return {
        f"{name}_log_correlation": round(float(np.corrcoef(asked_B, made_B)[0, 1]), 3),
        f"{name}_log_error": round(float(np.median(np.abs(asked_B - made_B))), 3),
        f"{name}_ratio": np.quantile(ratio_B, (0.1, 0.5, 0.9)).round(3).tolist(),
        f"{name}_within_tenth": round(float(np.mean(np.abs(ratio_B - 1) <= 0.1)), 3),
    }


class _Nearest:
    """The family of the training job with the most similar operators."""

    def __init__(self, schema: GraphSchema, train: Sequence[DAG]) -> None:
        counts = [_operators(schema, dag) for dag in train]
        self._place = {op: i for i, op in enumerate(sorted({op for c in counts for op in c}))}
        self._train_BK = np.stack([self._unit(c) for c in counts])
        self._families = [dag.conditions["family"] for dag in train]

    def share(self, schema: GraphSchema, dags: Sequence[DAG], families: Sequence[object]) -> float:
        """Return the share of ``dags`` whose nearest training job is of the wanted family."""
        units_BK = np.stack([self._unit(_operators(schema, dag)) for dag in dags])
        nearest_B = (units_BK @ self._train_BK.T).argmax(axis=1)
        hits = [self._families[i] == f for i, f in zip(nearest_B, families, strict=True)]
        return round(float(np.mean(hits)), 3)

    def _unit(self, counts: Counter[str]) -> np.ndarray:
        vector_K = np.zeros(len(self._place) + 1)
        for operator, count in counts.items():
            vector_K[self._place.get(operator, -1)] += np.sqrt(count)
        return vector_K / np.linalg.norm(vector_K)


def _operators(schema: GraphSchema, dag: DAG) -> Counter[str]:
    """Return how often each operator occurs."""
    return Counter(schema.decode(dag).categories["op"])


if __name__ == "__main__":
    main()
