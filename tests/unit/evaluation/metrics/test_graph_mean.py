"""The mean over graphs of a number that each graph has alone."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics._graph_mean import GraphMean, fraction_of_nodes
from layerdag.graph import DAG, random_dag


@dataclass(frozen=True)
class NodeCount(GraphMean):
    """Number of nodes of each graph."""

    def values(self, graphs: GraphSet) -> np.ndarray:
        return graphs.nodes_B


def graphs(rng: np.random.Generator, count: int) -> GraphSet:
    return GraphSet.of([random_dag(rng, rng.integers(1, 5, 4).tolist(), [3]) for _ in range(count)])


def test_a_fraction_of_nodes_is_one_number_a_graph(rng: np.random.Generator) -> None:
    every = graphs(rng, 6)
    flag_N = rng.random(every.num_nodes) < 0.4
    found_B = fraction_of_nodes(flag_N, every)
    for graph in range(6):
        assert found_B[graph] == pytest.approx(flag_N[every.graph_N == graph].mean())
    assert fraction_of_nodes(np.ones(every.num_nodes), every).tolist() == [1.0] * 6


def test_a_graph_without_nodes_is_left_out() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    sizes = (2, 0, 1)
    every = GraphSet.of([DAG.build(torch.zeros(n, 1, dtype=torch.int64), none) for n in sizes])
    found_B = fraction_of_nodes(np.array([1.0, 0.0, 1.0]), every)
    assert found_B[[0, 2]].tolist() == [0.5, 1.0]
    assert np.isnan(found_B[1])


def test_a_subclass_says_its_values_alone() -> None:
    with pytest.raises(TypeError, match="abstract"):
        GraphMean()
