import numpy as np
import pytest
import torch
from private_jobs import PrivateJobs, nats_of
from small_job_models import jobs, spec_of
from torch import nn

from layerdag.dag.dag import DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.dp.gradients import (
    Adapters,
    SecretGenerator,
    UnitDecisions,
    clipped,
    code_scales,
    graph_nats,
)
from layerdag.dp.units import Units
from layerdag.errors import ConfigError
from layerdag.models.config import FastConfig
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.spec import build_model
from layerdag.training.batches import take_graphs
from layerdag.training.checkpoint import checkpoint_schema, load_checkpoint


def _fresh(mine: PrivateJobs):
    return load_checkpoint(mine.base.path).model


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_nothing_changes_before_the_first_step_nor_when_merged(mine, rank):
    model, batch = _fresh(mine), mine.data.batch("train")
    before, names = nats_of(model, batch), set(model.state_dict())
    adapters = Adapters(model, rank, seed=0)
    assert nats_of(model, batch) == pytest.approx(before)
    merged = adapters.merge()
    assert set(merged) == names
    assert all(torch.equal(merged[n], t) for n, t in mine.base.model.state_dict().items())


def test_merged_weights_are_those_that_were_tuned(mine):
    model, batch = _fresh(mine), mine.data.batch("train")
    adapters = Adapters(model, 1, seed=0)
    adapters.set(adapters.flat() + 0.05)
    tuned = nats_of(model, batch)
    plain = build_model(mine.base.spec).eval()
    plain.load_state_dict(dict(adapters.merge()))
    assert nats_of(plain, batch) == pytest.approx(tuned, rel=1e-5)
    assert tuned != pytest.approx(nats_of(mine.base.model, batch))


def test_only_the_counted_parameters_are_tuned(mine):
    model = _fresh(mine)
    adapters = Adapters(model, 1, seed=0)
    free = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert free == adapters.count == adapters.flat().numel()
    assert adapters.count > Adapters(_fresh(mine), 0, seed=0).count


def test_the_first_matrices_depend_on_the_public_seed_alone(mine):
    def tuned(seed: int) -> dict[str, torch.Tensor]:
        adapters = Adapters(_fresh(mine), 1, seed=seed)
        adapters.set(torch.ones(adapters.count, dtype=torch.float64))
        return dict(adapters.merge())

    name = "heads.kind_readout.project.weight"
    assert torch.equal(tuned(3)[name], tuned(3)[name])
    assert not torch.equal(tuned(3)[name], tuned(4)[name])


def test_a_change_is_as_large_as_its_scale(mine):
    adapters = Adapters(_fresh(mine), 1, seed=0)
    adapters.set(torch.full((adapters.count,), 2.0, dtype=torch.float64))
    before, after = mine.base.model.state_dict(), adapters.merge()
    name = "heads.kind_readout.project.bias"
    share_K = torch.tensor(mine.base.spec.statistics.attributes[0]) + 1.0
    share_K = share_K / share_K.sum()
    wanted_K = 2 * (share_K * (1 - share_K)).sqrt()
    assert torch.allclose(after[name] - before[name], wanted_K, atol=1e-5)


def test_another_model_is_refused(mine, tmp_path):
    schema = checkpoint_schema(mine.base)
    model = build_model(spec_of(schema, jobs(4), "reference"))
    with pytest.raises(ConfigError, match="start from a checkpoint of model=fast"):
        Adapters(model, 1, seed=0)


@pytest.fixture
def adapters(mine) -> Adapters:
    return Adapters(load_checkpoint(mine.base.path).model, 2, seed=0)


def _decisions(adapters: Adapters, batch: DAGBatch, unit_B: list[int], count: int) -> UnitDecisions:
    """Return decisions after some steps: every gradient is another than at first."""
    decisions = UnitDecisions.from_units(adapters, Units(batch, np.array(unit_B), count))
    noise = torch.randn(adapters.count, generator=torch.Generator().manual_seed(1))
    adapters.set(noise.double())
    return decisions


def _everyone(decisions: UnitDecisions) -> torch.Tensor:
    return decisions.gradients(np.ones(len(decisions.nodes_U), bool))[0]


def test_gradients_of_units_are_those_of_a_loop(mine, adapters):
    batch = mine.data.batch("train")
    unit_B = [graph % 5 for graph in range(batch.num_graphs)]
    decisions = _decisions(adapters, batch, unit_B, 5)
    found_UP = _everyone(decisions)
    for unit in range(5):
        own = take_graphs(batch, torch.tensor([g for g, u in enumerate(unit_B) if u == unit]))
        loss = graph_nats(adapters.model, own) / own.num_nodes
        pieces = torch.autograd.grad(loss, adapters.parameters)
        wanted_P = torch.cat([piece.flatten() for piece in pieces]).double() * adapters.scale_P
        assert torch.allclose(found_UP[unit], wanted_P, rtol=1e-3, atol=1e-5), unit
        assert float((found_UP[unit] - wanted_P).norm() / wanted_P.norm()) < 1e-5


