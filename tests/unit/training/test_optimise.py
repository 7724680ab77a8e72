import copy
from collections.abc import Callable

import pytest
import torch

from layerdag.graph.batch import DAGBatch
from layerdag.model.base import DAGModel, LossTerm
from layerdag.model.build import ModelSpec, build_model
from layerdag.training.batches import take_graphs
from layerdag.training.distributed import World
from layerdag.training.optimise import Optimiser
from layerdag.training.selection import tracks_of
from layerdag.training.settings import TrainSettings


@pytest.fixture
def make_optimiser(spec: ModelSpec) -> Callable[[], tuple[DAGModel, Optimiser]]:
    def make() -> tuple[DAGModel, Optimiser]:
        model = build_model(spec)
        settings = TrainSettings(gradient_clip=0.0)
        return model, Optimiser(model, tracks_of(model), settings, World())

    return make


def gradient_norm(model: DAGModel) -> float:
    return sum(float(p.grad.norm() ** 2) for p in model.parameters() if p.grad is not None) ** 0.5


def test_every_decision_weighs_the_same_whatever_its_micro_batch(
    make_optimiser: Callable, data: DAGBatch, monkeypatch: pytest.MonkeyPatch
):
    """Twice the decisions, once the mean loss: the gradient must be twice as large, not equal."""
    model, optimiser = make_optimiser()
    copies = {"now": 1}

    def losses(batch: DAGBatch, generator: torch.Generator) -> dict[str, LossTerm]:
        norms = {"layer_size": model.layer_size, "node": model.node, "edge": model.edge}
        return {
            name: LossTerm(
                copies["now"] * sum(p.sum() for p in network.parameters()),
                torch.tensor(10.0 * copies["now"]),
            )
            for name, network in norms.items()
        }

    monkeypatch.setattr(model, "losses", losses)
    batch = take_graphs(data, torch.arange(2))
    optimiser.add_gradient(batch, 0)
    optimiser.step(0.0, torch.zeros(1), 0)
    optimiser.add_gradient(batch, 1)
    small = gradient_norm(model)
    model.zero_grad()
    copies["now"] = 2
    optimiser.add_gradient(batch, 2)
    assert gradient_norm(model) == pytest.approx(2 * small)


def test_the_precision_reaches_the_matrix_products_on_any_device(spec: ModelSpec, data: DAGBatch):
    types = {}
    for precision in ("float32", "bfloat16"):
        model = build_model(spec)
        settings = TrainSettings(precision=precision)
        optimiser = Optimiser(model, tracks_of(model), settings, World())
        found = types[precision] = set()
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(lambda _, __, out, seen=found: seen.add(out.dtype))
        optimiser.add_gradient(data, 0)
    assert types == {"float32": {torch.float32}, "bfloat16": {torch.bfloat16}}


def test_the_running_counts_survive_resuming(make_optimiser: Callable, data: DAGBatch):
    model, optimiser = make_optimiser()
    optimiser.add_gradient(data, 0)
    optimiser.step(1e-3, torch.zeros(1), 0)
    other_model, other = make_optimiser()
    other_model.load_state_dict(model.state_dict())
    other.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    for one in (optimiser, other):
        one.add_gradient(take_graphs(data, torch.arange(3)), 1)
        one.step(1e-3, torch.zeros(1), 1)
    for p, q in zip(model.parameters(), other_model.parameters(), strict=True):
        assert torch.equal(p, q)
