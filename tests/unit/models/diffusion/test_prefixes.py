from collections.abc import Callable

import pytest
import torch

from layerdag.graph import DAGBatch
from layerdag.models.diffusion._prefixes import (
    LayerIndex,
    PrefixIndex,
    all_prefixes,
    prefixes,
    subsample_prefixes,
)


@pytest.fixture
def batch(make_dag: Callable, make_batch: Callable) -> DAGBatch:
    return make_batch(make_dag(2, 3, 1), make_dag(4), make_dag(1, 1, 2, 5))


def test_items_are_all_prefixes_of_all_graphs(batch: DAGBatch):
    items = all_prefixes(LayerIndex.of(batch))
    pairs = list(zip(items.graph_I.tolist(), items.depth_I.tolist(), strict=True))
    wanted = [(0, d) for d in range(4)] + [(1, 0), (1, 1)] + [(2, d) for d in range(5)]
    assert pairs == wanted


@pytest.mark.parametrize("ahead", [0, 1])
def test_prefixes_equal_those_found_one_by_one(batch: DAGBatch, ahead: int):
    layers = LayerIndex.of(batch)
    items = all_prefixes(layers)
    items = items.where(items.depth_I + ahead <= layers.count_B[items.graph_I])
    found = prefixes(batch, layers, items, ahead)
    graph_N = batch.graph_of_node()
    for item in range(len(items)):
        graph, depth = int(items.graph_I[item]), int(items.depth_I[item])
        rows = slice(found.row_ptr[item], found.row_ptr[item + 1])
        inside = (graph_N == graph) & (batch.layer_N < depth + ahead)
        assert found.node_R[rows].tolist() == torch.nonzero(inside)[:, 0].tolist()
        assert found.distance_R[rows].tolist() == (depth - batch.layer_N[inside]).tolist()
        target = batch.edge_index_2E[1]
        wanted = (graph_N[target] == graph) & (batch.layer_N[target] < depth)
        mine = found.prefix_R[found.edge_index_2V[1]] == item
        pairs = found.node_R[found.edge_index_2V[:, mine]]
        assert torch.equal(pairs, batch.edge_index_2E[:, wanted])
        assert torch.equal(found.edge_type_V[mine], batch.edge_type_E[wanted])
        assert torch.all(found.prefix_R[found.edge_index_2V[0, mine]] == item)


def test_a_budget_is_held_by_a_random_part_of_the_items(
    batch: DAGBatch, generator: torch.Generator
):
    items = all_prefixes(LayerIndex.of(batch))
    cost_I = 1 + torch.arange(len(items))
    parts = [subsample_prefixes(items, cost_I, 20, generator) for _ in range(30)]
    numbers = {(g, d): n for n, (g, d) in enumerate(zip(*pairs_of(items), strict=True))}
    chosen = [[numbers[pair] for pair in zip(*pairs_of(part), strict=True)] for part in parts]
    assert all(sum(n + 1 for n in part) <= 20 for part in chosen)
    assert all(part == sorted(part) for part in chosen)
    assert len({tuple(part) for part in chosen}) > 10


def test_a_budget_that_is_not_reached_changes_nothing(batch: DAGBatch, generator):
    items = all_prefixes(LayerIndex.of(batch))
    assert (
        subsample_prefixes(items, torch.ones(len(items), dtype=torch.int64), len(items), generator)
        is items
    )
    assert (
        len(subsample_prefixes(items, torch.ones(len(items), dtype=torch.int64), 0, generator)) == 1
    )


def pairs_of(items: PrefixIndex) -> tuple[list[int], list[int]]:
    return items.graph_I.tolist(), items.depth_I.tolist()
