import pickle
from dataclasses import replace

import pytest
import torch

from layerdag.errors import GraphError
from layerdag.graph import DAG


def diamond() -> DAG:
    # ids are deliberately not in layer order: 3 -> {0, 2} -> 1
    edges = torch.tensor([[3, 3, 0, 2], [0, 2, 1, 1]])
    return DAG.build(
        torch.tensor([[10], [11], [12], [13]]), edges, edge_type_E=torch.tensor([0, 1, 2, 3])
    )


def test_layer_order_moves_attributes_and_edge_types_along() -> None:
    ordered = diamond().in_layer_order()
    assert ordered.x_NA.flatten().tolist() == [13, 10, 12, 11]
    assert ordered.edge_index_2E.tolist() == [[0, 0, 1, 2], [1, 2, 3, 3]]
    assert ordered.edge_type_E.tolist() == [0, 1, 2, 3]


def test_check_passes_a_sound_dag() -> None:
    dag = diamond()
    assert dag.check() is dag


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"edge_index_2E": torch.tensor([[0, 0], [1, 1]]), "edge_type_E": torch.tensor([0, 0])},
            "1 edges occur twice",
        ),
        ({"edge_type_E": torch.tensor([0])}, "4 edges but 1 edge types"),
        ({"u_NA": torch.zeros(3, 1)}, "u_NA has shape"),
        (
            {"edge_index_2E": torch.tensor([[0, 1], [1, 0]]), "edge_type_E": torch.tensor([0, 0])},
            "cycle",
        ),
        ({"x_NA": torch.zeros(4, 1)}, "int64 matrix"),
    ],
)
def test_check_names_the_fault(change: dict[str, torch.Tensor], message: str) -> None:
    from dataclasses import replace

    with pytest.raises(GraphError, match=message):
        replace(diamond(), **change).check()


def test_repr_tells_sizes_and_no_tensor() -> None:
    edges, told = torch.tensor([[0, 0, 1], [1, 2, 3]]), {"label": 1.5, "family": "gpt"}
    dag = DAG.build(torch.zeros((4, 2), dtype=torch.int64), edges, conditions=told)
    sizes = "nodes=4, edges=3, layers=3, attributes=2"
    assert repr(dag) == f"DAG({sizes}, conditions=(label=1.5, family=gpt))"
    cyclic = DAG.build(dag.x_NA, torch.tensor([[0, 1], [1, 0]]))
    assert "layers=none (cyclic or damaged)" in repr(cyclic)


def test_layers_are_found_once_and_not_carried_to_another_graph() -> None:
    dag = DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0], [1]]))
    assert dag.layer_N is dag.layer_N
    assert dag.layer_N.tolist() == [0, 1]
    apart = replace(dag, edge_index_2E=dag.edge_index_2E[:, :0], edge_type_E=dag.edge_type_E[:0])
    assert (apart.layer_N.tolist(), apart.num_layers, dag.num_layers) == ([0, 0], 1, 2)
    dag.edge_index_2E[0] = 1
    with pytest.raises(GraphError, match="cycle"):
        dag.check()


def test_copies_with_the_same_edges_carry_their_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    given = torch.tensor([1, 2, 1, 0])
    dag = DAG.build(diamond().x_NA, diamond().edge_index_2E, layer_N=given).check()
    monkeypatch.setattr(DAG, "layers", lambda _: pytest.fail("found again"))
    assert dag.layer_N is given
    assert dag.with_conditions({"label": 1.0}).layer_N is given
    assert dag.with_columns(torch.zeros(4, 2).long(), torch.zeros(4, 2)).layer_N is given
    assert dag.in_layer_order().layer_N.tolist() == [0, 1, 1, 2]
    assert dag.to("meta").layer_N.device.type == "meta"
    assert pickle.loads(pickle.dumps(dag)).layer_N.tolist() == given.tolist()


@pytest.mark.parametrize(
    ("layer_N", "message"),
    [
        (torch.tensor([1, 2, 2, 0]), "node 2 into layer 2, but by its edges it is in layer 1"),
        (torch.tensor([1, 2]), r"layer_N has shape \(2,\) for 4 nodes"),
    ],
)
def test_check_names_layers_that_are_not_those_of_the_edges(
    layer_N: torch.Tensor, message: str
) -> None:
    dag = diamond()
    with pytest.raises(GraphError, match=message):
        DAG.build(dag.x_NA, dag.edge_index_2E, layer_N=layer_N).check()


def test_other_columns_leave_the_rest() -> None:
    dag = replace(diamond(), u_NA=torch.full((4, 1), 0.5), conditions={"label": 1.0})
    changed = dag.with_columns(torch.zeros((4, 1), dtype=torch.int64))
    assert changed.x_NA.sum() == 0
    assert changed.u_NA is dag.u_NA
    assert changed.conditions == {"label": 1.0}
    assert dag.with_conditions({}).conditions == {}


def test_check_names_edges_that_are_no_pairs() -> None:
    flat = replace(diamond(), edge_index_2E=torch.tensor([0, 1]))
    with pytest.raises(GraphError, match=r"edge_index must have shape \(2, edges\), found \(2,\)"):
        flat.check()
    outside = replace(diamond(), edge_index_2E=torch.tensor([[3, 3, 0, 9], [0, 2, 1, 1]]))
    with pytest.raises(GraphError, match="Edge 3 names node 9 but the graph has 4 nodes"):
        outside.check()


def test_permuting_back_gives_the_same_graph() -> None:
    dag = diamond().in_layer_order()
    order = torch.tensor([2, 0, 3, 1])
    there = dag.permuted(order)
    assert there.x_NA.flatten().tolist() == [12, 13, 11, 10]
    back = there.permuted(torch.argsort(order))
    for name in ("x_NA", "u_NA", "edge_index_2E", "edge_type_E"):
        assert torch.equal(getattr(back, name), getattr(dag, name))


def test_positions_in_bins_move_with_their_nodes() -> None:
    dag = replace(diamond(), u_NA=torch.tensor([[0.1], [0.2], [0.3], [0.4]]))
    assert dag.in_layer_order().u_NA.flatten().tolist() == pytest.approx([0.4, 0.1, 0.3, 0.2])


def test_defaults_are_zeros_and_conditions_are_a_copy() -> None:
    conditions = {"label": 2.0}
    dag = DAG.build(torch.zeros((2, 3), dtype=torch.int64), torch.tensor([[0], [1]]),
                    conditions=conditions)  # fmt: skip
    conditions["label"] = 3.0
    assert dag.conditions == {"label": 2.0}
    assert dag.edge_type_E.tolist() == [0]
    assert dag.u_NA.tolist() == [[0.0] * 3] * 2
    assert (dag.num_nodes, dag.num_edges, dag.num_layers) == (2, 1, 2)


def test_an_empty_graph_has_no_layer() -> None:
    empty = DAG.build(
        torch.zeros((0, 1), dtype=torch.int64), torch.zeros((2, 0), dtype=torch.int64)
    )
    assert (empty.num_nodes, empty.num_layers) == (0, 0)
    assert empty.in_layer_order().num_nodes == 0


def test_moving_keeps_everything_else() -> None:
    dag = replace(diamond(), conditions={"label": 1.0}).to("cpu")
    assert dag.x_NA.flatten().tolist() == [10, 11, 12, 13]
    assert dag.edge_type_E.tolist() == [0, 1, 2, 3]
    assert dag.conditions == {"label": 1.0}
    assert dag.to("meta").x_NA.device.type == "meta"
