"""Recipes of WfGen: a real graph in which parts that repeat are repeated more or less often.

Coleman et al., "WfCommons: A Framework for Enabling Scientific Workflow Research and Development"
(FGCS 2022), and WfChef (eScience 2021): two nodes of one type hash (kind, and the same above and
below, all the way) are occurrences of one pattern. What only one of them has above and below it is
copied, with edges to the same nodes outside, or removed, until the graph has the number of nodes
that is asked for. Nothing is learned. Sizes that are asked for are those of training graphs; the
graph to start from is one of the ten nearest in size that are not of that size.

Shape letters: M nodes of an occurrence, N nodes.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.datasets.dataset import GraphDataset
from layerdag.evaluation.metrics.neighborhoods import type_hashes
from layerdag.runtime.rng import numpy_generator

from ._base import dag_of, padded

NEAREST = 10
MOST_CHANGES = 100
PAIRS = 50
"""Pairs of nodes that are looked at for an occurrence, drawn at random where there are more."""


class Recipes:
    """Changes training graphs."""

    parameters, steps = 0, 0

    def __init__(self, dags: Sequence[DAG]) -> None:
        self.dags = dags
        self.size_B = np.array([dag.num_nodes for dag in dags])

    def sample(self, num: int, seed: int) -> list[DAG | None]:
        """Return changed training graphs."""
        return [self._one(numpy_generator(seed, "recipes", i)) for i in range(num)]

    def _one(self, rng: np.random.Generator) -> DAG:
        asked = int(rng.choice(self.size_B))
        others_B = np.flatnonzero(self.size_B != asked)
        if not others_B.size:
            return self.dags[int(rng.integers(len(self.dags)))]
        away_B = abs(self.size_B[others_B] - asked) + 0.5 * rng.random(others_B.size)
        nearest_B = others_B[np.argsort(away_B)[:NEAREST]]
        return resized(self.dags[int(rng.choice(nearest_B))], asked, rng)


def resized(dag: DAG, asked: int, rng: np.random.Generator) -> DAG:
    """Return the graph with occurrences copied or removed, as near to a size as they allow."""
    for _ in range(MOST_CHANGES):
        missing = asked - dag.num_nodes
        found = [part_M for part_M in occurrences(dag, rng) if len(part_M) <= abs(missing)]
        if not missing or not found:
            break
        part_M = found[int(rng.integers(len(found)))]
        dag = _copied(dag, part_M) if missing > 0 else _without(dag, part_M)
    return dag


def occurrences(dag: DAG, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the nodes of parts of which there is another in the graph."""
    alike: dict[int, list[int]] = defaultdict(list)
    for node, word in enumerate(type_hashes(GraphSet.from_dags([dag])).tolist()):
        alike[word].append(node)
    pairs = [pair for nodes in alike.values() for pair in permutations(nodes, 2)]
    chosen = rng.permutation(len(pairs))[:PAIRS].tolist()
    near_NN = _above_or_below(dag)
    parts = [near_NN[pairs[i][0]] & ~near_NN[pairs[i][1]] for i in chosen]
    return [part_N.nonzero()[0] for part_N in parts]


def _above_or_below(dag: DAG) -> np.ndarray:
    """Return which nodes lie on a path with each node, itself included, bool (N, N)."""
    above_NN = np.eye(dag.num_nodes, dtype=bool)
    source_E, target_E = dag.edge_index_2E.numpy()
    for edge in np.argsort(dag.layer_N.numpy()[target_E], kind="stable").tolist():
        above_NN[target_E[edge]] |= above_NN[source_E[edge]]
    found_NN: np.ndarray = above_NN | above_NN.T
    return found_NN


def _copied(dag: DAG, part_M: np.ndarray) -> DAG:
    """Return the graph with copies of nodes; edges that leave them go to the same nodes."""
    kind_1N, edge_1NN, _ = padded([dag], dag.num_nodes)
    part = torch.from_numpy(part_M)
    edge_NN = edge_1NN[0]
    into_MN = edge_NN[part].clone()
    inside_MM = into_MN[:, part].clone()
    into_MN[:, part] = 0  # copies are joined to copies, and not to what they are copies of
    from_NM = edge_NN[:, part].clone()
    from_NM[part] = 0
    whole = torch.cat(
        [torch.cat([edge_NN, from_NM], dim=1), torch.cat([into_MN, inside_MM], dim=1)]
    )
    found = dag_of(torch.cat([kind_1N[0], kind_1N[0][part]]), whole)
    return dag if found is None else found


def _without(dag: DAG, part_M: np.ndarray) -> DAG:
    """Return the graph without these nodes."""
    kind_1N, edge_1NN, _ = padded([dag], dag.num_nodes)
    kept = torch.from_numpy(np.setdiff1d(np.arange(dag.num_nodes), part_M))
    found = dag_of(kind_1N[0][kept], edge_1NN[0][kept][:, kept])
    return dag if found is None else found


def fit_recipes(data: GraphDataset, seconds: float, seed: int, **settings: Any) -> Recipes:
    """Keep the training graphs; time and seed change nothing."""
    return Recipes(data.graphs["train"])
