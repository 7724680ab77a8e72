from dataclasses import replace

import numpy as np
import pytest
import torch
from raw_graphs import chain
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv

from layerdag.dag.dag import DAG
from layerdag.datasets.conversion import to_pyg
from layerdag.datasets.dataset import GraphDataset, encode_batch
from layerdag.errors import DataError, GraphError, VocabularyError
from layerdag.graph.attributed_graph import AttributedGraph


def graph(name: str, kinds: str, **conditions: float | str) -> AttributedGraph:
    return chain(name, kinds, **{"label": 1.0, **conditions})


TRAIN = [graph("a", "xy", label=1.0, family="gpt"), graph("b", "xyx", label=3.0, family="mlp")]


def test_a_graph_that_the_schema_cannot_express_is_listed_not_guessed():
    parts = {"train": TRAIN, "val": [graph("c", "xz"), graph("d", "yx")]}
    data = GraphDataset.build("toy", "flow", parts)
    assert data.names["val"] == ("d",)
    assert data.left_out[0].startswith("c: Node 1 has kind 'z'")


def test_an_unseen_category_of_a_condition_is_unknown_for_that_graph():
    data = GraphDataset.build(
        "toy", "flow", {"train": TRAIN, "test": [graph("c", "x", family="cnn")]}
    )
    batch = data.batch("test")
    assert batch.category_BM.tolist() == [[-1]]
    assert torch.isfinite(batch.numeric_BC).all()


def test_a_cyclic_training_graph_is_an_error_and_a_cyclic_test_graph_is_listed():
    cyclic = replace(graph("loop", "xy"), edge_index_2E=np.array([[0, 1], [1, 0]]),
                     edge_type_E=np.zeros(2, dtype=np.int64))  # fmt: skip
    data = GraphDataset.build("toy", "flow", {"train": TRAIN, "test": [cyclic, graph("c", "x")]})
    assert data.names["test"] == ("c",)
    assert "cycle" in data.left_out[0]
    with pytest.raises(GraphError, match="cycle"):
        GraphDataset.build("toy", "flow", {"train": [*TRAIN, cyclic]})


def test_it_can_be_narrowed_to_some_conditions():
    data = GraphDataset.build("toy", "flow", {"train": TRAIN}).conditioned_on(["family"])
    assert data.schema.condition_names == ["family"]
    assert data.schema.numeric_conditions == ()
    assert [dag.conditions for dag in data.graphs["train"]] == [
        {"family": "gpt"},
        {"family": "mlp"},
    ]
    batch = data.batch("train")
    assert batch.numeric_BC.shape == (2, 0)
    assert batch.category_BM.tolist() == [[0], [1]]
    assert batch.layer_N.tolist() == [0, 1, 0, 1, 2]


def test_it_can_be_narrowed_to_no_condition():
    data = GraphDataset.build("toy", "flow", {"train": TRAIN}).conditioned_on([])
    assert data.schema.condition_names == []
    assert data.schema.condition_table.cells == ()
    assert data.batch("train").numeric_BC.shape == (2, 0)


def test_narrowing_to_an_unknown_condition_names_the_nearest():
    with pytest.raises(VocabularyError, match=r"no condition 'famly'\. Did you mean 'family'"):
        GraphDataset.build("toy", "flow", {"train": TRAIN}).conditioned_on(["famly"])


def test_the_fingerprint_tells_labels_apart():
    def fingerprint(label: float) -> str:
        graphs = [graph("a", "xy", label=label), graph("b", "x", label=4.0 - label)]
        return GraphDataset.build("toy", "flow", {"train": graphs}).fingerprint

    assert fingerprint(1.0) == fingerprint(1.0)
    assert fingerprint(1.0) != fingerprint(3.0)


def test_no_training_graph_and_an_empty_batch_are_errors():
    with pytest.raises(DataError, match="no training graph"):
        GraphDataset.build("toy", "flow", {"val": TRAIN})
    data = GraphDataset.build("toy", "flow", {"train": TRAIN})
    with pytest.raises(GraphError, match="no graph"):
        encode_batch(data.schema, [])


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
    back = DAG.from_pyg(to_pyg(dag, DATA.schema))
    assert torch.equal(back.x_NA, dag.x_NA)
    assert torch.equal(back.edge_index_2E, dag.edge_index_2E)
    assert torch.equal(back.layer_N, dag.layer_N)
    assert back.conditions == {"label": 2.0}


def test_plain_data_is_enough():
    dag = DAG.from_pyg(Data(x=torch.tensor([0.0, 1.0]), edge_index=torch.tensor([[0], [1]])))
    assert dag.x_NA.tolist() == [[0], [1]]
    assert dag.conditions == {}
    labeled = Data(x=torch.tensor([0]), edge_index=torch.zeros(2, 0).long(), y=2.5)
    assert DAG.from_pyg(labeled).conditions == {"label": 2.5}
    flags = Data(x=torch.eye(2).long(), edge_index=torch.zeros(2, 0).long())
    assert DAG.from_pyg(flags).x_NA.shape == (2, 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Data(edge_index=torch.zeros(2, 0, dtype=torch.int64)), "without x"),
        (Data(x=torch.tensor([[0.5]]), edge_index=torch.zeros(2, 0).long()), "fractions"),
        (Data(x=torch.eye(2), edge_index=torch.zeros(2, 0).long()), "a single 1 in each row of 2"),
        (Data(x=torch.zeros(2).long(), edge_index=torch.zeros(2, 0).long(), y=torch.ones(2)),
         "'y' holds 2 numbers"),
        (Data(x=torch.zeros(2).long(), edge_index=torch.tensor([[0], [1]]),
              edge_attr=torch.ones(1, 2)), "'edge_attr' has 2 columns"),
        (Data(x=torch.zeros(2, 1).long(), edge_index=torch.tensor([[0, 1], [1, 0]])), "cycle"),
    ],
)  # fmt: skip
def test_data_that_is_no_dag_of_codes_is_refused(data, message):
    with pytest.raises(GraphError, match=message):
        DAG.from_pyg(data)


def test_a_split_is_an_in_memory_dataset_with_the_names_of_its_columns():
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
