from collections.abc import Callable

import pytest
import torch

from layerdag.graph.batch import DAGBatch
from layerdag.model.prefixes import LayerIndex, all_items, prefixes, some_items


@pytest.fixture
def batch(make_dag: Callable, make_batch: Callable) -> DAGBatch:
    return make_batch(make_dag(2, 3, 1), make_dag(4), make_dag(1, 1, 2, 5))


def test_items_are_all_prefixes_of_all_graphs(batch: DAGBatch):
    items = all_items(LayerIndex.of(batch))
    pairs = list(zip(items.graph_I.tolist(), items.depth_I.tolist(), strict=True))
    wanted = [(0, d) for d in range(4)] + [(1, 0), (1, 1)] + [(2, d) for d in range(5)]
    assert pairs == wanted


@pytest.mark.parametrize("ahead", [0, 1])
def test_prefixes_equal_those_found_one_by_one(batch: DAGBatch, ahead: int):
    layers = LayerIndex.of(batch)
    items = all_items(layers)
    items = items.where(items.depth_I + ahead <= layers.count_B[items.graph_I])
    found = prefixes(batch, layers, items, ahead)
    graph_N = batch.graph_of_node()
    for item in range(len(items)):
        graph, depth = int(items.graph_I[item]), int(items.depth_I[item])
        rows = slice(found.row_ptr[item], found.row_ptr[item + 1])
        inside = (graph_N == graph) & (batch.layer_N < depth + ahead)
        assert found.node_R[rows].tolist() == torch.nonzero(inside)[:, 0].tolist()
        assert found.age_R[rows].tolist() == (depth - batch.layer_N[inside]).tolist()
        target = batch.edge_index_2E[1]
        wanted = (graph_N[target] == graph) & (batch.layer_N[target] < depth)
        mine = found.item_R[found.edge_index_2P[1]] == item
        pairs = found.node_R[found.edge_index_2P[:, mine]]
        assert torch.equal(pairs, batch.edge_index_2E[:, wanted])
        assert torch.equal(found.edge_type_P[mine], batch.edge_type_E[wanted])
        assert torch.all(found.item_R[found.edge_index_2P[0, mine]] == item)


def test_some_items_are_at_most_so_many_a_graph(batch: DAGBatch, generator: torch.Generator):
    items = all_items(LayerIndex.of(batch))
    chosen = some_items(items, 3, generator)
    assert torch.bincount(chosen.graph_I).tolist() == [3, 2, 3]
    others = {tuple(some_items(items, 1, generator).depth_I.tolist()) for _ in range(30)}
    assert len(others) > 5
