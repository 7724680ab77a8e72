import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from random_graphs import random_dag

from layerdag.dag.dag import DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.base import DAGModel
from layerdag.models.fast.encoder import ENCODERS, WindowEncoder, register_encoder
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.spec import ModelSpec, build_model
from layerdag.runtime.rng import numpy_generator
from layerdag.training import parts
from layerdag.training.batches import BucketedSource, ProcessGroup
from layerdag.training.checkpoint import load_checkpoint
from layerdag.training.loop import train
from layerdag.training.optimizer import Optimizer, parameter_groups
from layerdag.training.parts import PartThreads, parts_of, threads_for
from layerdag.training.run import TrainingRun
from layerdag.training.settings import LearningRateSchedule, TrainSettings

SIZES = GraphSizes((4, 2), edge_types=2, numeric_conditions=1)
QUIET = {
    "width": 32,
    "depth": 1,
    "encoder": {"dropout": 0.0, "token_dropout": 0.0},
    "conditioning": {"dropout": 0.0, "remaining_sizes": "none"},
    "posterior": {"dropout": 0.0},
}
"""A model without noise."""


@contextmanager
def using(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def two_threads() -> Iterator[None]:
    with using(2):
        yield


@pytest.fixture
def data(rng: np.random.Generator) -> DAGBatch:
    dags = [random_dag(rng, [2] * layers, [4, 2], num_edge_types=2) for layers in (9, 1, 4, 2, 2)]
    numeric_BC = torch.tensor(rng.normal(size=(5, 1)), dtype=torch.float32)
    return DAGBatch.from_dags(dags, numeric_BC, torch.zeros((5, 0), dtype=torch.int64))


def spec_of(config: dict[str, object]) -> ModelSpec:
    rng = numpy_generator(0, "parts")
    dags = [random_dag(rng, [2, 3, 1], [4, 2], num_edge_types=2) for _ in range(5)]
    return ModelSpec("fast", SIZES, GraphStatistics.measure(dags, SIZES), config)


def model_of(config: dict[str, object]) -> DAGModel:
    return build_model(spec_of(config))


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


def test_a_run_trains_on_the_same_whatever_the_threads(data, monkeypatch, tmp_path):
    monkeypatch.setattr(parts, "PART_NODES", 10)
    model = {**QUIET, "encoder": {"dropout": 0.5}}
    settings = TrainSettings(
        max_steps=4,
        accumulate=2,
        evaluate_every=2,
        precision="float32",
        lr_schedule=LearningRateSchedule("constant", 0),
    )
    found = []
    for threads in (1, 2):
        with using(threads):
            job = TrainingRun(spec_of(model), data, data, tmp_path / str(threads))
            found.append(train(job, settings).metrics)
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_resumed_run_with_parts_ends_equal_to_an_uninterrupted_one(
    data, two_threads, monkeypatch, tmp_path
):
    monkeypatch.setattr(parts, "PART_NODES", 10)
    spec = spec_of({**QUIET, "encoder": {"dropout": 0.5}})
    settings = TrainSettings(max_steps=4, evaluate_every=2)
    whole, cut = (TrainingRun(spec, data, data, tmp_path / name) for name in ("whole", "cut"))
    train(whole, settings)
    train(cut, replace(settings, max_steps=2))
    train(cut, settings, resume_from=cut.last)
    weights = [load_checkpoint(job.last).model.state_dict() for job in (whole, cut)]
    torch.testing.assert_close(*weights, rtol=0, atol=0)


def loads(monkeypatch: pytest.MonkeyPatch, fails_at: int | None = None) -> list[str]:
    """Return the threads that load batches, as they do."""
    threads: list[str] = []
    load = BucketedSource.load

    def watched(source: BucketedSource, graphs_G: torch.Tensor) -> DAGBatch:
        threads.append(threading.current_thread().name)
        if len(threads) == fails_at:
            raise OSError("the disk is gone")
        return load(source, graphs_G)

    monkeypatch.setattr(parts, "PART_NODES", 10)
    monkeypatch.setattr(BucketedSource, "load", watched)
    return threads


def test_threads_make_the_next_batch_meanwhile(data, two_threads, monkeypatch, tmp_path):
    threads = loads(monkeypatch)
    job = TrainingRun(spec_of(QUIET), data, data, tmp_path)
    train(job, TrainSettings(max_steps=5, precision="float32"))
    own = threading.current_thread().name
    assert threads[:2] == [own, own]  # the first stays whole, the second follows from its counts
    assert all(name.startswith("part") for name in threads[2:])
    assert len(threads) == 6


def test_one_thread_makes_a_batch_when_it_is_needed(data, monkeypatch, tmp_path):
    threads = loads(monkeypatch)
    with using(1):
        train(TrainingRun(spec_of(QUIET), data, data, tmp_path), TrainSettings(max_steps=3))
    assert threads == [threading.current_thread().name] * 3


def test_an_error_of_a_batch_that_is_made_meanwhile_is_raised(
    data, two_threads, monkeypatch, tmp_path
):
    loads(monkeypatch, fails_at=4)
    job = TrainingRun(spec_of(QUIET), data, data, tmp_path)
    with pytest.raises(OSError, match="the disk is gone"):
        train(job, TrainSettings(max_steps=5))


def test_a_model_or_encoder_of_ones_own_computes_batches_whole():
    class Own(FastLayerDAG):
        """May keep something of a batch."""

    @register_encoder("noisy")
    class Noisy(WindowEncoder):
        """May draw noise that no generator of a part controls."""

    try:
        noisy = model_of({**QUIET, "encoder": {"kind": "noisy"}})
    finally:
        ENCODERS.unregister("noisy")
    shared = model_of(QUIET)
    assert isinstance(shared, FastLayerDAG)
    own = Own(shared.sizes, shared.statistics)
    assert [m.is_sum_over_graphs for m in (shared, own, noisy)] == [True, False, False]


def test_threads_made_later_use_all_processors(two_threads):
    counts = list(PartThreads().map(lambda _: torch.get_num_threads(), [0, 1]))
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(torch.get_num_threads).result()
    assert (counts, torch.get_num_threads(), later) == ([1, 1], 2, 2)


def test_threads_that_begin_with_what_comes_later_change_no_number_of_threads():
    with using(4):
        threads, found = PartThreads(), []

        def meanwhile() -> None:
            found.append(threads.later(torch.get_num_threads))

        assert list(threads.map(abs, [-1, 2], meanwhile)) == [1, 2]
        found += [threads.later(torch.get_num_threads) for _ in range(8)]
        assert {each.result() for each in found} == {1}
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 4


def test_an_error_in_a_thread_is_raised(two_threads):
    def failing(item: int) -> float:
        return 1 / item

    threads = PartThreads()
    assert list(threads.map(failing, [1, 2, 4])) == [1.0, 0.5, 0.25]
    with pytest.raises(ZeroDivisionError):
        list(threads.map(failing, [1, 0]))


@pytest.mark.parametrize(("numbers", "inside"), [(1000, 1), (1 << 24, 3)])
def test_few_numbers_get_one_thread(numbers, inside):
    with using(3):
        with threads_for(numbers):
            assert torch.get_num_threads() == inside
        assert torch.get_num_threads() == 3


def test_where_a_thread_cannot_start_no_other_waits_for_it(two_threads, monkeypatch):
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    with pytest.raises(RuntimeError, match="can't start"):
        next(PartThreads().map(str, [1, 2]))
    started[0].join(20)
    assert not started[0].is_alive()
