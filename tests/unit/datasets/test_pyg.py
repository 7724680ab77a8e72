import pytest
import torch
from raw_graphs import chain
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv

from layerdag.datasets import GraphDataset
from layerdag.datasets._pyg import from_pyg, to_pyg
from layerdag.errors import GraphError

DATA = GraphDataset.build(
    "toy", "flow", {"train": [chain(f"g{i}", "aba", label=float(i)) for i in range(4)]}
)


def test_a_data_loader_and_a_convolution_take_the_graphs():
    (batch,) = DataLoader(DATA.to_pyg("train"), batch_size=4)
    assert batch.y.flatten().tolist() == [0, 1, 2, 3]
    assert batch.edge_index.max() == 11
    assert GCNConv(1, 2)(batch.x.float(), batch.edge_index).shape == (12, 2)
    assert batch.numeric.shape == (4, 1)


def test_data_comes_back_as_the_same_dag():
    dag = DATA.graphs["train"][2]
    back = from_pyg(to_pyg(dag, DATA.schema))
    assert torch.equal(back.x_NA, dag.x_NA)
    assert torch.equal(back.edge_index_2E, dag.edge_index_2E)
    assert torch.equal(back.layer_N, dag.layer_N)
    assert back.conditions == {"label": 2.0}


def test_plain_data_is_enough():
    dag = from_pyg(Data(x=torch.tensor([0.0, 1.0]), edge_index=torch.tensor([[0], [1]])))
    assert dag.x_NA.tolist() == [[0], [1]]
    assert dag.conditions == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Data(edge_index=torch.zeros(2, 0, dtype=torch.int64)), "without x"),
        (Data(x=torch.tensor([[0.5]]), edge_index=torch.zeros(2, 0).long()), "fractions"),
        (Data(x=torch.zeros(2, 1).long(), edge_index=torch.tensor([[0, 1], [1, 0]])), "cycle"),
    ],
)
def test_data_that_is_no_dag_of_codes_is_refused(data, message):
    with pytest.raises(GraphError, match=message):
        from_pyg(data)


def test_a_split_is_an_in_memory_dataset_with_the_names_of_its_columns() -> None:
    dataset = DATA.to_pyg("train")
    assert isinstance(dataset, InMemoryDataset)
    assert (len(dataset), dataset.names) == (4, ("g0", "g1", "g2", "g3"))
    assert (dataset.node_columns, dataset.codes) == (("kind",), DATA.schema.sizes().attributes)
    assert dataset.numeric_columns == ("label",)
    assert [float(data.y) for data in dataset] == [0, 1, 2, 3]
    assert torch.equal(dataset[2].x, DATA.graphs["train"][2].x_NA)
    (batch,) = DataLoader(dataset.shuffle(), batch_size=4)
    assert batch.num_nodes == 12
    with pytest.raises(GraphError, match="the test part is empty"):
        DATA.to_pyg("test")
