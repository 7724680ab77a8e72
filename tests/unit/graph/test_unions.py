"""Layers of many graphs at once, against a plain walk over each."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import GraphError
from layerdag.graph import DAG, layers_of, random_dag, union_layers


def slow_layers(size: int, edges: np.ndarray) -> list[int]:
    """Return the longest path that ends in each node, one node at a time."""
    parents = [[int(a) for a, b in edges.T if b == node] for node in range(size)]

    def depth(node: int) -> int:
        return 1 + max(map(depth, parents[node]), default=-1)

    return [depth(node) for node in range(size)]


@given(st.integers(0, 2**32 - 1), st.integers(0, 4))
@tried(25)
def test_layers_of_a_union_are_those_of_each_graph(seed, count):
    rng = np.random.default_rng(seed)
    dags = []
    for _ in range(count):
        dag = random_dag(rng, rng.integers(1, 4, int(rng.integers(1, 5))).tolist(), [2])
        dags.append(dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes))))
    edges = [dag.edge_index_2E.numpy() for dag in dags]
    found = union_layers([dag.num_nodes for dag in dags], edges)
    assert [layer.tolist() for layer in found] == [
        slow_layers(dag.num_nodes, own) for dag, own in zip(dags, edges, strict=True)
    ]
    assert [layer.tolist() for layer in layers_of(dags)] == [layer.tolist() for layer in found]
    for dag in map(DAG.in_layer_order, dags):
        layer = dag.layers().tolist()
        assert layer == sorted(layer)
        assert (dag.edge_index_2E[0] < dag.edge_index_2E[1]).all()


def ring(size: int) -> DAG:
    node = torch.arange(size)
    return DAG.build(
        torch.zeros(size, 1, dtype=torch.int64), torch.stack([node, (node + 1) % size])
    )


def test_a_cycle_in_one_graph_is_told_with_its_own_node_numbers():
    sound = random_dag(np.random.default_rng(0), [2, 2], [2])
    with pytest.raises(GraphError, match=r"Graph 1: The graph has a cycle .*: 0 -> 1 -> 2 -> 0"):
        layers_of([sound, ring(3), ring(2)])


def test_an_edge_into_the_next_graph_is_told():
    one = DAG.build(torch.zeros(1, 1, dtype=torch.int64), torch.tensor([[0], [1]]))
    with pytest.raises(GraphError, match="Graph 0: Edge 0 names node 1 but the graph has 1 nodes"):
        layers_of([one, one])
    with pytest.raises(GraphError, match="edge of graph 1 joins nodes 0 and 1, but"):
        union_layers([2, 1], [np.zeros((2, 0), np.int64), np.array([[0], [1]])])


def test_layers_are_found_once_for_all(monkeypatch: pytest.MonkeyPatch):
    dags = [random_dag(np.random.default_rng(seed), [1, 2, 1], [2]) for seed in range(3)]
    fresh = [DAG.build(dag.x_NA, dag.edge_index_2E) for dag in dags]
    layers_of(fresh)
    monkeypatch.setattr(DAG, "layers", lambda _: pytest.fail("found again"))
    assert [dag.layer_N.tolist() for dag in fresh] == [[0, 1, 1, 2]] * 3
