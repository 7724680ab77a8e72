"""Two small graphs laid end to end: every column, counted by hand."""

import numpy as np
import pytest
import torch
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError, GraphError, UsageError

# Layers {0, 1}, {2, 3}, {4}; edge 0 -> 4 descends two layers.
FIRST = DAG.build(
    torch.tensor([[0, 3], [1, 3], [0, 2], [1, 2], [2, 1]]),
    torch.tensor([[0, 1, 1, 2, 0], [2, 2, 3, 4, 4]]),
    edge_type_E=torch.tensor([0, 1, 0, 0, 1]),
)
LONE = DAG.build(torch.tensor([[7, 7]]), torch.zeros((2, 0), dtype=torch.int64))
PATH = DAG.build(torch.tensor([[4, 0], [5, 0]]), torch.tensor([[0], [1]]))

COLUMNS = {
    "nodes_B": [5, 1, 2],
    "edges_B": [5, 0, 1],
    "node_ptr": [0, 5, 6, 8],
    "edge_ptr": [0, 5, 5, 6],
    "graph_N": [0, 0, 0, 0, 0, 1, 2, 2],
    "graph_E": [0, 0, 0, 0, 0, 2],
    "edge_type_E": [0, 1, 0, 0, 1, 0],
    "layer_N": [0, 0, 1, 1, 2, 0, 0, 1],
    "layers_B": [3, 1, 2],
    "layer_ptr": [0, 3, 4, 6],
    "width_L": [2, 2, 1, 1, 1, 1],
    "graph_L": [0, 0, 0, 1, 2, 2],
    "in_degree_N": [0, 0, 2, 1, 2, 0, 0, 1],
    "out_degree_N": [2, 2, 1, 0, 0, 0, 1, 0],
    "span_E": [1, 1, 1, 1, 2, 1],
}


@pytest.fixture
def graphs() -> GraphSet:
    return GraphSet.from_dags([FIRST, LONE, PATH])


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_that_counted_by_hand(name, graphs):
    assert getattr(graphs, name).tolist() == COLUMNS[name]


def test_node_numbers_of_edges_count_through_the_union(graphs):
    assert (graphs.num_graphs, graphs.num_nodes, graphs.num_attributes) == (3, 8, 2)
    assert graphs.edge_index_2E.T.tolist() == [[0, 2], [1, 2], [1, 3], [2, 4], [0, 4], [6, 7]]
    assert graphs.x_NA[5:].tolist() == [[7, 7], [4, 0], [5, 0]]


def test_columns_are_those_of_each_graph_alone(rng):
    dags = [random_dag(rng, rng.integers(1, 5, 4).tolist(), [3, 2]) for _ in range(7)]
    union = GraphSet.from_dags(dags)
    for number, dag in enumerate(dags):
        alone = GraphSet.from_dags([dag])
        nodes, edges = union.graph_N == number, union.graph_E == number
        for name in ("layer_N", "in_degree_N", "out_degree_N"):
            assert getattr(union, name)[nodes].tolist() == getattr(alone, name).tolist()
        assert union.span_E[edges].tolist() == alone.span_E.tolist()
        assert union.width_L[union.graph_L == number].tolist() == alone.width_L.tolist()


def test_a_graph_without_nodes_has_no_layers():
    empty = DAG.build(torch.zeros((0, 2), dtype=torch.int64), LONE.edge_index_2E)
    graphs = GraphSet.from_dags([empty, PATH])
    assert graphs.layers_B.tolist() == [0, 2]
    assert graphs.width_L.tolist() == [1, 1]


def test_graphs_of_no_set_or_of_two_schemas_are_refused():
    with pytest.raises(UsageError, match="pass at least one"):
        GraphSet.from_dags([])
    narrow = DAG.build(torch.tensor([[1]]), LONE.edge_index_2E)
    with pytest.raises(DataError, match="Graph 2 has 1 node attributes but graph 0 has 2"):
        GraphSet.from_dags([FIRST, LONE, narrow, narrow])


def test_a_cycle_has_no_layers():
    ring = DAG.build(torch.zeros((2, 2), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    graphs = GraphSet.from_dags([ring])
    assert graphs.in_degree_N.tolist() == [1, 1]
    with pytest.raises(GraphError, match="Graph 1: The graph has a cycle"):
        _ = GraphSet.from_dags([PATH, ring]).layer_N
    with pytest.raises(GraphError, match="cycle"):
        _ = graphs.layer_N


def test_parts_are_consecutive_graphs_within_the_bound(rng):
    sizes = [[2, 2], [3], [9, 3], [1], [2]]
    dags = [random_dag(rng, layers, [3, 2]) for layers in sizes]
    parts = list(GraphSet.from_dags(dags).parts(7))
    assert [part.num_graphs for part in parts] == [2, 1, 2]
    first = 0
    for part in parts:
        alone = GraphSet.from_dags(dags[first : first + part.num_graphs])
        for name in ("x_NA", "edge_index_2E", "edge_type_E", "node_ptr", "edge_ptr", "layer_N"):
            np.testing.assert_array_equal(getattr(part, name), getattr(alone, name))
        first += part.num_graphs


def test_codes_are_held_in_four_bytes_unless_one_needs_more():
    small, large = (
        DAG.build(torch.tensor([[0, code]]), torch.zeros((2, 0), dtype=torch.int64))
        for code in (2**31 - 1, 2**31)
    )

    assert GraphSet.from_dags([small, LONE]).x_NA.dtype == np.int32
    assert GraphSet.from_dags([small, large]).x_NA.tolist() == [[0, 2**31 - 1], [0, 2**31]]
