import numpy as np
import pytest
import torch
from private_jobs import PrivateJobs, nats_of

from layerdag.training import load_checkpoint, take_graphs
from layerdag.training.private import Adapters, clipped, graph_nats, unit_gradients


@pytest.fixture
def adapters(mine: PrivateJobs) -> Adapters:
    """Return adapters after some steps: every gradient is another than at first."""
    adapters = Adapters(load_checkpoint(mine.base.path).model, 2, seed=0)
    noise = torch.randn(adapters.count, generator=torch.Generator().manual_seed(1))
    adapters.set(adapters.flat() + 0.1 * noise)
    return adapters


def test_gradients_of_units_are_those_of_a_loop(mine: PrivateJobs, adapters: Adapters):
    batch = mine.data.batch("train")
    unit_G = torch.arange(batch.num_graphs) % 5
    found_UP, nats = unit_gradients(adapters, batch, unit_G, 5)
    assert nats == pytest.approx(nats_of(adapters.model, batch), rel=1e-5)
    for unit in range(5):
        own = take_graphs(batch, (unit_G == unit).nonzero()[:, 0])
        loss = graph_nats(adapters.model, own)
        pieces = torch.autograd.grad(loss, adapters.parameters)
        wanted_P = torch.cat([piece.flatten() for piece in pieces]).double()
        assert torch.allclose(found_UP[unit], wanted_P, rtol=1e-3, atol=1e-3), unit
        assert float((found_UP[unit] - wanted_P).norm() / wanted_P.norm()) < 1e-5


def test_a_unit_does_not_depend_on_the_others(mine: PrivateJobs, adapters: Adapters):
    batch = mine.data.batch("train")
    alone = take_graphs(batch, torch.tensor([4]))
    among, _ = unit_gradients(adapters, batch, torch.arange(batch.num_graphs), batch.num_graphs)
    single, _ = unit_gradients(adapters, alone, torch.tensor([0]), 1)
    assert float((among[4] - single[0]).norm() / single[0].norm()) < 1e-5


def test_a_unit_without_graphs_has_no_gradient(mine: PrivateJobs, adapters: Adapters):
    batch = take_graphs(mine.data.batch("train"), torch.tensor([0]))
    found_UP, _ = unit_gradients(adapters, batch, torch.tensor([1]), 3)
    assert found_UP.abs().sum(1).bool().tolist() == [False, True, False]


def test_clipping_bounds_every_norm_and_keeps_small_gradients():
    gradient_UP = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    norms = clipped(gradient_UP, 1.0).norm(dim=1).numpy()
    assert np.allclose(norms, [1.0, 0.5, 0.0])
    assert torch.allclose(clipped(gradient_UP, 1.0)[0], torch.tensor([0.6, 0.8]).double())


def test_a_gradient_that_is_not_finite_counts_as_none():
    gradient_UP = torch.tensor([[torch.nan, 1.0], [torch.inf, 1.0], [0.0, 2.0]])
    assert clipped(gradient_UP, 1.0).tolist() == [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