def test_nats_change_as_those_of_the_model(mine, adapters):
    batch = mine.data.batch("train")
    before = nats_of(adapters.model, batch)
    decisions = _decisions(adapters, batch, [0] * batch.num_graphs, 1)
    _, after = decisions.gradients(np.ones(1, bool))
    moved = nats_of(adapters.model, batch)
    adapters.set(torch.zeros(adapters.count, dtype=torch.float64))
    _, first = decisions.gradients(np.ones(1, bool))
    assert after - first == pytest.approx(moved - before, rel=1e-3)


def test_a_unit_does_not_depend_on_the_others(mine, adapters):
    batch = mine.data.batch("train")
    decisions = _decisions(adapters, batch, list(range(batch.num_graphs)), batch.num_graphs)
    alone = np.arange(batch.num_graphs) == 4
    single, _ = decisions.gradients(alone)
    among = _everyone(decisions)
    assert float((among[4] - single[4]).norm() / single[4].norm()) < 1e-6
    assert not single[torch.from_numpy(~alone)].any()


def test_a_unit_without_graphs_has_no_gradient(mine, adapters):
    batch = take_graphs(mine.data.batch("train"), torch.tensor([0]))
    found_UP = _everyone(_decisions(adapters, batch, [1], 3))
    assert found_UP.abs().sum(1).bool().tolist() == [False, True, False]


def test_clipping_bounds_every_norm_and_drops_what_is_not_finite():
    gradient_UP = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    norms = clipped(gradient_UP, 1.0).norm(dim=1).numpy()
    assert np.allclose(norms, [1.0, 0.5, 0.0])
    assert torch.allclose(clipped(gradient_UP, 1.0)[0], torch.tensor([0.6, 0.8]).double())
    gradient_UP = torch.tensor([[torch.nan, 1.0], [torch.inf, 1.0], [0.0, 2.0]])
    assert clipped(gradient_UP, 1.0).tolist() == [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]


def test_a_key_repeats_noise_and_without_one_nobody_can():
    first, second = SecretGenerator(7), SecretGenerator(7)
    assert first.coins(50, 0.3).tolist() == second.coins(50, 0.3).tolist()
    assert first.normal(5).tolist() == second.normal(5).tolist()
    assert "whoever knows it can subtract the noise" in first.description
    first, second = SecretGenerator(), SecretGenerator()
    assert first.normal(5).tolist() != second.normal(5).tolist()
    assert "secret key of the operating system" in first.description


def test_noise_is_standard_normal_and_coins_have_their_rate():
    generator = SecretGenerator(1)
    noise = generator.normal(20_000).numpy()
    assert abs(noise.mean()) < 0.03
    assert abs(noise.std() - 1) < 0.03
    assert abs(generator.coins(20_000, 0.25).mean() - 0.25) < 0.02
    assert generator.coins(4, 1.0).all()
    assert noise.dtype == np.float64


def _scale_of(mine: PrivateJobs, readout: nn.Module) -> torch.Tensor:
    model = mine.base.model
    assert isinstance(model, FastLayerDAG)
    linear = readout.get_submodule("project")
    assert isinstance(linear, nn.Linear)
    return code_scales(model.heads, model.statistics)[linear]


def test_every_readout_has_a_scale_for_each_code(mine):
    model = mine.base.model
    assert isinstance(model, FastLayerDAG)
    scales = code_scales(model.heads, model.statistics)
    readouts = [m for name, m in model.heads.named_modules() if name.endswith("project")]
    assert {id(linear) for linear in scales} == set(map(id, readouts))
    assert all(scale_K.shape == linear.bias.shape for linear, scale_K in scales.items())
    assert all(bool((s >= 0).all() and (s <= 0.5).all()) for s in scales.values())


def test_rare_codes_have_small_scales_and_the_commoner_the_larger(mine):
    model = mine.base.model
    assert isinstance(model, FastLayerDAG)
    count_K = torch.tensor(model.statistics.attributes[0])
    scale_K = _scale_of(mine, model.heads.kind_readout)
    below_half = count_K < count_K.sum() / 2
    order = count_K[below_half].argsort()
    assert bool((scale_K[below_half][order].diff() >= 0).all())


def test_counts_are_told_apart_by_their_own_statistics(mine):
    model = mine.base.model
    assert isinstance(model, FastLayerDAG)
    largest = model.statistics.max_layer_size
    scale_K = _scale_of(mine, model.heads.size_readout)
    assert scale_K.argmax() <= model.heads.size.encode(torch.tensor(largest))
    assert scale_K[-1] == scale_K.min()  # no public layer is beyond the largest


@pytest.mark.parametrize("out_degrees", [True, False])
def test_numbers_of_children_count_where_the_model_draws_them(mine, out_degrees):
    sizes: GraphSizes = mine.base.spec.sizes
    statistics: GraphStatistics = mine.base.spec.statistics
    config = FastConfig(predict_out_degree=out_degrees, width=32, depth=1)
    model = FastLayerDAG(sizes, statistics, config)
    known = len(code_scales(model.heads, statistics))
    assert known == 4 + len(sizes.attributes) - 1 + out_degrees
