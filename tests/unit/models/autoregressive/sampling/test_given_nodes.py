"""Graphs that begin with given nodes."""

from dataclasses import replace

import pytest
import torch

from layerdag.errors import UsageError
from layerdag.graph import DAG, Prefix
from tests.unit.models.autoregressive.small_models import request, small_dags, small_model


def given_half_of(dag: DAG) -> Prefix:
    return Prefix.of(dag, max(1, dag.num_layers // 2))


@pytest.mark.parametrize("predict_out_degree", [False, True])
@pytest.mark.parametrize("best_of", [1, 4])
def test_completed_graphs_begin_with_the_prefix(best_of: int, predict_out_degree: bool) -> None:
    dags = small_dags(8)
    model = small_model(dags, predict_out_degree=predict_out_degree)
    prefix = given_half_of(max(dags, key=lambda dag: dag.num_layers))
    count, given = prefix.num_nodes, prefix.dag
    completed = model.sample(request(4, best_of=best_of, prefix=prefix)).dags
    for dag in completed:
        assert torch.equal(dag.x_NA[:count], given.x_NA[:count])
        assert torch.equal(dag.u_NA[:count], given.u_NA[:count])
        inside, wanted = (g.edge_index_2E[1] < count for g in (dag, given))
        assert torch.equal(dag.edge_index_2E[:, inside], given.edge_index_2E[:, wanted])
        assert torch.equal(dag.edge_type_E[inside], given.edge_type_E[wanted])
        assert torch.equal(dag.layer_N, dag.layers())
    rest = {tuple(dag.x_NA[count:].flatten().tolist()) for dag in completed}
    assert len(rest) == 4


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_sample_given_a_part_of_itself_is_itself(seed: int) -> None:
    """The encoder must be in the same state after given nodes as after drawn ones."""
    model = small_model(small_dags(8), predict_out_degree=False)
    asked = request(1, seeds=(seed,))
    (whole,) = model.sample(asked).dags
    assert whole.num_layers > 2
    for layers in range(1, whole.num_layers):  # the last layer may be cut off
        again = model.sample(request(1, seeds=(seed,), prefix=Prefix.of(whole, layers))).dags[0]
        assert torch.equal(again.x_NA, whole.x_NA)
        assert torch.equal(again.edge_index_2E, whole.edge_index_2E)


def test_a_prefix_that_fills_the_graph_is_refused() -> None:
    dags = small_dags(8)
    prefix = given_half_of(max(dags, key=lambda dag: dag.num_layers))
    with pytest.raises(UsageError, match="nothing is left to complete"):
        small_model(dags).sample(request(1, prefix=prefix, max_nodes=prefix.num_nodes))


def test_children_that_are_given_are_not_drawn() -> None:
    """Nodes whose children are all given get new ones only where there is no other parent."""
    model = small_model(small_dags(8), predict_out_degree=False, block=64)
    first = DAG.build(torch.zeros(20, 3, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64))
    prefix = Prefix.of(first, 1)

    def even_parents(reserved: int) -> int:
        held = replace(prefix, reserved=(reserved, 0) * 10)
        drawn = model.sample(request(8, max_layers=2, min_layers=2, prefix=held)).dags
        return sum(int((dag.edge_index_2E[0] % 2 == 0).sum()) for dag in drawn)

    assert even_parents(1000) < 0.7 * even_parents(0)


def test_no_graph_ends_before_the_fewest_layers() -> None:
    model = small_model(small_dags(8))
    free = model.sample(request(8)).dags
    fewest = min(dag.num_layers for dag in free) + 1
    for dag in model.sample(request(8, min_layers=fewest, max_layers=fewest)).dags:
        assert dag.num_layers == fewest or dag.num_nodes == 60
