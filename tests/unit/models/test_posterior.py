"""Choosing among candidates follows their scores, and a graph depends on its own request alone."""

import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from fused_kernels import far_apart, kernels_run
from small_models import SIZES, collated, request, small_dags, small_model
from torch import Tensor

from layerdag.dag.dag import DAG, DAGBatch
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import UsageError
from layerdag.models.base import SampleRequest, SampleResult
from layerdag.models.best_of import resample
from layerdag.models.config import FastConfig
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.posterior import Posterior, _log_sizes


def from_a_list(dags: list) -> "callable":
    """A sampler that hands out given graphs in turn."""

    def sample(asked: SampleRequest) -> SampleResult:
        drawn = tuple(dags[i % len(dags)] for i in range(len(asked.seeds)))
        return SampleResult(drawn, (False,) * len(drawn))

    return sample


def chain(size: int) -> DAG:
    edges = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
    return DAG.build(torch.zeros(size, 3, dtype=torch.int64), edges)


def nothing(batch: DAGBatch, asked: SampleRequest) -> Tensor:
    """A score that likes all graphs alike."""
    assert batch.num_graphs == len(asked.seeds) * asked.best_of
    return torch.zeros(batch.num_graphs)


def test_candidates_are_drawn_with_odds_of_their_scores():
    dags = small_dags(2)
    sizes = torch.tensor([dag.num_nodes for dag in dags])

    def score(batch: DAGBatch, _: SampleRequest) -> Tensor:
        """Odds of 3 to 1 for the first graph."""
        return torch.where(batch.node_ptr.diff() == sizes[0], 3.0, 1.0).log()

    chosen = resample(score, request(800, best_of=2), from_a_list(dags)).dags
    share = sum(dag is dags[0] for dag in chosen) / 800
    assert share == pytest.approx(0.75, abs=0.06)


def test_one_candidate_is_plain_sampling_and_several_contain_it():
    model = small_model(small_dags())
    plain = model.sample(request(3))
    assert [d.x_NA.tolist() for d in model.sample(request(3, best_of=1)).dags] == [
        d.x_NA.tolist() for d in plain.dags
    ]
    seen: list[tuple[int, ...]] = []

    def remember(asked: SampleRequest) -> SampleResult:
        seen.append(asked.seeds)
        return model.sample(asked)

    resample(nothing, request(3, best_of=2), remember)
    assert seen[0][::2] == request(3).seeds
    assert len(set(seen[0])) == 6


def test_a_graph_with_candidates_does_not_depend_on_its_batch():
    model = small_model(small_dags())
    together = model.sample(request(3, best_of=3)).dags
    alone = model.sample(request(1, best_of=3)).dags
    assert alone[0].x_NA.tolist() == together[0].x_NA.tolist()
    assert alone[0].edge_index_2E.tolist() == together[0].edge_index_2E.tolist()


def test_violations_count_by_their_fraction_of_nodes_not_by_graph_size():
    model = small_model(small_dags(8))
    far_too_many = torch.stack([torch.zeros(40, dtype=torch.int64), torch.arange(1, 41)])
    broken = DAG.build(torch.zeros(41, 3, dtype=torch.int64), far_too_many)
    twice = DAG.build(
        torch.zeros(82, 3, dtype=torch.int64), torch.cat([far_too_many, far_too_many + 41], dim=1)
    )
    unknown = (torch.full((2, 1), torch.nan), torch.full((2, 1), -1))
    batch = DAGBatch.from_dags([broken, twice.in_layer_order()], *unknown)
    violations = model.constraints.violations(batch)
    assert violations[0] > 0
    assert violations[1] == 2 * violations[0]
    score = model._score(batch, request(1, best_of=2))
    assert score[0] == pytest.approx(float(score[1]))
    assert score[0] < 0


def test_the_candidate_of_the_size_asked_for_is_preferred():
    model = small_model(small_dags(8))
    dags = [chain(8), chain(16), chain(8), chain(16)]
    unknown = (torch.full((4, 1), torch.nan), torch.full((4, 1), -1))
    batch = DAGBatch.from_dags(dags, *unknown)
    plain = model._score(batch, request(2, best_of=2))
    sized = request(2, best_of=2, nodes_B=torch.tensor([16.0, torch.nan]))
    lost = plain - model._score(batch, sized)
    assert lost.tolist() == pytest.approx([20 * math.log(2), 0, 0, 0], abs=1e-3)
    layers = request(2, best_of=2, layers_B=torch.tensor([torch.nan, 8.0]))
    lost = plain - model._score(batch, layers)
    assert lost.tolist() == pytest.approx([0, 0, 0, 20 * math.log(2)], abs=1e-3)


