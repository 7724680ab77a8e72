import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from torch import nn

from layerdag.dag.dag import DAGBatch
from layerdag.models.base import DAGModel, LossTerm
from layerdag.models.spec import ModelSpec, build_model
from layerdag.training.batches import ProcessGroup, take_graphs
from layerdag.training.optimizer import (
    FLOOR,
    ExponentialMovingAverage,
    Optimizer,
    best_weights,
    has_bfloat16,
    learning_rate_factor,
    matrix_precision,
    parameter_groups,
)
from layerdag.training.settings import LearningRateSchedule, OptimizerConfig, TrainSettings


def test_average_follows_the_weights_with_growing_decay():
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    average = ExponentialMovingAverage(model, decay=0.2)
    nn.init.ones_(model.weight)
    average.update()  # decay min(0.2, 2 / 11)
    first = 1 - 2 / 11
    torch.testing.assert_close(average.weights()["weight"].item(), first)
    average.update()  # decay 0.2
    torch.testing.assert_close(average.weights()["weight"].item(), 0.2 * first + 0.8)


def test_averaged_weights_are_in_place_inside_the_block_only():
    model = nn.Linear(2, 2)
    average = ExponentialMovingAverage(model, decay=0.9)
    before = model.weight.detach().clone()
    nn.init.zeros_(model.weight)
    with average.applied():
        assert torch.equal(model.weight, before)
    assert torch.equal(model.weight, torch.zeros(2, 2))


def test_live_weights_come_back_though_the_block_fails():
    model = nn.Linear(2, 2)
    average = ExponentialMovingAverage(model, decay=0.9)
    with torch.no_grad():
        model.weight.fill_(7.0)
    with pytest.raises(ZeroDivisionError), average.applied():
        raise ZeroDivisionError
    assert torch.equal(model.weight, torch.full((2, 2), 7.0))


def test_the_learning_rate_rises_linearly_stays_or_falls_to_the_floor():
    factors = [
        learning_rate_factor(LearningRateSchedule("constant", 3), step, 0.0) for step in range(6)
    ]
    assert factors == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    cosine = LearningRateSchedule("cosine", 0)
    assert learning_rate_factor(cosine, 100, 0.0) == 1.0
    assert learning_rate_factor(cosine, 100, 0.5) == pytest.approx((1 + FLOOR) / 2)
    assert learning_rate_factor(cosine, 100, 1.0) == pytest.approx(FLOOR)


@given(
    st.sampled_from(["constant", "cosine"]),
    st.integers(0, 500),
    st.integers(0, 100),
    st.floats(0, 2),
)
@tried(40)
def test_the_factor_is_positive_at_most_1_and_falls_with_progress(shape, step, warmup, progress):
    schedule = LearningRateSchedule(shape, warmup)
    factor = learning_rate_factor(schedule, step, progress)
    assert 0 < factor <= 1
    assert learning_rate_factor(schedule, step, progress + 0.1) <= factor + 1e-12
    assert learning_rate_factor(schedule, step + 1, progress) >= factor
    if step >= warmup:
        # After the warm-up nothing depends on the step itself.
        assert learning_rate_factor(schedule, step + 50, progress) == factor
    if progress >= 1 and shape == "cosine" and step >= warmup:
        assert factor == pytest.approx(FLOOR)


@pytest.fixture
def make_optimizer(spec: ModelSpec) -> Callable[[], tuple[DAGModel, Optimizer]]:
    def make() -> tuple[DAGModel, Optimizer]:
        model = build_model(spec)
        settings = TrainSettings(optimizer=OptimizerConfig(gradient_clip=0.0), precision="float32")
        return model, Optimizer(model, parameter_groups(model), settings, ProcessGroup())

    return make


def gradient_norm(model: DAGModel) -> float:
    return sum(float(p.grad.norm() ** 2) for p in model.parameters() if p.grad is not None) ** 0.5


