"""Step by step, sampling knows the same about each token as training does at once."""

from dataclasses import fields

import pytest
import torch

from layerdag.graph import DAG
from layerdag.models.autoregressive import NEVER, StructuralFeatures
from layerdag.models.autoregressive._layout import Edges, Layout
from layerdag.models.autoregressive.sampling._state import SamplerState
from tests.unit.models.autoregressive.small_models import collated, small_dags

CPU = torch.device("cpu")


def replayed(dag: DAG, state: SamplerState, *, plans: bool) -> list[StructuralFeatures]:
    """Return what ``state`` (of one row) knows after each token of a graph."""
    layer_N = dag.layers()
    size_L = torch.bincount(layer_N)
    source, target = dag.edge_index_2E
    out_degree_N = torch.bincount(source, minlength=dag.num_nodes) * plans
    found, row = [state.structure], torch.tensor([0])
    for node in range(dag.num_nodes):
        state.start_node(node + 1, size_L[layer_N[node]][None])
        for parent in source[target == node]:
            state.connect(row, parent[None] + 1)
        state.set_out_degree(node + 1, out_degree_N[node][None], out_degree_N[node][None])
        found.append(state.structure)
    return found


@pytest.mark.parametrize("plans", [True, False])
def test_the_features_of_each_token_are_those_of_training(plans: bool):
    for dag in small_dags(3):
        batch = collated([dag])
        layout = Layout.of(batch)
        edges = Edges.of(batch, layout)
        wanted = StructuralFeatures.of(layout, edges, edges.out_degree_T * plans)
        found = replayed(dag, SamplerState.start(1, CPU), plans=plans)
        for field in fields(StructuralFeatures):
            steps = torch.cat([getattr(structure, field.name) for structure in found])
            assert steps.tolist() == getattr(wanted, field.name).tolist(), field.name


def test_uses_and_remaining_capacity_of_every_position_are_kept():
    dag = small_dags(3)[-1]
    state = SamplerState.start(1, CPU)
    replayed(dag, state, plans=True)
    source, target = dag.edge_index_2E
    positions = range(1, dag.num_nodes + 1)
    children = [target[source == position - 1] + 1 for position in positions]
    assert state.used.data[0, 1 : dag.num_nodes + 1].tolist() == [len(c) for c in children]
    last = [int(c.max()) if len(c) else NEVER for c in children]
    assert state.last.data[0, 1 : dag.num_nodes + 1].tolist() == last
    assert not state.capacity.data[0, 1 : dag.num_nodes + 1].any()
    assert state.layer.data[0, 1 : dag.num_nodes + 1].tolist() == dag.layers().tolist()


def test_the_layer_and_the_one_before_begin_where_they_do_in_training():
    dag = small_dags(3)[-1]
    layout = Layout.of(collated([dag]))
    state, size_L = SamplerState.start(1, CPU), torch.bincount(dag.layers())
    for node, layer in enumerate(dag.layers().tolist()):
        state.start_node(node + 1, size_L[layer][None])
        assert state.layer_start_B == layout.layer_start_N[node]
        if layer:
            assert state.before_start_B == layout.parent_start_N[node]
        assert (state.sibling_B == NEVER).all()


def test_the_sibling_is_forgotten_with_its_layer():
    state = SamplerState.start(2, CPU)
    state.start_node(1, torch.tensor([1, 2]))
    state.sibling_B = torch.tensor([7, 7])
    state.start_node(2, torch.tensor([1, 9]))
    assert state.sibling_B.tolist() == [NEVER, 7]
    assert state.structure.layer_T.tolist() == [1, 0]
    # The row whose layer goes on takes no new size.
    assert state.structure.size_T.tolist() == [1, 2]
    assert state.structure.left_T.tolist() == [0, 0]


def test_rows_that_are_kept_take_all_they_know_with_them():
    state = SamplerState.start(3, CPU)
    state.start_node(1, torch.tensor([1, 2, 3]))
    state.set_out_degree(1, torch.tensor([4, 5, 6]), torch.tensor([7, 8, 9]))
    state.select(torch.tensor([2, 0]))
    assert state.sample_B.tolist() == [2, 0]
    assert state.structure.size_T.tolist() == [3, 1]
    assert state.out_degree.data[:, 1].tolist() == [6, 4]
    assert state.capacity.data[:, 1].tolist() == [9, 7]
    state.start_node(2, torch.tensor([8, 8]))
    assert state.structure.index_T.tolist() == [1, 0]


def test_an_edge_touches_its_own_row_alone():
    state = SamplerState.start(2, CPU)
    for position in (1, 2):
        state.start_node(position, torch.tensor([1, 1]))
        state.set_out_degree(position, torch.tensor([3, 3]), torch.tensor([3, 3]))
    state.connect(torch.tensor([1]), torch.tensor([1]))
    assert state.used.data[:, 1].tolist() == [0, 1]
    assert state.capacity.data[:, 1].tolist() == [3, 2]
    assert state.structure.degree_T.tolist() == [0, 1]
    assert state.structure.open_T.tolist() == [6, 5]
