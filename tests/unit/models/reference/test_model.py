from dataclasses import replace

import pytest
import torch

from layerdag.dag.dag import DAG, DAGBatch
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import ConfigError
from layerdag.models.base import SampleRequest
from layerdag.models.conditions import Conditions
from layerdag.models.config import EdgeConfig, LayerSizeConfig, NodeConfig, ReferenceConfig
from layerdag.models.reference.model import LayerSampler, ReferenceLayerDAG, sample_parents
from layerdag.models.reference.prefixes import Pairs, Prefixes
from layerdag.models.spec import model_config


@pytest.fixture
def model(sizes, make_dag) -> ReferenceLayerDAG:
    statistics = GraphStatistics.measure([make_dag(2, 3, 2, 4) for _ in range(5)], sizes)
    torch.manual_seed(7)
    config = ReferenceConfig(
        layer_size=LayerSizeConfig(width=8, rounds=1),
        node=NodeConfig(width=8, heads=2, steps=4),
        edge=EdgeConfig(width=8, rounds=1, steps=3),
    )
    return ReferenceLayerDAG(sizes, statistics, config).eval()


@pytest.fixture
def batch(make_dag, make_batch) -> DAGBatch:
    return make_batch(make_dag(2, 3, 2), make_dag(1), make_dag(1, 4, 4, 1))


def shuffled_in_layers(dag: DAG, generator: torch.Generator) -> DAG:
    """Return the DAG with the nodes of each layer in another order."""
    key = dag.layers() + torch.rand(dag.num_nodes, generator=generator)
    return dag.permuted(torch.argsort(key))


def test_losses_count_decisions(model, batch, generator):
    terms = model.losses(batch, generator)
    assert {name: int(term.count) for name, term in terms.items()} == {
        "layer_size": 3 + 1 + 4 + 3,  # each prefix, the whole graph included
        "node": 18 * 3,  # attributes and in-degree of each node
        "edge": 5 + 0 + 9,  # each node beyond layer 0
    }
    assert all(torch.isfinite(term.total) for term in terms.values())


def test_the_same_generator_gives_the_same_losses(model, batch):
    def losses() -> list[float]:
        terms = model.losses(batch, torch.Generator().manual_seed(1))
        return [term.total.item() for term in terms.values()]

    assert losses() == losses()


def test_layer_size_likelihood_ignores_the_order_of_nodes_and_graphs(
    model, make_dag, make_batch, generator
):
    dag = make_dag(2, 3, 4, extra_edges=1.0)
    one = model.losses(make_batch(dag), generator)["layer_size"].total
    other = model.losses(make_batch(shuffled_in_layers(dag, generator)), generator)["layer_size"]
    torch.testing.assert_close(one, other.total)


def test_edge_logits_follow_a_permutation_of_all_nodes(model, make_dag, make_batch, generator):
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
    items = Prefixes.all_of(batch, model.codes(batch))
    items = items.where((items.depth_I > 0) & ~items.is_whole_I)
    partial = items.end_to_end(ahead=True)
    pairs, x0_P = Pairs.true_of(partial, batch)
    return partial, Conditions(batch.numeric_BC, batch.category_BM), pairs, x0_P


def test_pairs_hold_exactly_the_true_edges(model, batch):
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


def test_a_frozen_objective_costs_nothing_in_training(model, batch, generator):
    model.train()
    model.edge.requires_grad_(False)
    assert set(model.losses(batch, generator)) == {"layer_size", "node"}
    with torch.no_grad():
        assert set(model.losses(batch, generator)) == {"layer_size", "node", "edge"}


def test_objectives_share_no_parameter(model):
    groups = model.objective_parameters()
    names = [id(p) for parameters in groups.values() for p in parameters]
    assert len(names) == len(set(names)) == len(list(model.parameters()))


def test_training_lowers_every_loss(model, batch):
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


def test_losses_work_in_mixed_precision(model, batch):
    model.train()
    exact = model.losses(batch, torch.Generator().manual_seed(1))
    with torch.autocast("cpu", torch.bfloat16):
        rough = model.losses(batch, torch.Generator().manual_seed(1))
    sum(term.mean() for term in rough.values()).backward()
    for name, term in exact.items():
        torch.testing.assert_close(rough[name].total.float(), term.total, rtol=0.05, atol=0.1)


def test_a_small_budget_gives_an_estimate_of_the_same_sums(model, batch):
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


def request(*seeds: int, **limits) -> SampleRequest:
    """Ask for graphs with a condition that depends on the seed."""
    numbers = torch.tensor(seeds)[:, None]
    limits = {"max_nodes": 30, "max_layers": 8, **limits}
    return SampleRequest(numbers.float() / 10, numbers % 3, seeds, **limits)


def equal(a: DAG, b: DAG) -> bool:
    return all(
        torch.equal(getattr(a, name), getattr(b, name))
        for name in ("x_NA", "u_NA", "edge_index_2E", "edge_type_E")
    )


