from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from random_graphs import random_dag

from layerdag.dag.dag import DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.base import DAGModel, ModelSpec, build_model
from layerdag.models.fast.encoder import ENCODERS, WindowEncoder, register_encoder
from layerdag.runtime.rng import numpy_generator
from layerdag.training import parts
from layerdag.training.batches import ProcessGroup
from layerdag.training.loop import evaluate
from layerdag.training.optimizer import Optimizer, parameter_groups
from layerdag.training.parts import SideBySide, parts_of, threads_for
from layerdag.training.run import TrainSettings

SIZES = GraphSizes((4, 2), edge_types=2, numeric_conditions=1)
QUIET = {
    "width": 32,
    "depth": 1,
    "encoder": {"dropout": 0.0, "token_dropout": 0.0},
    "conditioning": {"dropout": 0.0, "remaining_sizes": "none"},
    "posterior": {"dropout": 0.0},
}
"""A model without noise."""


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def data(rng: np.random.Generator) -> DAGBatch:
    dags = [random_dag(rng, [2] * layers, [4, 2], num_edge_types=2) for layers in (9, 1, 4, 2, 2)]
    numeric_BC = torch.tensor(rng.normal(size=(5, 1)), dtype=torch.float32)
    return DAGBatch.from_dags(dags, numeric_BC, torch.zeros((5, 0), dtype=torch.int64))


def model_of(config: dict[str, object]) -> DAGModel:
    rng = numpy_generator(0, "parts")
    dags = [random_dag(rng, [2, 3, 1], [4, 2], num_edge_types=2) for _ in range(5)]
    return build_model(ModelSpec("fast", SIZES, GraphStatistics.measure(dags, SIZES), config))


def gradients(model: DAGModel, batch: DAGBatch) -> list[torch.Tensor]:
    """Return those of a second step; the first counts the decisions of a batch."""
    settings = TrainSettings(precision="float32")
    optimizer = Optimizer(model, parameter_groups(model), settings, ProcessGroup())
    optimizer.add_gradient([batch], 0)
    optimizer.step(0.0, [0.0], 0)
    optimizer.add_gradient(parts_of(batch), 0)
    return [torch.zeros(0) if p.grad is None else p.grad for p in model.parameters()]


def test_parts_hold_every_graph_once_and_about_the_same_number_of_nodes(data, monkeypatch):
    monkeypatch.setattr(parts, "PART_NODES", 18)
    found = parts_of(data)
    assert [part.num_nodes for part in found] == [18, 18]
    assert [part.num_graphs for part in found] == [1, 4]
    assert found[1].node_ptr.diff().tolist() == [2, 8, 4, 4]
    monkeypatch.setattr(parts, "PART_NODES", 1)
    assert len(parts_of(data)) == data.num_graphs


def test_a_small_batch_stays_whole(data):
    assert parts_of(data) == [data]


def test_parts_side_by_side_have_the_gradient_of_the_batch(data, two_threads, monkeypatch):
    whole = gradients(model_of(QUIET), data)
    monkeypatch.setattr(parts, "PART_NODES", 18)
    torch.testing.assert_close(gradients(model_of(QUIET), data), whole, rtol=1e-4, atol=1e-6)


def test_noise_does_not_depend_on_which_thread_is_first(data, two_threads, monkeypatch):
    monkeypatch.setattr(parts, "PART_NODES", 10)
    noisy = {**QUIET, "encoder": {"dropout": 0.5}}
    first, second = (gradients(model_of(noisy), data) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_validation_is_the_same_with_several_threads(data, two_threads):
    model, limits = model_of(QUIET), {"batch_graphs": 2, "batch_nodes": 100, "seed": 3}
    several = evaluate(model, data, **limits)
    torch.set_num_threads(1)
    alone = evaluate(model, data, **limits)
    assert several.per_decision() == pytest.approx(alone.per_decision(), rel=1e-6)
    assert replace(several, totals={}) == replace(alone, totals={})


def test_an_encoder_of_ones_own_computes_batches_whole(two_threads):
    @register_encoder("noisy")
    class Noisy(WindowEncoder):
        """May draw noise that no generator of a part controls."""

    try:
        own = model_of({**QUIET, "encoder": {"kind": "noisy"}})
    finally:
        ENCODERS.unregister("noisy")
    assert threads_for(own) == 1
    assert threads_for(model_of(QUIET)) == 2


def test_an_error_in_a_thread_is_raised(two_threads):
    def failing(item: int) -> float:
        return 1 / item

    side_by_side = SideBySide(model_of(QUIET))
    assert side_by_side.map(failing, [1, 2, 4]) == [1.0, 0.5, 0.25]
    with pytest.raises(ZeroDivisionError):
        side_by_side.map(failing, [1, 0])
