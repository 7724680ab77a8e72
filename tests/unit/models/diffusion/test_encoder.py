"""States of prefixes depend on the prefix and its conditions, and on nothing else."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from layerdag.graph import DAG, DAGBatch, GraphSizes
from layerdag.models import Conditions
from layerdag.models.diffusion._encoder import (
    MAX_LAYER_DISTANCE,
    PrefixEncoder,
    PrefixGraphs,
    PrefixNodeEncoder,
)
from layerdag.models.diffusion._model import _partial
from layerdag.models.diffusion._prefixes import LayerIndex, PrefixIndex, all_prefixes, prefixes

COLUMNS = (4, 2, 6)


def codes_of(batch: DAGBatch) -> torch.Tensor:
    """The attributes, and the in-degree itself as its code."""
    degree_N = torch.bincount(batch.edge_index_2E[1], minlength=batch.num_nodes).clamp(max=5)
    return torch.cat([batch.x_NA, degree_N[:, None]], dim=1)


def prefixes_of(batch: DAGBatch, items: PrefixIndex | None = None) -> PrefixGraphs:
    layers = LayerIndex.of(batch)
    items = items or all_prefixes(layers)
    return _partial(batch, prefixes(batch, layers, items, 0), items, codes_of(batch))


def conditions_of(batch: DAGBatch) -> Conditions:
    return Conditions(batch.numeric_BC, batch.category_BM)


@pytest.fixture
def encoder(sizes: GraphSizes) -> PrefixEncoder:
    torch.manual_seed(0)
    return PrefixEncoder(sizes, COLUMNS, width=8, rounds=2).eval()


@pytest.fixture
def dags(make_dag: Callable[..., DAG]) -> list[DAG]:
    return [make_dag(2, 3, 2), make_dag(1), make_dag(1, 4, 1)]


def test_there_is_a_state_for_every_prefix_the_empty_one_included(
    encoder: PrefixEncoder, dags: list[DAG], make_batch: Callable[..., DAGBatch]
):
    batch = make_batch(*dags)
    found = encoder(prefixes_of(batch), conditions_of(batch))
    assert found.shape == (4 + 2 + 4, 8)
    assert found.isfinite().all()
    # The empty prefixes differ by their conditions alone.
    unknown = encoder(prefixes_of(batch), conditions_of(batch).unknown())
    torch.testing.assert_close(unknown[0], unknown[4])
    assert not torch.allclose(found[0], found[4])


def test_the_state_of_a_prefix_does_not_depend_on_the_other_prefixes(
    encoder: PrefixEncoder, dags: list[DAG], make_batch: Callable[..., DAGBatch]
):
    batch = make_batch(*dags)
    items = all_prefixes(LayerIndex.of(batch))
    together = encoder(prefixes_of(batch), conditions_of(batch))
    for number in range(len(items)):
        one = items.where(torch.tensor([number]))
        alone = encoder(prefixes_of(batch, one), conditions_of(batch))
        torch.testing.assert_close(alone[0], together[number], rtol=1e-4, atol=1e-5)


def test_later_layers_do_not_change_the_state_of_a_prefix(
    encoder: PrefixEncoder, dags: list[DAG], make_batch: Callable[..., DAGBatch]
):
    """The number of children is no input; the in-degree is that of finished nodes."""
    dag = dags[0]
    nodes = int((dag.layers() < 2).sum())
    keep = dag.edge_index_2E[1] < nodes
    start = DAG.build(
        dag.x_NA[:nodes], dag.edge_index_2E[:, keep], edge_type_E=dag.edge_type_E[keep]
    )
    whole, cut = make_batch(dag), make_batch(start)
    found = encoder(prefixes_of(cut), conditions_of(cut))
    wanted = encoder(prefixes_of(whole), conditions_of(whole))[:3]
    torch.testing.assert_close(found, wanted)


def test_the_order_of_nodes_in_a_layer_does_not_matter(
    encoder: PrefixEncoder,
    dags: list[DAG],
    make_batch: Callable[..., DAGBatch],
    generator: torch.Generator,
):
    dag = dags[0]
    key = dag.layers() + torch.rand(dag.num_nodes, generator=generator)
    mixed = make_batch(dag.permuted(torch.argsort(key)))
    batch = make_batch(dag)
    torch.testing.assert_close(
        encoder(prefixes_of(mixed), conditions_of(mixed)),
        encoder(prefixes_of(batch), conditions_of(batch)),
    )


@pytest.mark.parametrize("name", ["code_NA", "distance_R", "depth_I", "edge_kind_V"])
def test_every_part_of_a_prefix_is_an_input(
    name: str, encoder: PrefixEncoder, dags: list[DAG], make_batch: Callable[..., DAGBatch]
):
    batch = make_batch(dags[0])
    partial = prefixes_of(batch)
    other = 1 - getattr(partial, name) if name == "edge_kind_V" else getattr(partial, name) + 1
    if name == "code_NA":
        other = other % torch.tensor(COLUMNS)
    changed = replace(partial, **{name: other})
    conditions = conditions_of(batch)
    assert not torch.allclose(encoder(changed, conditions)[-1], encoder(partial, conditions)[-1])


def test_far_layers_share_one_distance(sizes: GraphSizes, dags: list[DAG], make_batch: Callable):
    torch.manual_seed(0)
    rows = PrefixNodeEncoder(sizes, COLUMNS, width=8, rounds=1, edge_kinds=2)
    batch = make_batch(dags[0])
    partial, conditions = prefixes_of(batch), conditions_of(batch)

    def states(distance: int) -> torch.Tensor:
        distance_R = torch.full_like(partial.distance_R, distance)
        return rows(replace(partial, distance_R=distance_R), conditions)

    assert torch.equal(states(MAX_LAYER_DISTANCE), states(1000))
    assert not torch.allclose(states(MAX_LAYER_DISTANCE), states(MAX_LAYER_DISTANCE - 1))


def test_with_no_rounds_a_row_sees_itself_alone(
    sizes: GraphSizes, dags: list[DAG], make_batch: Callable
):
    torch.manual_seed(0)
    rows = PrefixNodeEncoder(sizes, COLUMNS, width=8, rounds=0, edge_kinds=2)
    batch = make_batch(dags[0])
    partial, conditions = prefixes_of(batch), conditions_of(batch)
    bare = replace(
        partial, edge_index_2V=partial.edge_index_2V[:, :0], edge_kind_V=partial.edge_kind_V[:0]
    )
    assert torch.equal(rows(partial, conditions), rows(bare, conditions))


def test_every_parameter_learns(
    encoder: PrefixEncoder, dags: list[DAG], make_batch: Callable[..., DAGBatch]
):
    batch = make_batch(*dags)
    encoder(prefixes_of(batch), conditions_of(batch)).square().sum().backward()
    idle = [name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []
