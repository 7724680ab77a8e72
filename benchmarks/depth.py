#!/usr/bin/env python
"""Have jobs deeper than any training job the layers asked for, made of blocks that are known?

    layerdag train experiment=pretrained init=pretrained data.blocks=rolled out=outputs/rolled
    python benchmarks/depth.py outputs/rolled/best --family gpt --times 4 --num 64

prints JSON. Samples are requested with ``--times`` as many copies of their blocks as any training
job of the family has, and beside them test jobs of the family are measured as they are:

- ``repeats``: fraction of jobs with blocks;
- ``layers``: of these, the fraction whose operators of attention come as often as blocks are
  copied, or a multiple of it (activations computed twice, micro-batches);
- ``block``: of these, the fraction whose largest block is one of a training job: connected inside
  a copy, with equal operators and edges;
- ``novelty``: fraction of the nodes of the unrolled graphs that stand in a neighborhood of
  operators (radius 1) that no training job has, mean over jobs.

With the 95 % intervals of Wilson for fractions of jobs.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import binomtest

from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.dataset import GraphDataset
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.rolled_blocks import BLOCK, OUTSIDE, REPEATS, copies_of, in_copy
from layerdag.graph.topology import neighborhood_colors
from layerdag.sampling.generation import generate
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import checkpoint_path, checkpoint_schema, load_checkpoint

SOFTMAX = ("aten::softmax", "aten::_softmax", "aten::_safe_softmax")  # not that of the loss
FUSED = "scaled_dot_product"
MAX_NODES = 1200


def main() -> None:
    """Sample, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", help="a checkpoint of rolled blocks")
    parser.add_argument("--data", default="data")
    parser.add_argument("--further", help="corpus folder of further training jobs")
    parser.add_argument("--family", default="gpt")
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--num", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    data = load_corpus(
        args.data, max_nodes=MAX_NODES, further=args.further, families=(args.family,),
        blocks="rolled",
    )  # fmt: skip
    checkpoint = load_checkpoint(checkpoint_path(args.checkpoint))
    schema = checkpoint_schema(checkpoint)
    train, test = ([data.schema.decode(dag) for dag in data.graphs[s]] for s in ("train", "test"))
    most = max(int(float(graph.conditions[REPEATS])) for graph in train)
    settings = GenerationSettings(
        num=args.num, seed=args.seed,
        conditions={"family": args.family, REPEATS: float(args.times * most)},
    )  # fmt: skip
    samples = list(generate(checkpoint.model, schema, settings))
    known = Known.of(data, train)
    print(json.dumps({
        "train": {"jobs": len(train), "most repeats": most},
        "test": known.figures(test, [data.schema.whole(graph) for graph in test]),
        "samples": {
            "repeats requested": args.times * most,
            **known.figures(
                [schema.decode(sample.dag) for sample in samples],
                [sample.graph for sample in samples],
            ),
            "nodes": np.percentile([s.graph.num_nodes for s in samples], (10, 50, 90)).tolist(),
        },
    }, indent=1))  # fmt: skip


class Known:
    """What training jobs are made of."""

    def __init__(self, blocks: Iterable[int], colors: Iterable[int], words: Sequence[str]) -> None:
        self._blocks, self._colors = set(blocks), set(colors)
        self._code = {word: code for code, word in enumerate(words)}

    @classmethod
    def of(cls, data: GraphDataset, train: Sequence[AttributedGraph]) -> "Known":
        """Return what the training jobs of a data set are made of."""
        words = sorted({word for graph in train for word in graph.categories["op"]})
        known = cls((), (), words)
        blocks = [known._largest_block(graph) for graph in train if copies_of(graph).max() > 1]
        colors = [known._neighborhoods(data.schema.whole(graph)) for graph in train]
        return cls([b for b in blocks if b is not None], np.concatenate(colors).tolist(), words)

    def figures(
        self, rolled: Sequence[AttributedGraph], whole: Sequence[AttributedGraph]
    ) -> dict[str, Any]:
        """Return the figures of jobs, which are given with blocks rolled and unrolled."""
        deep = [
            (small, large)
            for small, large in zip(rolled, whole, strict=True)
            if copies_of(small).max() > 1
        ]
        blocks = [self._largest_block(small) for small, _ in deep]
        new = [1 - np.isin(self._neighborhoods(g), [*self._colors]).mean() for g in whole]
        return {
            "jobs": len(rolled),
            "repeats": _fraction([copies_of(small).max() > 1 for small in rolled]),
            "layers": _fraction([_has_layers(small, large) for small, large in deep]),
            "block": _fraction([block in self._blocks for block in blocks]),
            "novelty": float(np.mean(new)),
        }

    def _codes(self, graph: AttributedGraph) -> np.ndarray:
        return np.array([self._code.get(w, len(self._code)) for w in graph.categories["op"]])

    def _neighborhoods(self, graph: AttributedGraph) -> np.ndarray:
        """Return the color of each node's neighborhood, radius 1."""
        return neighborhood_colors(self._codes(graph), graph.edge_index_2E, 1)[1]

    def _largest_block(self, graph: AttributedGraph) -> int | None:
        """Return a hash of the largest connected part of one copy, None if nothing is in blocks."""
        inside_N = np.array([word != OUTSIDE for word in graph.categories[BLOCK]])
        if not inside_N.any():
            return None
        plain_T = np.array(
            [in_copy(t, "data") or in_copy(t, "control") for t in graph.edge_type_names]
        )
        within_E = plain_T[graph.edge_type_E] & inside_N[graph.edge_index_2E].all(axis=0)
        ends_2E = graph.edge_index_2E[:, within_E]
        ones_E = np.ones(ends_2E.shape[1])
        shape = (graph.num_nodes, graph.num_nodes)
        _, part_N = connected_components(coo_array((ones_E, tuple(ends_2E)), shape=shape))
        sizes = np.bincount(part_N[inside_N], minlength=part_N.max() + 1)
        mine_N = inside_N & (part_N == int(np.argmax(sizes)))
        rounds = int(mine_N.sum())
        colors_N = neighborhood_colors(self._codes(graph), ends_2E, min(rounds, 32))[-1]
        return hash(tuple(sorted(colors_N[mine_N].tolist())))


def _has_layers(small: AttributedGraph, large: AttributedGraph) -> bool:
    """Return whether the operators of attention are a multiple of the copies of blocks."""
    count = sum(
        op in SOFTMAX or (FUSED in op and "backward" not in op) for op in large.categories["op"]
    )
    return count > 0 and count % int(copies_of(small).max()) == 0


def _fraction(hits: Sequence[bool]) -> list[float]:
    """Return a fraction with the ends of its interval."""
    if not hits:
        return []
    interval = binomtest(sum(hits), len(hits)).proportion_ci(method="wilson")
    return [sum(hits) / len(hits), interval.low, interval.high]


if __name__ == "__main__":
    main()
