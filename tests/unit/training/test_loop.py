"""Means of losses between two lines of the log, and the share of the budget that is spent."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from layerdag.datasets.splits import SplitFingerprint
from layerdag.errors import CheckpointError, TrainingError, UsageError
from layerdag.models.base import DAGModel
from layerdag.models.spec import ModelSpec
from layerdag.training.checkpoint import load_checkpoint, load_trainer_state
from layerdag.training.loop import Budget, RunningMean, train, trap_signals
from layerdag.training.run import CallbackResult, TrainingRun, TrainResult
from layerdag.training.settings import LearningRateSchedule, OptimizerConfig, TrainSettings


def test_a_window_tells_means_and_speed_and_starts_anew():
    meter = RunningMean(10.0)
    meter.add({"node": torch.tensor(1.0), "edge": torch.tensor(4.0)}, graphs=3)
    meter.add({"node": torch.tensor(2.0)}, graphs=5)
    assert meter.flush(14.0) == {
        "train/node": 1.5,
        "train/edge": 4.0,
        "train/graphs_per_second": 2.0,
        "seconds": 14.0,
    }
    assert meter.note == " node 1.500 edge 4.000"
    meter.add({"node": torch.tensor(5.0)}, graphs=1)
    assert meter.flush(15.0) == {
        "train/node": 5.0, "train/graphs_per_second": 1.0, "seconds": 15.0,
    }  # fmt: skip


def test_no_time_at_all_is_no_division_by_0():
    meter = RunningMean(3.0)
    meter.add({"node": torch.tensor(1.0)}, graphs=1)
    assert meter.flush(3.0)["train/graphs_per_second"] == pytest.approx(1e9)


@pytest.mark.parametrize(
    ("limits", "step", "seconds", "share"),
    [
        ({"max_steps": 8}, 2, 100.0, 0.25),
        ({"max_steps": 8}, 20, 0.0, 1.0),
        ({"max_steps": None, "max_seconds": 1000.0}, 5, 250.0, 0.25),
        ({"max_steps": 10, "max_seconds": 1000.0}, 1, 500.0, 0.5),
        ({"max_steps": 10, "max_seconds": 1000.0}, 9, 500.0, 0.9),
    ],
)
def test_the_spent_share_is_that_of_the_limit_that_is_further(limits, step, seconds, share):
    with contextlib.closing(Budget(TrainSettings(**limits), step, seconds)) as budget:
        assert budget.used(step) == pytest.approx(share, abs=0.01)
        assert budget.seconds() == pytest.approx(seconds, abs=2.0)
        budget.show(step, "node 1.0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noted_and_handlers_are_put_back(number):
    before = signal.getsignal(number)
    with trap_signals() as request:
        os.kill(os.getpid(), number)
        assert request.signal_name == number.name
    assert signal.getsignal(number) is before


def test_a_second_signal_breaks_off():
    with trap_signals():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_other_threads_catch_nothing():
    found = []

    def look() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with trap_signals() as request:
            found.append((signal.getsignal(signal.SIGTERM) is before, request.signal_name))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [(True, None)]


Run = Callable[..., TrainResult]


class Recorder:
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        self.figures: list[tuple[int, dict[str, float]]] = []
        self.pictures: list[tuple[int, str]] = []

    def log(self, step, values):
        self.figures.append((step, dict(values)))

    def picture(self, step, name, file):
        self.pictures.append((step, name))

    def close(self):
        pass


@pytest.fixture
def run(data, spec, tmp_path) -> Run:
    """Return a function that trains the tiny model into a folder."""

    def start(folder: str, steps: int = 6, resume_from: Path | None = None, **settings):
        options = {"batch_graphs": 4, "evaluate_every": 3, "log_every": 1, "precision": "float32"}
        options["lr_schedule"] = LearningRateSchedule(warmup_steps=2)
        allowed = settings.pop("overwrite", False)
        job = TrainingRun(
            spec, data, data, tmp_path / folder, schema={"kind": "flow"}, overwrite=allowed
        )
        extra = {key: settings.pop(key) for key in ("callback", "loggers") if key in settings}
        chosen = TrainSettings(max_steps=steps, **{**options, **settings})
        return train(job, chosen, resume_from=resume_from, **extra)

    return start


def state(result: TrainResult) -> dict[str, torch.Tensor]:
    return load_trainer_state(result.last)["model"]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def test_a_resumed_run_ends_bit_equal_to_an_uninterrupted_one(run):
    whole = run("whole", 8)
    first = run("parts", 4)
    second = run("parts", 8, resume_from=first.last)
    assert second.step == 8
    assert same(state(whole), state(second))
    one, two = load_checkpoint(whole.best), load_checkpoint(second.best)
    assert same(one.model.state_dict(), two.model.state_dict())


def test_the_global_generator_is_not_touched(run):
    before = torch.random.get_rng_state()
    run("a", 2)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_accumulating_equals_nothing_but_more_micro_batches(run):
    result = run("a", 2, accumulate=3)
    position = load_trainer_state(result.last)
    assert position["epoch"] * 3 + position["position"] == 6  # 12 graphs make 3 micro-batches


def test_a_run_stopped_by_a_signal_goes_on_as_if_nothing_had_happened(run):
    def kill(model: DAGModel, step: int) -> CallbackResult:
        if step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return CallbackResult()

    whole = run("whole", 6, evaluate_every=2)
    # Stopped after step 2, before the validation that is due there.
    first = run("parts", 6, evaluate_every=1, callback=kill)
    assert first.step == 2
    second = run("parts", 6, evaluate_every=2, resume_from=first.last)
    assert same(state(whole), state(second))
    assert load_trainer_state(second.last)["evaluated_step"] == 6


def test_the_callback_sees_averaged_weights_and_its_findings_are_logged(run, tmp_path):
    recorder = Recorder()

    def look(model: DAGModel, step: int) -> CallbackResult:
        return CallbackResult({"validity": 1.0}, {"samples": tmp_path / "x.png"})

    run("a", 3, callback=look, loggers=[recorder])
    assert recorder.pictures == [(3, "samples")]
    assert any(values.get("validity") == 1.0 for _, values in recorder.figures)


def test_divergence_is_one_sentence_and_keeps_the_last_checkpoint(run):
    with pytest.raises(TrainingError, match=r"diverged at step \d+: .*learning_rate"):
        run("a", 50, optimizer=OptimizerConfig(learning_rate=1e30, gradient_clip=0.0),
            lr_schedule=LearningRateSchedule(warmup_steps=0))  # fmt: skip


def test_resuming_another_model_is_refused(run, spec, data, tmp_path):
    first = run("a", 3)
    arguments = {**spec.arguments, "edge": {**spec.arguments["edge"], "width": 16}}
    wider = ModelSpec(spec.name, spec.sizes, spec.statistics, arguments)
    job = TrainingRun(wider, data, data, tmp_path / "b")
    with pytest.raises(CheckpointError, match="cannot be resumed"):
        train(job, TrainSettings(max_steps=5), resume_from=first.last)


def test_patience_counts_on_after_resuming(run):
    # Nothing gets better: each validation after the first counts as one without improvement.
    still = {
        "optimizer": OptimizerConfig(1e-12), "lr_schedule": LearningRateSchedule(warmup_steps=0),
        "ema_decay": 0.0, "evaluate_every": 1,
    }  # fmt: skip
    first = run("a", 3, patience=4, **still)
    stale = {
        name: track["stale"] for name, track in load_trainer_state(first.last)["tracks"].items()
    }
    assert set(stale.values()) == {2}, "the test needs validations that bring nothing"
    second = run("a", 100, patience=4, resume_from=first.last, **still)
    assert (second.reason, second.step) == ("patience", 5)


def test_spent_seconds_count_on_after_resuming(run):
    first = run("a", None, max_seconds=0.5)
    spent = load_trainer_state(first.last)["seconds"]
    assert spent >= 0.5
    second = run("a", None, max_seconds=0.5, resume_from=first.last)
    assert (second.reason, second.step) == ("budget", first.step)
    # The first result also counts what came after the checkpoint was written.
    third = run("a", first.step + 1, resume_from=first.last)
    assert third.seconds > spent


def test_a_run_stopped_before_its_first_validation_has_no_figures(run):
    result = run("a", 50, evaluate_every=40, loggers=[Killer()])
    assert (result.reason, dict(result.metrics)) == ("SIGINT", {})
    assert "Infinity" not in (result.last / "meta.json").read_text()
    assert not result.best.exists()


class Killer(Recorder):
    """Asks the run to stop when it gets its first figures."""

    def log(self, step, values):
        if not self.figures:
            os.kill(os.getpid(), signal.SIGINT)
        super().log(step, values)


def test_another_run_is_replaced_only_if_that_is_allowed(run):
    first = run("a", 3)
    before = load_checkpoint(first.best).meta
    with pytest.raises(UsageError, match="holds a run already"):
        run("a", 4)
    with pytest.raises(UsageError, match="holds a run already"):
        run("a", 4, resume_from=run("b", 3).last)
    assert load_checkpoint(first.best).meta == before
    run("a", 2, overwrite=True, evaluate_every=10)
    assert load_checkpoint(first.best).meta.step == 2


@pytest.mark.parametrize("name", ["best", "last"])
def test_a_foreign_folder_in_the_place_of_a_checkpoint_is_left_alone(run, tmp_path, name):
    foreign = tmp_path / "a" / name
    foreign.mkdir(parents=True)
    (foreign / "paper.txt").write_text("precious")
    with pytest.raises(UsageError, match=r"'paper\.txt', which layerdag did not write"):
        run("a", 3, overwrite=True)
    assert (foreign / "paper.txt").read_text() == "precious"


def test_a_finished_run_resumed_stays_as_it_is(run):
    first = run("a", 3)
    assert run("a", 3, resume_from=first.last).step == 3


def test_last_holds_the_posterior_at_its_best_and_all_else_as_it_is(data, spec, tmp_path):
    spec = ModelSpec("fast", spec.sizes, spec.statistics, {"width": 32, "depth": 1})
    job = TrainingRun(spec, data, data, tmp_path / "fast", schema={"kind": "flow"})
    settings = TrainSettings(
        max_steps=6,
        evaluate_every=1,
        optimizer=OptimizerConfig(0.3),
        ema_decay=0.0,
        lr_schedule=LearningRateSchedule(warmup_steps=1),
    )
    result = train(job, settings)
    kept, best = load_checkpoint(result.last).model, load_checkpoint(result.best).model
    trainer = load_trainer_state(result.last)
    assert trainer["tracks"]["condition"]["best_step"] < 6, (
        "the test needs a posterior that got worse"
    )
    for name, tensor in kept.state_dict().items():
        expected = best.state_dict() if name.startswith("posterior.") else trainer["model"]
        assert torch.equal(tensor, expected[name]), name


def test_a_run_is_not_resumed_with_other_graphs_than_it_began_with(data, spec, tmp_path):
    began = SplitFingerprint("a", "b", "c")
    job = TrainingRun(spec, data, data, tmp_path / "run", split=began)
    settings = TrainSettings(max_steps=2, batch_graphs=4)
    first = train(job, settings)
    train(job, settings, resume_from=first.last)
    other = replace(job, split=replace(began, test="d"))
    with pytest.raises(UsageError, match="other graphs for test"):
        train(other, settings, resume_from=first.last)
