from collections.abc import Callable

import pytest
import torch

from layerdag.graph import DAG, DAGBatch, GraphSizes, GraphStatistics
from layerdag.models import Conditions
from layerdag.models.diffusion import (
    EdgeConfig,
    LayerSizeConfig,
    NodeConfig,
    ReferenceConfig,
    ReferenceLayerDAG,
)
from layerdag.models.diffusion._edge_denoiser import Pairs
from layerdag.models.diffusion._model import _pairs, _partial
from layerdag.models.diffusion._prefixes import LayerIndex, all_prefixes, prefixes
from layerdag.models.layers import Segments


@pytest.fixture
def model(sizes: GraphSizes, make_dag: Callable) -> ReferenceLayerDAG:
    statistics = GraphStatistics.measure([make_dag(2, 3, 2, 4) for _ in range(5)], sizes)
    torch.manual_seed(7)
    config = ReferenceConfig(
        layer_size=LayerSizeConfig(width=8, rounds=2),
        node=NodeConfig(width=8, heads=2, steps=8),
        edge=EdgeConfig(width=8, rounds=2, steps=4),
    )
    return ReferenceLayerDAG(sizes, statistics, config).eval()


@pytest.fixture
def batch(make_dag: Callable, make_batch: Callable) -> DAGBatch:
    return make_batch(make_dag(2, 3, 2), make_dag(1), make_dag(1, 4, 4, 1))


def shuffled_in_layers(dag: DAG, generator: torch.Generator) -> DAG:
    """Return the DAG with the nodes of each layer in another order."""
    key = dag.layers() + torch.rand(dag.num_nodes, generator=generator)
    return dag.permuted(torch.argsort(key))


def test_losses_count_decisions(model: ReferenceLayerDAG, batch: DAGBatch, generator):
    terms = model.losses(batch, generator)
    assert {name: int(term.count) for name, term in terms.items()} == {
        "layer_size": 3 + 1 + 4 + 3,  # each prefix, the whole graph included
        "node": 18 * 3,  # attributes and in-degree of each node
        "edge": 5 + 0 + 9,  # each node beyond layer 0
    }
    assert all(torch.isfinite(term.total) for term in terms.values())


def test_the_same_generator_gives_the_same_losses(model: ReferenceLayerDAG, batch: DAGBatch):
    def losses() -> list[float]:
        terms = model.losses(batch, torch.Generator().manual_seed(1))
        return [term.total.item() for term in terms.values()]

    assert losses() == losses()


def test_layer_size_likelihood_ignores_the_order_of_nodes_and_graphs(
    model: ReferenceLayerDAG, make_dag: Callable, make_batch: Callable, generator: torch.Generator
):
    dag = make_dag(2, 3, 4, extra_edges=1.0)
    one = model.losses(make_batch(dag), generator)["layer_size"].total
    other = model.losses(make_batch(shuffled_in_layers(dag, generator)), generator)["layer_size"]
    torch.testing.assert_close(one, other.total)


def test_node_logits_follow_a_permutation_of_the_new_nodes(
    model: ReferenceLayerDAG, generator: torch.Generator
):
    state = torch.randn(2, 8, generator=generator)
    noisy = torch.randint(0, 2, (7, 3), generator=generator)
    item = state + model.node.times(torch.tensor([2, 5]))
    segments = Segments.of(torch.tensor([0, 3, 7]))
    order = torch.tensor([2, 0, 1, 6, 4, 3, 5])
    logits = model.node(item, noisy, segments)
    torch.testing.assert_close(model.node(item, noisy[order], segments), logits[order])


def test_edge_logits_follow_a_permutation_of_all_nodes(
    model: ReferenceLayerDAG, make_dag: Callable, make_batch: Callable, generator: torch.Generator
):
    dag = make_dag(2, 3, 3, extra_edges=1.0)
    key = dag.layers() + torch.rand(dag.num_nodes, generator=generator)
    order = torch.argsort(key)
    one = edge_logits(model, make_batch(dag))
    other = edge_logits(model, make_batch(dag.permuted(order)))
    # Pairs (source, new node) of the last layer: 5 earlier nodes, 3 new ones.
    first = one[-15:].view(3, 5, -1)
    second = other[-15:].view(3, 5, -1)
    torch.testing.assert_close(second, first[order[5:] - 5][:, order[:5]])


