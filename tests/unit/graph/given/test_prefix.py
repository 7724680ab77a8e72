"""A prefix: the first layers of a graph."""

import pytest
import torch

from layerdag.errors import UsageError
from layerdag.graph import DAG, Prefix


def diamond() -> DAG:
    """Three layers of one, two and one nodes, not in layer order."""
    edges = torch.tensor([[3, 3, 1, 2], [1, 2, 0, 0]])
    return DAG.build(torch.arange(4)[:, None], edges, edge_type_E=torch.tensor([0, 1, 0, 1]))


def test_a_prefix_has_the_first_nodes_in_layer_order() -> None:
    prefix = Prefix.of(diamond(), 2)
    assert (prefix.num_nodes, prefix.num_layers) == (3, 2)
    assert prefix.layer_sizes == (1, 2)
    assert prefix.dag.x_NA[:, 0].tolist() == [3, 1, 2]


def test_parents_are_listed_from_the_last_one_on() -> None:
    assert Prefix.of(diamond(), 2).parents == ((), ((0, 0),), ((0, 1),))
    assert Prefix.of(diamond(), 3).parents[3] == ((2, 1), (1, 0))


def test_children_are_those_of_the_whole_graph() -> None:
    assert Prefix.of(diamond(), 2).out_degrees == (2, 1, 1)


@pytest.mark.parametrize("layers", [0, 4, -1])
def test_more_layers_than_there_are_and_none_are_refused(layers: int) -> None:
    with pytest.raises(UsageError, match=f"has from 1 to 3 layers, found {layers}"):
        Prefix.of(diamond(), layers)


def test_limits_that_leave_nothing_to_complete_are_refused() -> None:
    prefix = Prefix.of(diamond(), 2)
    prefix.require_room(4, 3)
    for nodes, layers in ((3, 3), (4, 2)):
        with pytest.raises(UsageError, match="nothing is left to complete"):
            prefix.require_room(nodes, layers)


def test_given_nodes_keep_their_positions_in_bins() -> None:
    dag = diamond().in_layer_order()
    own, drawn = (dag.with_columns(dag.x_NA, torch.full((4, 1), u)) for u in (0.25, 0.75))
    assert Prefix.of(own, 2).kept_in(drawn).u_NA[:, 0].tolist() == [0.25, 0.25, 0.25, 0.75]