def test_every_decision_weighs_the_same_whatever_its_micro_batch(make_optimizer, data, monkeypatch):
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
    optimizer.add_gradient([batch], 0)
    optimizer.step(0.0, [0.0], 0)
    optimizer.add_gradient([batch], 1)
    small = gradient_norm(model)
    model.zero_grad()
    copies["now"] = 2
    optimizer.add_gradient([batch], 2)
    assert gradient_norm(model) == pytest.approx(2 * small)


def test_the_precision_reaches_the_matrix_products_on_any_device(spec, data):
    types = {}
    for precision in ("float32", "bfloat16"):
        model = build_model(spec)
        settings = TrainSettings(precision=precision)
        optimizer = Optimizer(model, parameter_groups(model), settings, ProcessGroup())
        found = types[precision] = set()
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(lambda _, __, out, seen=found: seen.add(out.dtype))
        optimizer.add_gradient([data], 0)
    assert types == {"float32": {torch.float32}, "bfloat16": {torch.bfloat16}}


CPU = torch.device("cpu")


def product_type(precision: str) -> torch.dtype:
    with matrix_precision(precision, CPU):
        return torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3)).dtype


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": True, "avx512_bf16": False}, torch.bfloat16),
        ({"avx512_f": True, "avx512_bf16": False}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_auto_takes_bfloat16_where_the_processor_has_instructions_for_it(
    monkeypatch, capabilities, expected
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert product_type("auto") == expected


def test_a_torch_that_cannot_tell_gets_single_precision(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert not has_bfloat16(CPU)


@pytest.mark.parametrize("supported", [True, False])
def test_a_gpu_is_asked_whether_it_really_has_bfloat16(monkeypatch, supported):
    asked = []

    def is_supported(including_emulation: bool) -> bool:
        asked.append(including_emulation)
        return supported

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
    assert has_bfloat16(torch.device("cuda")) is supported
    assert asked == [False]


@pytest.fixture
def model(spec: ModelSpec) -> DAGModel:
    return build_model(spec)


def weights_of(model: DAGModel, value: float) -> dict[str, torch.Tensor]:
    return {name: torch.full_like(p, value) for name, p in model.named_parameters()}


def test_disjoint_objectives_are_judged_apart(model):
    tracks = parameter_groups(model)
    assert [track.name for track in tracks] == ["layer_size", "node", "edge"]


def test_shared_parameters_are_judged_together(model, monkeypatch):
    everything = {("node", "edge"): list(model.parameters())}
    monkeypatch.setattr(model, "objective_parameters", lambda: everything)
    (track,) = parameter_groups(model)
    assert track.name == "total"
    assert track.objectives == ("node", "edge")
    assert len(track.parameters) == len(list(model.parameters()))


def test_best_weights_come_from_each_track_s_own_best_step(model):
    size, node, edge = parameter_groups(model)
    for track, scores in ((size, (1.0, 2.0)), (node, (2.0, 1.0)), (edge, (2.0, 3.0))):
        for step, score in enumerate(scores):
            track.update(score, step, weights_of(model, float(step)), patience=0)
    best = best_weights(model, [size, node, edge])
    assert {float(best[name].mean()) for name in size.parameters} == {0.0}
    assert {float(best[name].mean()) for name in node.parameters} == {1.0}


def test_the_first_validation_is_kept_even_if_it_is_infinite(model):
    track = parameter_groups(model)[0]
    assert track.update(math.inf, 1, weights_of(model, 0.0), patience=0)
    assert not track.update(math.inf, 2, weights_of(model, 1.0), patience=0)


def test_patience_stops_and_freezes_one_track(model):
    size, node, _ = parameter_groups(model)
    for step, score in enumerate((1.0, 1.5, math.inf)):
        size.update(score, step, weights_of(model, 0.0), patience=2)
    assert size.stopped
    assert not any(p.requires_grad for p in size.parameters.values())
    assert all(p.requires_grad for p in node.parameters.values())
