from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from layerdag.errors import ConfigError, UsageError
from layerdag.graph import DAG, GraphSizes, GraphStatistics, Prefix
from layerdag.models import SampleRequest, model_config
from layerdag.models.diffusion import (
    EdgeConfig,
    LayerSizeConfig,
    NodeConfig,
    ReferenceConfig,
    ReferenceLayerDAG,
)
from layerdag.models.diffusion._edge_denoiser import Pairs
from layerdag.models.diffusion._sampler import _Sampler, sample_parents, sampling_copy


@pytest.fixture
def model(sizes: GraphSizes, make_dag: Callable) -> ReferenceLayerDAG:
    statistics = GraphStatistics.measure([make_dag(2, 3, 2, 4) for _ in range(5)], sizes)
    torch.manual_seed(7)
    config = ReferenceConfig(
        layer_size=LayerSizeConfig(width=8, rounds=1),
        node=NodeConfig(width=8, heads=2, steps=4),
        edge=EdgeConfig(width=8, rounds=1, steps=3),
    )
    return ReferenceLayerDAG(sizes, statistics, config)


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


def test_networks_compute_in_the_precision_asked_for(model: ReferenceLayerDAG):
    seen = set()
    for name in ("float64", "float32"):
        model.sampling_precision = name
        kept = _Sampler(sampling_copy(model), request(0), torch.device("cpu"))
        seen.add((name, kept.conditions.numeric_BC.dtype, next(kept.model.parameters()).dtype))
        assert all(dag.check().num_nodes for dag in model.sample(request(0, 1, 2)).dags)
    assert seen == {
        ("float64", torch.float64, torch.float64),
        ("float32", torch.float32, torch.float32),
    }
    assert next(model.parameters()).dtype == torch.float32


def test_an_unknown_precision_is_refused():
    with pytest.raises(ConfigError, match="sampling_precision' must be 'float64' or 'float32'"):
        model_config("reference", {"sampling_precision": "half"})


def test_every_graph_is_acyclic_and_layer_consistent(model: ReferenceLayerDAG):
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


def test_in_degree_never_exceeds_that_of_training(model: ReferenceLayerDAG):
    for dag in model.sample(request(*range(20))).dags:
        if dag.num_edges:
            assert torch.bincount(dag.edge_index_2E[1]).max() <= model.degrees.value_K.max()


def test_a_graph_does_not_depend_on_its_batch_mates(model: ReferenceLayerDAG):
    together = model.sample(request(*range(8)))
    backwards = model.sample(request(*reversed(range(8))))
    for seed in range(8):
        assert equal(together.dags[seed], backwards.dags[7 - seed])
        assert equal(together.dags[seed], model.sample(request(seed)).dags[0])


def test_seeds_give_different_graphs(model: ReferenceLayerDAG):
    dags = model.sample(request(1, 2)).dags
    assert not equal(*dags)


def test_limits_truncate_and_say_so(model: ReferenceLayerDAG):
    result = model.sample(request(*range(30), max_nodes=6, max_layers=3))
    assert any(result.truncated)
    assert not all(result.truncated)
    for dag, cut in zip(result.dags, result.truncated, strict=True):
        assert dag.num_nodes <= 6
        assert dag.layers().max() < 3
        assert not cut or dag.num_nodes == 6 or dag.layers().max() == 2


def test_guidance_of_1_is_plain_sampling_and_2_is_not(model: ReferenceLayerDAG):
    plain = model.sample(request(*range(6)))
    guided = model.sample(replace(request(*range(6)), guidance=1.0))
    pushed = model.sample(replace(request(*range(6)), guidance=5.0))
    assert all(equal(a, b) for a, b in zip(plain.dags, guided.dags, strict=True))
    assert not all(equal(a, b) for a, b in zip(plain.dags, pushed.dags, strict=True))


def test_guidance_is_a_line_from_unknown_at_0_to_plain_at_1(model: ReferenceLayerDAG):
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


def test_fewer_steps_still_give_whole_graphs(model: ReferenceLayerDAG):
    for dag in model.sample(request(*range(5), steps=1)).dags:
        dag.check()


def test_sampling_leaves_the_model_as_it_was(model: ReferenceLayerDAG):
    model.train()
    model.sample(request(0))
    assert model.training
    assert next(model.parameters()).dtype == torch.float32


def test_parents_are_exactly_the_in_degree_one_of_them_in_the_latest_layer(
    generator: torch.Generator,
):
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


def test_parents_are_drawn_in_proportion_to_their_odds(generator: torch.Generator):
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


def test_a_prefix_is_refused(model, make_dag):
    prefix = Prefix.of(make_dag(2, 3), 1)
    with pytest.raises(UsageError, match="samples whole graphs and completes no prefix"):
        model.sample(request(1, prefix=prefix))