def edge_logits(model: ReferenceLayerDAG, batch: DAGBatch) -> torch.Tensor:
    """Return the logits of all pairs at time 3, from the clean edges."""
    partial, conditions, pairs, x0_P = edge_problem(model, batch)
    return model.edge(partial, conditions, pairs, x0_P, torch.full_like(partial.graph_I, 3))


def edge_problem(model: ReferenceLayerDAG, batch: DAGBatch):
    """Return what the edge denoiser is asked about ``batch``."""
    layers = LayerIndex.of(batch)
    items = all_prefixes(layers)
    items = items.where((items.depth_I > 0) & (items.depth_I < layers.count_B[items.graph_I]))
    rows = prefixes(batch, layers, items, 1)
    codes = model.codes(batch)
    pairs, x0_P = _pairs(batch, rows)
    conditions = Conditions(batch.numeric_BC, batch.category_BM)
    return _partial(batch, rows, items, codes), conditions, pairs, x0_P


def test_pairs_hold_exactly_the_true_edges(model: ReferenceLayerDAG, batch: DAGBatch):
    partial, _, pairs, x0_P = edge_problem(model, batch)
    assert isinstance(pairs, Pairs)
    on = x0_P > 0
    source = partial.node_R[pairs.source_P[on]]
    target = partial.node_R[pairs.target_P[on]]
    found = set(zip(source.tolist(), target.tolist(), (x0_P[on] - 1).tolist(), strict=True))
    wanted = zip(*batch.edge_index_2E.tolist(), batch.edge_type_E.tolist(), strict=True)
    assert found == set(wanted)
    layer_N = batch.layer_N[partial.node_R]
    gap_P = layer_N[pairs.target_P] - layer_N[pairs.source_P]
    assert torch.equal(pairs.latest_P, gap_P == 1)
    assert gap_P.min() == 1


def test_a_frozen_objective_costs_nothing_in_training(model: ReferenceLayerDAG, batch, generator):
    model.train()
    model.edge.requires_grad_(False)
    assert set(model.losses(batch, generator)) == {"layer_size", "node"}
    with torch.no_grad():
        assert set(model.losses(batch, generator)) == {"layer_size", "node", "edge"}


def test_objectives_share_no_parameter(model: ReferenceLayerDAG):
    groups = model.objective_parameters()
    names = [id(p) for parameters in groups.values() for p in parameters]
    assert len(names) == len(set(names)) == len(list(model.parameters()))


def test_training_lowers_every_loss(model: ReferenceLayerDAG, batch: DAGBatch):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    history = []
    for step in range(60):
        terms = model.losses(batch, torch.Generator().manual_seed(step % 4))
        means = {name: term.mean() for name, term in terms.items()}
        optimizer.zero_grad()
        sum(means.values()).backward()
        optimizer.step()
        history.append({name: float(mean.detach()) for name, mean in means.items()})
    for name in history[0]:
        assert history[-1][name] < 0.8 * history[3][name]


def test_losses_work_in_mixed_precision(model: ReferenceLayerDAG, batch: DAGBatch):
    model.train()
    exact = model.losses(batch, torch.Generator().manual_seed(1))
    with torch.autocast("cpu", torch.bfloat16):
        rough = model.losses(batch, torch.Generator().manual_seed(1))
    sum(term.mean() for term in rough.values()).backward()
    for name, term in exact.items():
        torch.testing.assert_close(rough[name].total.float(), term.total, rtol=0.05, atol=0.1)


def test_a_small_budget_gives_an_estimate_of_the_same_sums(
    model: ReferenceLayerDAG, batch: DAGBatch
):
    whole = model.losses(batch, torch.Generator().manual_seed(0))["layer_size"]
    model.budget = 40
    parts = [
        model.losses(batch, torch.Generator().manual_seed(seed))["layer_size"] for seed in range(60)
    ]
    assert all(part.count.item() == pytest.approx(whole.count.item()) for part in parts)
    totals = torch.stack([part.total for part in parts])
    assert totals.std() > 0
    # Dear prefixes are taken a little less often, so the mean is near, not equal.
    assert totals.mean().item() == pytest.approx(whole.total.item(), rel=0.1)
