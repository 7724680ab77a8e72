"""A layerwise Markov model: tables of counts, each decision given one or two others.

The size of a layer follows from that of the layer before, a node's kind from that of its first
parent, its in-degree from its kind, and the layers of further parents from how many layers they
usually lie above. Which node of a layer is the parent is left to chance.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable
from typing import Any

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.runtime.rng import numpy_generator

MOST_NODES = 500
ROOT = -1


class Tables:
    """Counts of values, by name and context."""

    def __init__(self) -> None:
        self.counts: dict[Hashable, Counter[int]] = defaultdict(Counter)

    def add(self, name: str, context: Hashable, value: int) -> None:
        """Count a value in its context."""
        self.counts[name, context][value] += 1

    def draw(self, name: str, context: Hashable, rng: np.random.Generator) -> int:
        """Return a value in proportion to its count; 0 in a context without any."""
        counter = self.counts.get((name, context))
        if not counter:
            return 0
        values, counts = zip(*sorted(counter.items()), strict=True)
        return int(rng.choice(values, p=np.array(counts) / sum(counts)))


class Markov:
    """Draws graphs from the tables."""

    steps = 0

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.parameters = sum(len(counter) for counter in tables.counts.values())

    def sample(self, num: int, seed: int) -> list[DAG | None]:
        """Return graphs."""
        return [self._one(numpy_generator(seed, "markov", i)) for i in range(num)]

    def _one(self, rng: np.random.Generator) -> DAG:
        layers: list[list[int]] = []
        kinds: list[int] = []
        edges: list[tuple[int, int]] = []
        size = self.tables.draw("size", 0, rng)
        while size and len(kinds) < MOST_NODES:
            first = len(kinds)
            for node in range(first, first + size):
                parents = self._parents(layers, kinds, rng)
                context = kinds[parents[0]] if parents else ROOT
                kinds.append(self.tables.draw("kind", context, rng))
                edges += [(parent, node) for parent in parents]
            layers.append(list(range(first, first + size)))
            size = self.tables.draw("size", size, rng)
        edge_index_2E = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
        return DAG.build(torch.tensor(kinds)[:, None], edge_index_2E)

    def _parents(
        self, layers: list[list[int]], kinds: list[int], rng: np.random.Generator
    ) -> list[int]:
        """Return the parents of the next node, the one in the layer before first."""
        if not layers:
            return []
        parents = [int(rng.choice(layers[-1]))]
        degree = self.tables.draw("degree", kinds[parents[0]], rng)
        for _ in range(4 * degree):  # a layer may hold no node that is not chosen yet
            if len(parents) >= degree:
                break
            above = min(self.tables.draw("above", 0, rng), len(layers)) or 1
            node = int(rng.choice(layers[-above]))
            if node not in parents:
                parents.append(node)
        return parents


def fit_markov(data: GraphDataset, seconds: float, seed: int, **settings: Any) -> Markov:
    """Count the training graphs; time and seed change nothing."""
    tables = Tables()
    for dag in data.graphs["train"]:
        _count(dag, tables)
    return Markov(tables)


def _count(dag: DAG, tables: Tables) -> None:
    layer_N, kind_N = dag.layer_N.tolist(), dag.x_NA[:, 0].tolist()
    sizes = [0, *np.bincount(layer_N).tolist(), 0]
    for before, size in itertools.pairwise(sizes):
        tables.add("size", before, size)
    parents: dict[int, list[int]] = defaultdict(list)
    for source, target in dag.edge_index_2E.T.tolist():
        parents[target].append(source)
        tables.add("above", 0, layer_N[target] - layer_N[source])
    for node, kind in enumerate(kind_N):
        if not parents[node]:
            tables.add("kind", ROOT, kind)
            continue
        first = max(parents[node], key=lambda parent: layer_N[parent])
        tables.add("kind", kind_N[first], kind)
        tables.add("degree", kind_N[first], len(parents[node]))
