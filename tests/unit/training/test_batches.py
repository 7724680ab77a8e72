from dataclasses import fields

import pytest
import torch

from layerdag.errors import ConfigError
from layerdag.graph import DAGBatch
from layerdag.training import BucketedSource
from layerdag.training._batches import take_graphs


def test_every_graph_occurs_once_an_epoch(data: DAGBatch):
    plan = BucketedSource(data, batch_graphs=5, batch_nodes=1000, seed=0).epoch_batches(3)
    assert torch.cat(plan).sort().values.tolist() == list(range(12))
    assert max(len(graphs) for graphs in plan) == 5


def test_batches_hold_to_the_number_of_nodes(data: DAGBatch):
    sizes = data.node_ptr.diff()
    limit = int(sizes.max())
    for graphs in BucketedSource(data, 12, limit, seed=0).epoch_batches(0):
        assert sizes[graphs].sum() <= limit


def test_a_graph_beyond_the_limit_comes_alone(data: DAGBatch):
    plan = BucketedSource(data, 12, batch_nodes=1, seed=0).epoch_batches(0)
    assert [len(graphs) for graphs in plan] == [1] * 12


def test_the_plan_depends_on_seed_and_epoch_alone(data: DAGBatch):
    def flat(seed: int, epoch: int) -> list[int]:
        return torch.cat(BucketedSource(data, 3, 1000, seed).epoch_batches(epoch)).tolist()

    assert flat(0, 1) == flat(0, 1)
    assert flat(0, 1) != flat(0, 2)
    assert flat(0, 1) != flat(1, 1)


def test_taking_graphs_equals_collating_them(data: DAGBatch):
    whole = take_graphs(data, torch.arange(12))
    for column in fields(DAGBatch):
        assert torch.equal(getattr(whole, column.name), getattr(data, column.name))


def test_taken_graphs_keep_their_own_nodes_and_edges(data: DAGBatch):
    taken = take_graphs(data, torch.tensor([7, 2]))
    for place, graph in enumerate((7, 2)):
        nodes = slice(data.node_ptr[graph], data.node_ptr[graph + 1])
        edges = slice(data.edge_ptr[graph], data.edge_ptr[graph + 1])
        new_nodes = slice(taken.node_ptr[place], taken.node_ptr[place + 1])
        new_edges = slice(taken.edge_ptr[place], taken.edge_ptr[place + 1])
        assert torch.equal(taken.x_NA[new_nodes], data.x_NA[nodes])
        old_pairs = data.edge_index_2E[:, edges] - data.node_ptr[graph]
        new_pairs = taken.edge_index_2E[:, new_edges] - taken.node_ptr[place]
        assert torch.equal(new_pairs, old_pairs)
        assert torch.equal(taken.numeric_BC[place], data.numeric_BC[graph])


def test_an_empty_data_set_is_refused(data: DAGBatch):
    with pytest.raises(ConfigError, match="no graph"):
        BucketedSource(take_graphs(data, torch.zeros(0, dtype=torch.int64)), 1, 1, 0)
