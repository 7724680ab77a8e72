"""A run whose steps are recorded and repeated is the run whose steps are made one by one.

There is no GPU here: what is recorded is done again on the same memory, as a CUDA graph does it.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from layerdag.errors import GraphError
from layerdag.models.spec import ModelSpec, build_model
from layerdag.training import loop
from layerdag.training.batches import BatchSource, BucketedSource, MicroBatch, RepeatedBatches
from layerdag.training.checkpoint import load_trainer_state
from layerdag.training.recorded_steps import PaddedBatches, RecordedSteps
from layerdag.training.run import TrainingRun
from layerdag.training.settings import TrainSettings

NO_NOISE = {
    "width": 32,
    "depth": 1,
    "encoder": {"block": 4, "dropout": 0.0, "token_dropout": 0.0},
    "conditioning": {"dropout": 0.0, "remaining_sizes": "none"},
    "posterior": {"dropout": 0.0},
}


@pytest.fixture
def fast(spec) -> ModelSpec:
    return replace(spec, name="fast", arguments=NO_NOISE)


def done_again(work, generator):
    """What CUDA graphs do: the same work on the same memory, its result in the same place."""
    result = work()

    def again() -> None:
        new = work()
        result.mean_O.copy_(new.mean_O)
        for old, gradient in zip(result.gradients, new.gradients, strict=True):
            if old is not None:
                old.copy_(gradient)

    return result, again


def repeated(data, graphs, nodes, seed):
    """The same batches in plain runs as in recorded ones."""
    return RepeatedBatches(BucketedSource(data, graphs, nodes, seed), seed)


@pytest.mark.parametrize("settings", [{"accumulate": 2}, {"patience": 1, "ema_decay": 0.0}])
def test_recorded_steps_move_the_weights_as_plain_ones_do(
    data, fast, tmp_path, monkeypatch, settings
):
    made: list[RecordedSteps] = []

    class Watched(RecordedSteps):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr("layerdag.training.optimizer.RecordedSteps", Watched)
    options = TrainSettings(
        max_steps=12, batch_graphs=4, evaluate_every=2, precision="float32", **settings
    )
    states = []
    for recorder in (None, done_again):
        monkeypatch.setattr(loop, "recorder_for", lambda *_, recorder=recorder: recorder)
        monkeypatch.setattr(loop, "BucketedSource", repeated)
        run = TrainingRun(fast, data, data, tmp_path / str(len(states)))
        states.append(load_trainer_state(loop.train(run, options).last))
    plain, recorded = states
    assert recorded["step"] == plain["step"]
    assert (recorded["epoch"], recorded["position"]) == (plain["epoch"], plain["position"])
    one, other = (
        torch.cat([weight.flatten() for weight in state["model"].values()])
        for state in (plain, recorded)
    )
    start = torch.cat([weight.flatten() for weight in build_model(fast).state_dict().values()])
    # AdamW makes a step of the sign of a gradient that is nothing but rounding.
    assert (other - one).norm() < 5e-3 * (one - start).norm()
    # Most steps repeat a recording.
    assert 0 < made[0].recordings <= 10


def stream(count: int) -> Iterator[MicroBatch]:
    for number in range(count):
        graphs_G = torch.tensor([number % 12, (number * 5 + 1) % 12])
        yield MicroBatch(graphs_G, number, 0, number + 1)


def ahead_of(fast: ModelSpec, source: BatchSource, batches, most: int = 1 << 20):
    device = torch.device("cpu")
    return contextlib.closing(PaddedBatches(build_model(fast), source, batches, device, most))


def test_batches_come_in_order_and_padded_alike_again(data, fast):
    def made():
        with ahead_of(fast, BucketedSource(data, 4, 100, seed=0), stream(100)) as ahead:
            return [ahead.next() for _ in range(20)]

    once, again = made(), made()
    assert [batch.noise_seed for batch, _ in once] == list(range(20))
    for (_, one), (_, other) in zip(once, again, strict=True):
        assert (one.number, one.sizes, one.counts) == (other.number, other.sizes, other.counts)
        pairs = zip(one.tensors, other.tensors, strict=True)
        assert all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in pairs)


def test_batches_of_a_class_have_the_same_shapes_until_it_grows(data, fast):
    with ahead_of(fast, BucketedSource(data, 4, 100, seed=0), stream(60)) as ahead:
        made = [ahead.next()[1] for _ in range(40)]
    shapes = {}
    for padded in made:
        found = [tensor.shape for tensor in padded.tensors]
        key = padded.number, tuple(padded.sizes.items())
        assert shapes.setdefault(key, found) == found
    assert len(shapes) < 12


def test_a_fault_of_a_thread_is_raised_in_its_turn(data, fast, monkeypatch):
    class Broken(BucketedSource):
        def load(self, graphs_G):
            if int(graphs_G[0]) == 3:
                raise GraphError("graph 3 is broken")
            return super().load(graphs_G)

    source = Broken(data, 4, 100, seed=0)
    with ahead_of(fast, source, stream(100)) as ahead:
        for _ in range(3):
            ahead.next()
        with pytest.raises(GraphError, match="graph 3"):
            ahead.next()


@pytest.mark.parametrize("most", [0, 1 << 13, 1 << 24])
def test_a_batch_that_is_kept_is_made_once(data, fast, most):
    loaded = []

    class Counted(BucketedSource):
        def load(self, graphs_G):
            loaded.append(int(graphs_G[0]))
            return super().load(graphs_G)

    source = Counted(data, 4, 100, seed=0)
    plain = dict(enumerate(source.epoch_batches(0)))
    batches = (MicroBatch(plain[n % len(plain)], n, 0, n + 1) for n in range(100))
    with ahead_of(fast, source, batches, most=most) as ahead:
        made = [ahead.next() for _ in range(40)]
    for batch, padded in made:
        assert padded.counts["condition"] == batch.graphs_G.numel()
        found = padded.batch
        node = found.node_ptr[batch.graphs_G.numel()]
        wanted = BucketedSource.load(source, batch.graphs_G)
        assert torch.equal(found.x_NA[:node], wanted.x_NA)
    # Once more where sizes had grown since, and all anew where there is no room.
    assert len(loaded) >= 40 if most == 0 else len(loaded) <= 40
    assert most < 1 << 24 or len(loaded) <= 2 * len(plain)


def test_each_epoch_repeats_the_batches_of_the_first_in_another_order(data):
    source = RepeatedBatches(BucketedSource(data, 2, 100, seed=0), seed=0)
    epochs = [[tuple(b.tolist()) for b in source.epoch_batches(epoch)] for epoch in (0, 1, 2, 1)]
    assert epochs[1] == epochs[3] != epochs[2]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(epochs[2])
