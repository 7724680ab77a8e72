"""The posterior reads conditions off graphs."""

from dataclasses import replace

import pytest
import torch

from layerdag.graph import DAGBatch, GraphStatistics
from layerdag.models import Posterior
from layerdag.models._posterior import _log_sizes
from layerdag.models.autoregressive import FastConfig, FastLayerDAG
from tests.unit.models.autoregressive.small_models import SIZES, collated, small_dags, small_model


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


def test_a_model_tells_the_log_posterior_of_each_graph():
    dags = small_dags(4)
    model = small_model(dags)
    found_B = model.log_posterior(collated(dags))
    assert found_B.shape == (4,)
    torch.testing.assert_close(found_B, model.judge.log_likelihood(collated(dags)).detach())


def test_without_conditions_there_is_no_posterior():
    dags = small_dags(4)
    sizes = replace(SIZES, numeric_conditions=0, category_conditions=())
    model = FastLayerDAG(sizes, GraphStatistics.measure(dags, sizes), FastConfig(32, 1))
    assert model.log_posterior(collated(dags)) is None
