import torch

from layerdag.graph import DAG, DAGBatch


def chain(length: int, code: int) -> DAG:
    steps = torch.arange(length - 1)
    return DAG.build(torch.full((length, 1), code), torch.stack([steps, steps + 1]))


def batch_of(*dags: DAG) -> DAGBatch:
    none = torch.zeros(len(dags), 0)
    return DAGBatch.collate(dags, [dag.layers() for dag in dags], none, none.long())


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
