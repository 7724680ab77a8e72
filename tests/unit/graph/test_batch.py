from dataclasses import replace

import pytest
import torch

from layerdag.errors import GraphError
from layerdag.graph import DAG, DAGBatch


def chain(length: int, code: int) -> DAG:
    steps = torch.arange(length - 1)
    return DAG.build(torch.full((length, 1), code), torch.stack([steps, steps + 1]))


def batch_of(*dags: DAG) -> DAGBatch:
    none = torch.zeros(len(dags), 0)
    return DAGBatch.of(dags, none, none.long())


def test_collate_shifts_ids_and_keeps_layers() -> None:
    batch = batch_of(chain(3, 5), chain(2, 7))
    assert batch.edge_index_2E.tolist() == [[0, 1, 3], [1, 2, 4]]
    assert batch.x_NA.flatten().tolist() == [5, 5, 5, 7, 7]
    assert batch.layer_N.tolist() == [0, 1, 2, 0, 1]
    assert batch.graph_of_node().tolist() == [0, 0, 0, 1, 1]
    assert batch.num_layers().tolist() == [3, 2]


def test_graph_without_edges_keeps_its_place() -> None:
    batch = batch_of(chain(1, 1), chain(2, 2))
    assert batch.edge_ptr.tolist() == [0, 0, 1]
    assert batch.edge_index_2E.tolist() == [[1], [2]]


def test_a_batch_tells_its_sizes_and_keeps_conditions_and_edge_types() -> None:
    first = replace(chain(2, 0), edge_type_E=torch.tensor([4]), u_NA=torch.tensor([[0.5], [0.25]]))
    numeric, category = torch.tensor([[0.5], [float("nan")]]), torch.tensor([[-1], [2]])
    dags = [first, chain(3, 1)]
    batch = DAGBatch.of(dags, numeric, category)
    assert (batch.num_graphs, batch.num_nodes) == (2, 5)
    assert batch.node_ptr.tolist() == [0, 2, 5]
    assert batch.edge_ptr.tolist() == [0, 1, 3]
    assert batch.edge_type_E.tolist() == [4, 0, 0]
    assert batch.u_NA.flatten().tolist() == [0.5, 0.25, 0, 0, 0]
    assert batch.numeric_BC is numeric
    assert batch.category_BM is category


def test_graphs_out_of_layer_order_are_refused() -> None:
    backwards = chain(3, 1).permuted(torch.tensor([0, 2, 1]))
    with pytest.raises(GraphError, match="Graph 1 is not in layer order: its node 2 comes after"):
        batch_of(chain(2, 1), backwards)
    assert batch_of(chain(2, 1), backwards.in_layer_order()).num_nodes == 5


def test_every_tensor_of_a_batch_moves() -> None:
    moved = batch_of(chain(2, 1), chain(1, 2)).to("meta")
    assert {value.device.type for value in vars(moved).values()} == {"meta"}
    assert moved.edge_index_2E.shape == (2, 1)