def test_truncated_candidates_are_kept_only_if_all_are():
    dags = small_dags(4)

    def sample(asked: SampleRequest) -> SampleResult:
        cut = tuple(i % 4 != 2 for i in range(len(asked.seeds)))
        return SampleResult(tuple(dags[i % 4] for i in range(len(asked.seeds))), cut)

    result = resample(nothing, request(6, best_of=4), sample)
    assert result.truncated == (False,) * 6
    assert all(dag is dags[2] for dag in result.dags)


def test_no_candidate_at_all_is_refused():
    with pytest.raises(UsageError, match="'best_of' must be at least 1, found 0"):
        small_model(small_dags()).sample(request(1, best_of=0))


def batch_labeled_by_size(count: int) -> DAGBatch:
    """Graphs whose number is their standardized number of nodes, and whose category its third."""
    batch = collated(small_dags(count))
    nodes_B = batch.node_ptr.diff().float()
    label_B = (nodes_B - nodes_B.mean()) / nodes_B.std()
    rank_B = label_B.argsort().argsort()
    return replace(
        batch, numeric_BC=label_B[:, None], category_BM=(rank_B * 3 // count)[:, None].long()
    )


def trained_posterior(batch: DAGBatch, steps: int = 80) -> Posterior:
    torch.manual_seed(0)
    posterior = Posterior(SIZES, width=32, rounds=2)
    optimizer = torch.optim.Adam(posterior.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        posterior.loss(batch, None).mean().backward()
        optimizer.step()
    return posterior.eval()


def test_it_learns_to_predict_conditions_from_graphs():
    batch = batch_labeled_by_size(16)
    posterior = trained_posterior(batch)
    right_B = posterior.log_likelihood(batch)
    shifted = replace(
        batch, numeric_BC=batch.numeric_BC.roll(8, 0), category_BM=batch.category_BM.roll(8, 0)
    )
    assert right_B.mean() > posterior.log_likelihood(shifted).mean() + 3


def test_gradients_do_not_depend_on_the_predicted_standard_deviation():
    """The gradient of a mean is its error, as for least squares (beta-NLL, beta 1)."""
    value_BC = torch.tensor([[0.5, 0.5]])
    output_BC2 = torch.tensor([[0.0, 0.0, -8.0, 8.0]], requires_grad=True)
    log_prob = Posterior._numbers(output_BC2, value_BC).sum()
    sharp, wide = (torch.distributions.Normal(0.0, spread) for spread in (0.101, 2.999))
    expected = sharp.log_prob(torch.tensor(0.5)) + wide.log_prob(torch.tensor(0.5))
    assert log_prob.item() == pytest.approx(expected.item(), rel=1e-2)
    (gradient_BC2,) = torch.autograd.grad(log_prob, output_BC2)
    assert gradient_BC2[0, :2].tolist() == pytest.approx([0.5, 0.5], rel=1e-2)


def test_it_computes_in_single_precision_under_autocast():
    batch = batch_labeled_by_size(6)
    posterior = Posterior(SIZES).eval()
    with torch.autocast("cpu", torch.bfloat16):
        low_B, low_BC = posterior.log_likelihood(batch), posterior.means(batch)
    assert torch.equal(low_B, posterior.log_likelihood(batch))
    assert torch.equal(low_BC, posterior.means(batch))


def test_the_sizes_of_each_graph_are_inputs():
    dags = small_dags(4)
    sizes_B3 = [[dag.num_nodes, int(dag.layers().max()) + 1, dag.num_edges + 1] for dag in dags]
    assert torch.allclose(_log_sizes(collated(dags)), torch.tensor(sizes_B3).log() - 3.0)


def test_unknown_conditions_count_nothing():
    batch = batch_labeled_by_size(4)
    unknown = replace(
        batch,
        numeric_BC=torch.full_like(batch.numeric_BC, torch.nan),
        category_BM=torch.full_like(batch.category_BM, -1),
    )
    assert Posterior(SIZES).log_likelihood(unknown).tolist() == [0.0] * 4


def test_the_prediction_does_not_depend_on_the_batch():
    dags = small_dags(5)
    posterior = Posterior(SIZES).eval()
    together_B = posterior.log_likelihood(collated(dags))
    batch = collated(dags)
    for index, dag in enumerate(dags):
        alone = replace(
            collated([dag]),
            numeric_BC=batch.numeric_BC[index : index + 1],
            category_BM=batch.category_BM[index : index + 1],
        )
        assert posterior.log_likelihood(alone).item() == pytest.approx(
            together_B[index].item(), rel=1e-4
        )


def test_the_log_posterior_of_each_graph_is_told_where_there_are_conditions():
    dags = small_dags(4)
    model = small_model(dags)
    found_B = model.log_posterior(collated(dags))
    assert found_B.shape == (4,)
    torch.testing.assert_close(found_B, model.posterior.log_likelihood(collated(dags)).detach())
    dags = small_dags(4)
    sizes = replace(SIZES, numeric_conditions=0, category_conditions=())
    model = FastLayerDAG(sizes, GraphStatistics.measure(dags, sizes), FastConfig(32, 1))
    assert model.log_posterior(collated(dags)) is None


def in_another_order(dags: list[DAG]) -> list[DAG]:
    """The same graphs with the nodes of each layer in another order."""
    noise = torch.Generator().manual_seed(4)
    keys = [dag.layers() + torch.rand(dag.num_nodes, generator=noise) for dag in dags]
    return [dag.permuted(torch.argsort(key)) for dag, key in zip(dags, keys, strict=True)]


def test_the_order_of_nodes_in_a_layer_does_not_matter():
    dags = small_dags(4)
    posterior = Posterior(SIZES, width=16, rounds=2).eval()
    mixed = in_another_order(dags)
    assert any(not torch.equal(a.x_NA, b.x_NA) for a, b in zip(dags, mixed, strict=True))
    torch.testing.assert_close(
        posterior.log_likelihood(collated(mixed)), posterior.log_likelihood(collated(dags))
    )


def test_categories_have_a_probability_of_one_together():
    batch = collated(small_dags(3))
    posterior = Posterior(SIZES, width=16, rounds=1).eval()
    unknown = replace(batch, numeric_BC=torch.full_like(batch.numeric_BC, torch.nan))
    total_B = torch.zeros(3)
    for code in range(SIZES.category_conditions[0]):
        given = replace(unknown, category_BM=torch.full_like(batch.category_BM, code))
        total_B += posterior.log_likelihood(given).exp().detach()
    torch.testing.assert_close(total_B, torch.ones(3))


def test_the_predicted_spread_stays_within_its_bounds():
    value = torch.tensor([[0.0]])
    for raw, spread in ((-50.0, 0.1), (50.0, 3.0)):
        found = Posterior._numbers(torch.tensor([[0.0, raw]]), value).item()
        assert found == pytest.approx(-math.log(spread * math.sqrt(2 * math.pi)), rel=1e-4)


def test_every_parameter_learns():
    torch.manual_seed(0)
    posterior = Posterior(SIZES, width=16, rounds=2)
    posterior.loss(collated(small_dags(4)), None).total.backward()
    idle = [name for name, p in posterior.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []


def test_one_node_without_an_edge_has_a_posterior():
    dag = small_dags(1)[0]
    lonely = DAG.build(dag.x_NA[:1], torch.zeros(2, 0, dtype=torch.int64))
    posterior = Posterior(SIZES, width=16, rounds=2).eval()
    assert posterior.log_likelihood(collated([lonely])).isfinite().all()


def test_noise_drops_features_only_where_there_is_a_generator():
    batch = collated(small_dags(2))
    posterior = Posterior(SIZES, width=16, rounds=1, rate=0.5)

    def found(seed: int | None) -> list[float]:
        noise = None if seed is None else torch.Generator().manual_seed(seed)
        return posterior.log_likelihood(batch, noise).tolist()

    assert found(None) == found(None)
    assert found(1) == found(1) != found(2)
    assert found(1) != found(None)


def test_kernels_compute_the_posterior_and_its_gradients_in_training():
    model, batch = small_model(small_dags()), collated(small_dags())
    assert isinstance(model, FastLayerDAG)
    posterior = model.posterior
    assert posterior is not None
    exact = deepcopy(posterior).double()
    exact_batch, found = replace(batch, numeric_BC=batch.numeric_BC.double()), []
    for module, given in ((posterior, batch), (exact, exact_batch)):
        with kernels_run() as kernels:
            log_likelihood_B = module.log_likelihood(given)
            gradients = torch.autograd.grad(log_likelihood_B.sum(), list(module.parameters()))
        assert ({"pool", "pool_backward", "messages"} <= set(kernels)) is (module is posterior)
        found.append([log_likelihood_B, *gradients])
    for one, wanted in zip(*found, strict=True):
        assert far_apart(one, wanted) < 1e-5
