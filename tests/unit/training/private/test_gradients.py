import numpy as np
import pytest
import torch
from private_jobs import PrivateJobs, nats_of

from layerdag.graph import DAGBatch
from layerdag.training import load_checkpoint, take_graphs
from layerdag.training.private import Adapters, Decisions, Units, clipped, graph_nats


@pytest.fixture
def adapters(mine: PrivateJobs) -> Adapters:
    return Adapters(load_checkpoint(mine.base.path).model, 2, seed=0)


def _decisions(adapters: Adapters, batch: DAGBatch, unit_B: list[int], count: int) -> Decisions:
    """Return decisions after some steps: every gradient is another than at first."""
    decisions = Decisions.of(adapters, Units(batch, np.array(unit_B), count))
    noise = torch.randn(adapters.count, generator=torch.Generator().manual_seed(1))
    adapters.set(noise.double())
    return decisions


def _everyone(decisions: Decisions) -> torch.Tensor:
    return decisions.gradients(np.ones(len(decisions.nodes_U), bool))[0]


def test_gradients_of_units_are_those_of_a_loop(mine: PrivateJobs, adapters: Adapters):
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


def test_nats_change_as_those_of_the_model(mine: PrivateJobs, adapters: Adapters):
    batch = mine.data.batch("train")
    before = nats_of(adapters.model, batch)
    decisions = _decisions(adapters, batch, [0] * batch.num_graphs, 1)
    _, after = decisions.gradients(np.ones(1, bool))
    moved = nats_of(adapters.model, batch)
    adapters.set(torch.zeros(adapters.count, dtype=torch.float64))
    _, first = decisions.gradients(np.ones(1, bool))
    assert after - first == pytest.approx(moved - before, rel=1e-3)


def test_a_unit_does_not_depend_on_the_others(mine: PrivateJobs, adapters: Adapters):
    batch = mine.data.batch("train")
    decisions = _decisions(adapters, batch, list(range(batch.num_graphs)), batch.num_graphs)
    alone = np.arange(batch.num_graphs) == 4
    single, _ = decisions.gradients(alone)
    among = _everyone(decisions)
    assert float((among[4] - single[4]).norm() / single[4].norm()) < 1e-6
    assert not single[torch.from_numpy(~alone)].any()


def test_a_unit_without_graphs_has_no_gradient(mine: PrivateJobs, adapters: Adapters):
    batch = take_graphs(mine.data.batch("train"), torch.tensor([0]))
    found_UP = _everyone(_decisions(adapters, batch, [1], 3))
    assert found_UP.abs().sum(1).bool().tolist() == [False, True, False]


def test_clipping_bounds_every_norm_and_keeps_small_gradients():
    gradient_UP = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    norms = clipped(gradient_UP, 1.0).norm(dim=1).numpy()
    assert np.allclose(norms, [1.0, 0.5, 0.0])
    assert torch.allclose(clipped(gradient_UP, 1.0)[0], torch.tensor([0.6, 0.8]).double())


def test_a_gradient_that_is_not_finite_counts_as_none():
    gradient_UP = torch.tensor([[torch.nan, 1.0], [torch.inf, 1.0], [0.0, 2.0]])
    assert clipped(gradient_UP, 1.0).tolist() == [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
