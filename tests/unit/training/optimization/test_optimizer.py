import copy
from collections.abc import Callable

import pytest
import torch

from layerdag.graph import DAGBatch
from layerdag.models import DAGModel, LossTerm, ModelSpec, build_model
from layerdag.training import OptimizerConfig, TrainSettings, World
from layerdag.training._batches import take_graphs
from layerdag.training.optimization import Optimizer
from layerdag.training.optimization._selection import parameter_groups


@pytest.fixture
def make_optimizer(spec: ModelSpec) -> Callable[[], tuple[DAGModel, Optimizer]]:
    def make() -> tuple[DAGModel, Optimizer]:
        model = build_model(spec)
        settings = TrainSettings(optimizer=OptimizerConfig(gradient_clip=0.0), precision="float32")
        return model, Optimizer(model, parameter_groups(model), settings, World())

    return make


def gradient_norm(model: DAGModel) -> float:
    return sum(float(p.grad.norm() ** 2) for p in model.parameters() if p.grad is not None) ** 0.5


def test_every_decision_weighs_the_same_whatever_its_micro_batch(
    make_optimizer: Callable, data: DAGBatch, monkeypatch: pytest.MonkeyPatch
):
    """Twice the decisions, once the mean loss: the gradient must be twice as large, not equal."""
    model, optimizer = make_optimizer()
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
    optimizer.add_gradient(batch, 0)
    optimizer.step(0.0, torch.zeros(1), 0)
    optimizer.add_gradient(batch, 1)
    small = gradient_norm(model)
    model.zero_grad()
    copies["now"] = 2
    optimizer.add_gradient(batch, 2)
    assert gradient_norm(model) == pytest.approx(2 * small)


def test_the_precision_reaches_the_matrix_products_on_any_device(spec: ModelSpec, data: DAGBatch):
    types = {}
    for precision in ("float32", "bfloat16"):
        model = build_model(spec)
        settings = TrainSettings(precision=precision)
        optimizer = Optimizer(model, parameter_groups(model), settings, World())
        found = types[precision] = set()
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(lambda _, __, out, seen=found: seen.add(out.dtype))
        optimizer.add_gradient(data, 0)
    assert types == {"float32": {torch.float32}, "bfloat16": {torch.bfloat16}}


def test_the_running_counts_survive_resuming(make_optimizer: Callable, data: DAGBatch):
    model, optimizer = make_optimizer()
    optimizer.add_gradient(data, 0)
    optimizer.step(1e-3, torch.zeros(1), 0)
    other_model, other = make_optimizer()
    other_model.load_state_dict(model.state_dict())
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one in (optimizer, other):
        one.add_gradient(take_graphs(data, torch.arange(3)), 1)
        one.step(1e-3, torch.zeros(1), 1)
    for p, q in zip(model.parameters(), other_model.parameters(), strict=True):
        assert torch.equal(p, q)