def test_networks_compute_in_the_precision_asked_for(model, monkeypatch):
    seen = []

    class Watched(LayerSampler):
        def run(self):
            precision = {p.dtype for p in (*self.node.parameters(), *self.edge.parameters())}
            seen.append((self.conditions[0].numeric_BC.dtype, precision))
            return super().run()

    monkeypatch.setattr("layerdag.models.reference.model.LayerSampler", Watched)
    for name in ("float64", "float32"):
        model.sampling_precision = name
        assert all(dag.check().num_nodes for dag in model.sample(request(0, 1, 2)).dags)
    assert seen == [(t, {t}) for t in (torch.float64, torch.float32)]
    assert next(model.parameters()).dtype == torch.float32


def test_an_unknown_precision_is_refused():
    with pytest.raises(ConfigError, match="sampling_precision' must be 'float64' or 'float32'"):
        model_config("reference", {"sampling_precision": "half"})


def test_every_graph_is_acyclic_and_layer_consistent(model):
    result = model.sample(request(*range(20)))
    for dag in result.dags:
        layer_N = dag.check().layers()
        assert torch.equal(layer_N, layer_N.sort().values)
        source, target = dag.edge_index_2E
        gap = layer_N[target] - layer_N[source]
        has_latest = torch.zeros(dag.num_nodes, dtype=torch.bool)
        has_latest[target[gap == 1]] = True
        assert torch.equal(has_latest, layer_N > 0)
        assert dag.x_NA.max(0).values.tolist() <= [3, 1]
        assert torch.all((dag.u_NA >= 0) & (dag.u_NA < 1))
        in_degree_N = torch.bincount(target, minlength=dag.num_nodes)
        assert in_degree_N.max() <= model.degrees.value_K.max()  # no more than in training


def test_a_graph_does_not_depend_on_its_batch_mates(model):
    together = model.sample(request(*range(8)))
    backwards = model.sample(request(*reversed(range(8))))
    for seed in range(8):
        assert equal(together.dags[seed], backwards.dags[7 - seed])
        assert equal(together.dags[seed], model.sample(request(seed)).dags[0])


def test_limits_truncate_and_say_so(model):
    result = model.sample(request(*range(30), max_nodes=6, max_layers=3))
    assert any(result.truncated)
    assert not all(result.truncated)
    for dag, cut in zip(result.dags, result.truncated, strict=True):
        assert dag.num_nodes <= 6
        assert dag.layers().max() < 3
        assert not cut or dag.num_nodes == 6 or dag.layers().max() == 2


def test_guidance_is_a_line_from_unknown_at_0_to_plain_at_1(model):
    conditions = request(*range(3))
    hidden = replace(
        conditions,
        numeric_BC=torch.full_like(conditions.numeric_BC, torch.nan),
        category_BM=torch.full_like(conditions.category_BM, -1),
    )
    for guidance, same_as in ((0.0, hidden), (1.0 + 1e-9, conditions)):
        pushed = model.sample(replace(conditions, guidance=guidance)).dags
        assert all(equal(a, b) for a, b in zip(pushed, model.sample(same_as).dags, strict=True))
    assert not all(
        equal(a, b)
        for a, b in zip(model.sample(conditions).dags, model.sample(hidden).dags, strict=True)
    )


def test_fewer_steps_still_give_whole_graphs(model):
    for dag in model.sample(request(*range(5), steps=1)).dags:
        dag.check()


def test_sampling_leaves_the_model_as_it_was(model):
    model.train()
    model.sample(request(0))
    assert model.training
    assert next(model.parameters()).dtype == torch.float32


def test_parents_are_exactly_the_in_degree_one_of_them_in_the_latest_layer(generator):
    new_P = torch.arange(3).repeat_interleave(4)
    latest_P = torch.tensor([False, False, True, True]).repeat(3)
    pairs = Pairs(
        source_P=torch.arange(4).repeat(3),
        target_P=4 + new_P,
        new_P=new_P,
        prefix_P=torch.zeros_like(new_P),
        latest_P=latest_P,
        in_degree_W=torch.tensor([1, 2, 4]),
        candidates_W=torch.full((3,), 4),
    )
    for _ in range(20):
        logits = 4 * torch.randn(12, 3, generator=generator)
        state_P = sample_parents(logits, pairs, torch.rand(12, 2, generator=generator))
        on_WP = (state_P > 0).view(3, 4)
        assert on_WP.sum(1).tolist() == [1, 2, 4]
        assert on_WP[:, 2:].any(1).all()


def test_parents_are_drawn_in_proportion_to_their_odds(generator):
    draws = 6000
    logits = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]], dtype=torch.float64).repeat(
        draws, 1
    )
    new_P = torch.arange(draws).repeat_interleave(3)
    pairs = Pairs(
        source_P=new_P, target_P=new_P, new_P=new_P, prefix_P=new_P,
        latest_P=torch.ones_like(new_P, dtype=torch.bool),
        in_degree_W=torch.ones(draws, dtype=torch.int64),
        candidates_W=torch.full((draws,), 3),
    )  # fmt: skip
    uniform = torch.rand(3 * draws, 2, generator=generator, dtype=torch.float64)
    found = sample_parents(logits, pairs, uniform).view(draws, 3).sum(0)
    wanted = draws * torch.tensor([0.0, 1.0, 2.0]).softmax(0)
    assert ((found - wanted) ** 2 / wanted).sum() < 18.4  # 2 degrees of freedom: chance 1e-4
