"""The training loop: steps, validation, budget, signals."""

import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerdag.dag.dag import DAGBatch
from layerdag.errors import CheckpointError, UsageError
from layerdag.models.base import DAGModel
from layerdag.models.cuda_graphs import record_cuda_graph
from layerdag.models.spec import build_model
from layerdag.runtime.native import keep_compiled_products, set_openmp_passive
from layerdag.runtime.reading import available_memory
from layerdag.runtime.rng import derive_seed
from layerdag.runtime.terminal import plain_stream
from layerdag.training.batches import (
    BatchSource,
    BucketedSource,
    MicroBatch,
    ProcessGroup,
    RepeatedBatches,
    in_order,
    local_device,
    take_graphs,
)
from layerdag.training.checkpoint import (
    CheckpointMeta,
    load_trainer_state,
    read_meta,
    save_checkpoint,
)
from layerdag.training.loggers import Logger
from layerdag.training.optimizer import (
    ExponentialMovingAverage,
    Optimizer,
    best_weights,
    learning_rate_factor,
    parameter_groups,
)
from layerdag.training.parts import parts_of, threads_for
from layerdag.training.recorded_steps import PaddedBatches, Recorder
from layerdag.training.run import Callback, CallbackResult, TrainingRun, TrainResult
from layerdag.training.run_folder import begin_run, hold_run
from layerdag.training.settings import TrainSettings

KEPT_SHARE = 0.25
"""Of the memory of a GPU that is free at first: what the batches of an epoch may take."""


@dataclass(frozen=True)
class ValidationLosses:
    """Losses over a whole set of graphs."""

    totals: Mapping[str, float]  # nats by objective, summed over all graphs
    counts: Mapping[str, float]  # decisions by objective
    graphs: int

    def per_decision(self) -> dict[str, float]:
        """Return nats a decision by objective."""
        return {name: total / max(self.counts[name], 1) for name, total in self.totals.items()}

    def per_graph(self, objectives: tuple[str, ...]) -> float:
        """Return the nats per graph of several objectives together."""
        return sum(self.totals[name] for name in objectives) / self.graphs


@torch.no_grad()
def evaluate(
    model: DAGModel,
    data: DAGBatch,
    *,
    batch_graphs: int,
    batch_nodes: int,
    seed: int,
    world: ProcessGroup | None = None,
) -> ValidationLosses:
    """Return the losses of ``model`` over all graphs of ``data``.

    The noise of a batch depends on ``seed`` and the batch alone: the same weights give the same
    figures, however many processes share the work.
    """
    world = world or ProcessGroup()
    sizes_B = data.node_ptr.diff().cpu().numpy()
    batches = in_order(np.argsort(sizes_B, kind="stable"), sizes_B, batch_graphs, batch_nodes)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    names = [name for objectives in model.objective_parameters() for name in objectives]
    sums_O2 = torch.zeros(len(names), 2, dtype=torch.float64, device=device)
    for number in range(world.rank, len(batches), world.size):
        generator = torch.Generator(device).manual_seed(derive_seed(seed, "validation", number))
        terms = model.losses(model.prepared(take_graphs(data, batches[number])), generator)
        for row, name in enumerate(names):
            sums_O2[row, 0] += terms[name].total
            sums_O2[row, 1] += terms[name].count
    model.train(was_training)
    rows = world.sum(sums_O2).tolist()
    return ValidationLosses(
        totals={name: row[0] for name, row in zip(names, rows, strict=True)},
        counts={name: row[1] for name, row in zip(names, rows, strict=True)},
        graphs=data.num_graphs,
    )


class Budget:
    """The used fraction of ``max_steps`` or ``max_seconds``, whichever is further."""

    def __init__(self, settings: TrainSettings, step: int = 0, seconds: float = 0.0) -> None:
        from tqdm import tqdm

        self._settings = settings
        self._start = time.monotonic() - seconds
        self._bar = tqdm(
            total=1.0,
            initial=self.used(step),
            desc="training",
            disable=not sys.stderr.isatty(),
            leave=False,
            file=plain_stream(sys.stderr),
            bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}",
        )

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()

    def seconds(self) -> float:
        """Return the seconds spent, those before resuming included."""
        return time.monotonic() - self._start

    def used(self, step: int) -> float:
        """Return the used fraction, 1 when the budget is spent."""
        limit = self._settings
        by_step = step / limit.max_steps if limit.max_steps else 0.0
        by_time = self.seconds() / limit.max_seconds if limit.max_seconds else 0.0
        return min(1.0, max(by_step, by_time))

    def show(self, step: int, note: str) -> None:
        """Move the bar."""
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(self.used(step) - self._bar.n)


class RunningMean:
    """Mean of the losses, and the speed, between two log lines; never waits for the device."""

    def __init__(self, seconds: float) -> None:
        self.note = ""
        self._losses: dict[str, list[Tensor]] = {}
        self._graphs = 0
        self._since = seconds

    def add(self, losses: Mapping[str, Tensor], graphs: int) -> None:
        """Take the losses of one micro-batch by objective."""
        self._graphs += graphs
        for name, loss in losses.items():
            self._losses.setdefault(name, []).append(loss)

    def flush(self, seconds: float) -> dict[str, float]:
        """Return the mean losses and graphs per second since the last call, and start anew."""
        means_O = [torch.stack(rows).mean() for rows in self._losses.values()]
        found = torch.stack(means_O).tolist() if means_O else []
        means = dict(zip(self._losses, found, strict=True))
        self.note = " " + " ".join(f"{name} {mean:.3f}" for name, mean in means.items())
        speed = self._graphs / max(seconds - self._since, 1e-9)
        self._losses, self._graphs, self._since = {}, 0, seconds
        figures = {f"train/{name}": mean for name, mean in means.items()}
        return {**figures, "train/graphs_per_second": speed, "seconds": seconds}


class StopRequest:
    """Whether the run was asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the signal; a second one breaks off at once."""
        if self.signal_name is not None:
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name


@contextlib.contextmanager
def trap_signals() -> Iterator[StopRequest]:
    """Catch both signals inside the block (in the main thread; elsewhere nothing is caught)."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = [signal.signal(number, request.handle) for number in numbers]
    try:
        yield request
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)


def train(
    run: TrainingRun,
    settings: TrainSettings,
    *,
    device: torch.device | str = "cpu",
    world: ProcessGroup | None = None,
    loggers: Sequence[Logger] = (),
    callback: Callback | None = None,
    resume_from: Path | None = None,
) -> TrainResult:
    """Train until the budget is spent, every objective has stopped, or a signal comes.

    Args:
        run: What to train.
        settings: How.
        device: Where; "auto" is a GPU where there is one.
        world: This process among several (``batches.joined_world``); None is alone.
        loggers: Take figures on process 0, beside the log ``train.jsonl`` in the run's folder.
        callback: Called on process 0 after each validation with the averaged weights in place.
        resume_from: A ``last`` checkpoint to go on from; on a CPU the run ends bit-equal to one
            that was never interrupted, as long as no limit in seconds is set.

    Raises:
        UsageError: If another run stands in its directory and may not be replaced
            (``run.overwrite``), or another process is training there.
        TrainingError: If training diverged.
        CheckpointError: If ``resume_from`` cannot be read or belongs to another model.
    """
    set_openmp_passive()
    keep_compiled_products()
    world = world or ProcessGroup()
    goes_on = resume_from is not None and resume_from.resolve() == run.last.resolve()
    with contextlib.ExitStack() as stack:
        if world.rank == 0:
            stack.enter_context(hold_run(run.directory, overwrite=run.overwrite, goes_on=goes_on))
        trainer = _Trainer(run, settings, local_device(device), world)
        if resume_from is not None:
            trainer.resume(resume_from)
        if world.rank == 0:
            log = begin_run(run.directory, run.record, trainer.step if goes_on else None)
            loggers = (stack.enter_context(contextlib.closing(log)), *loggers)
        trainer.loggers, trainer.callback = loggers, callback
        trainer.request = stack.enter_context(trap_signals())
        trainer.budget = Budget(settings, trainer.step, trainer.seconds)
        with contextlib.closing(trainer.budget):
            return trainer.train()


class _Trainer:
    loggers: Sequence[Logger]
    callback: Callback | None
    request: StopRequest
    budget: Budget

    def __init__(
        self, run: TrainingRun, settings: TrainSettings, device: torch.device, world: ProcessGroup
    ) -> None:
        self.run, self.settings, self.device, self.world = run, settings, device, world
        self.model = build_model(run.spec, settings.seed).to(device).train()
        self.origin = None if run.start is None else run.start.origin
        if run.start is not None:
            self.model.load_state_dict(dict(run.start.weights))
        world.same_weights(self.model)
        self.num_parameters = sum(p.numel() for p in self.model.parameters())
        self.groups = parameter_groups(self.model)
        self.optimizer = Optimizer(self.model, self.groups, settings, world)
        self.ema = ExponentialMovingAverage(self.model, settings.ema_decay)
        # Batches are made on the host, which knows their sizes then.
        data, self.validation = run.train.to("cpu"), run.validation.to("cpu")
        nodes = settings.nodes_per_batch(device.type, data.num_nodes)
        self.limits = (settings.batch_graphs, nodes)
        self.source: BatchSource = BucketedSource(data, *self.limits, settings.seed)
        self.record = recorder_for(self.model, device)
        if self.record is not None:
            self.source = RepeatedBatches(self.source, settings.seed)
        self.epoch, self.position = 0, 0
        self.step, self.seconds = 0, 0.0
        self.evaluated_step, self.saved_step = -1, -1

    def train(self) -> TrainResult:
        """Run to the end."""
        with self._steps() as steps:
            reason = self._until_the_end(steps)
        self.optimizer.require_finite()
        if reason == "budget" and self.evaluated_step != self.step:
            self._validate()
        elif self.saved_step != self.step:
            self._save_last()
        result = (self.step, self.budget.seconds(), self._metrics(), self.run.best, self.run.last)
        return TrainResult(reason, *result)

    def _until_the_end(self, steps: "_Steps") -> str:
        """Make steps and validations; return why no more are made."""
        budget, settings = self.budget, self.settings
        progress, meter = budget.used(self.step), RunningMean(budget.seconds())
        reason = "" if progress < 1 else "budget"
        while not reason:
            # A signal may have come before it; then the resumed run begins with it.
            due = self.step > 0 and self.step % settings.evaluate_every == 0
            if due and self.evaluated_step != self.step:
                self.optimizer.require_finite()
                self._validate()
                if all(group.stopped for group in self.groups):
                    return "patience"
            stop, progress = self._advance(steps, progress, meter)
            budget.show(self.step, meter.note)
            if stop:
                reason = self.request.signal_name or "signal on another process"
            elif progress >= 1:
                reason = "budget"
            if self.step % settings.log_every == 0:
                self.optimizer.require_finite()
                self._log(meter.flush(budget.seconds()))
        return reason

    def resume(self, checkpoint: Path) -> None:
        """Take up the state of an earlier run."""
        state = load_trainer_state(checkpoint)
        learned, given = read_meta(checkpoint).split, self.run.split
        if learned is not None and given is not None and learned.differing(given):
            raise UsageError(
                f"{checkpoint}: was trained with other graphs for "
                f"{' and '.join(learned.differing(given))} than those at hand; going on would "
                "train on graphs that were held out. Resume with the data and the split of the run."
            )
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.ema.load_state_dict(state["average"])
            for group in self.groups:
                group.load_state_dict(state["tracks"][group.name])
            self.step, self.seconds = int(state["step"]), float(state["seconds"])
            self.epoch, self.position = int(state["epoch"]), int(state["position"])
        except (KeyError, RuntimeError, ValueError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise CheckpointError(
                f"{checkpoint} cannot be resumed with this configuration ({reason}); "
                "use the model and training settings it was made with."
            ) from error
        self.evaluated_step = self.saved_step = int(state["evaluated_step"])
        self.origin = read_meta(checkpoint).origin

    def _advance(self, steps: "_Steps", progress: float, meter: RunningMean) -> tuple[bool, float]:
        """Make one optimizer step; return whether some process must stop, and the mean progress."""
        flags = [float(self.request.signal_name is not None), self.budget.used(self.step + 1)]
        for _ in range(self.settings.accumulate):
            batch, losses = steps.add_gradient()
            self.epoch, self.position = batch.epoch, batch.position
            meter.add(losses, batch.graphs_G.numel())
        settings = self.settings
        factor = learning_rate_factor(settings.lr_schedule, self.step, progress)
        rate = settings.optimizer.learning_rate * factor
        with threads_for(self.num_parameters):
            stop, total = self.optimizer.step(rate, flags, self.step)
            self.ema.update()
        self.step += 1
        return stop > 0, total / self.world.size

    def load_parts(self, graphs_G: Tensor) -> list[DAGBatch]:
        """Return the micro-batch with these graphs, on the host, in parts where that pays.

        The first of all stays whole: its number of decisions is the first that is known.
        """
        batch = self.source.load(graphs_G)
        return parts_of(batch) if self.divides else [batch]

    @property
    def divides(self) -> bool:
        """Whether the next micro-batch comes in parts."""
        on_host = self.device.type == "cpu"
        return on_host and self.model.is_sum_over_graphs and self.optimizer.has_counts

    def _micro_batches(self) -> Iterator[MicroBatch]:
        """Return this process's micro-batches from its place in the data on.

        The stream of micro-batches is dealt to the processes in turn.
        """
        epoch, position = self.epoch, self.position
        batches = self.source.epoch_batches(epoch)
        while True:
            for rank in range(self.world.size):
                if position >= len(batches):
                    epoch, position = epoch + 1, 0
                    batches = self.source.epoch_batches(epoch)
                if rank == self.world.rank:
                    seed = derive_seed(self.settings.seed, "noise", epoch, position)
                    graphs_G = batches[position]
                position += 1
            yield MicroBatch(graphs_G, seed, epoch, position)

    @contextlib.contextmanager
    def _steps(self) -> Iterator["_Steps"]:
        batches = self._micro_batches()
        if self.record is None:
            yield _PlainSteps(self, batches)
            return
        self.optimizer.record_with(self.record, self.device)
        on_gpu = self.device.type == "cuda"
        free = torch.cuda.mem_get_info(self.device)[0] if on_gpu else available_memory()
        kept = int(KEPT_SHARE * free)
        ahead = PaddedBatches(self.model, self.source, batches, self.device, kept)
        with contextlib.closing(ahead):
            yield _RecordedSteps(self.optimizer, ahead)

    def _metrics(self) -> dict[str, float]:
        return {
            f"validation/{group.name}_per_graph": group.best
            for group in self.groups
            if math.isfinite(group.best)
        }

    def _validate(self) -> None:
        settings = self.settings
        self.evaluated_step = self.step
        with self.ema.applied():
            result = evaluate(
                self.model,
                self.validation,
                batch_graphs=self.limits[0],
                batch_nodes=self.limits[1],
                seed=settings.seed,
                world=self.world,
            )
            if self.world.rank == 0:
                seen = CallbackResult()
                if self.callback is not None:
                    seen = self.callback(self.model, self.step)
                losses = result.per_decision().items()
                figures = {f"validation/{name}": value for name, value in losses}
                self._log({**figures, **seen.values})
                for logger in self.loggers:
                    for name, file in seen.pictures.items():
                        logger.picture(self.step, name, file)
        weights = self.ema.weights()
        better = [
            group.update(result.per_graph(group.objectives), self.step, weights, settings.patience)
            for group in self.groups
            if not group.stopped
        ]
        if self.world.rank == 0 and any(better):
            self._write(self.run.best, best_weights(self.model, self.groups), None)
        self._save_last()

    def _save_last(self) -> None:
        """Write the checkpoint for resuming; a signal gets no more than this.

        Its weights for inference are the averaged ones of this step, of the posterior the best
        ones; the trainer's own state is untouched.
        """
        self.saved_step = self.step
        if self.world.rank == 0:
            weights = {**self.model.state_dict(), **self.ema.weights()}
            posterior = set(self.model.posterior_objectives())
            for group in self.groups:
                if posterior.issuperset(group.objectives):
                    weights.update(group.weights)
            self._write(self.run.last, weights, self._state())
        self.world.barrier()

    def _log(self, values: Mapping[str, float]) -> None:
        """Hand figures to every logger, on process 0."""
        if self.world.rank == 0:
            for logger in self.loggers:
                logger.log(self.step, values)

    def _write(
        self, path: Path, weights: Mapping[str, Tensor], state: Mapping[str, Any] | None
    ) -> None:
        run = self.run
        meta = CheckpointMeta(
            step=self.step,
            seed=self.settings.seed,
            data_fingerprint=run.data_fingerprint,
            metrics=self._metrics(),
            split=run.split,
            origin=self.origin,
        )
        contents = (run.spec, weights, run.schema, run.run_config, meta, state)
        save_checkpoint(path, *contents, overwrite=True)

    def _state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.ema.state_dict(),
            "tracks": {group.name: group.state_dict() for group in self.groups},
            "step": self.step,
            "evaluated_step": self.evaluated_step,
            "seconds": self.budget.seconds(),
            "epoch": self.epoch,
            "position": self.position,
        }


class _PlainSteps:
    """Gradients of batches as they are.

    Parts take unequally long, and the optimizer's step is one thread's: threads with nothing to do
    make the next batch, which depends on the place in the data alone.
    """

    def __init__(self, trainer: _Trainer, batches: Iterator[MicroBatch]) -> None:
        self._trainer, self._batches = trainer, batches
        self._next: tuple[MicroBatch, Future[list[Future[DAGBatch]]]] | None = None

    def add_gradient(self) -> tuple[MicroBatch, dict[str, Tensor]]:
        batch, parts = self._made()
        optimizer = self._trainer.optimizer
        return batch, optimizer.add_gradient(parts, batch.noise_seed, self._make_next)

    def _made(self) -> tuple[MicroBatch, list[DAGBatch]]:
        """Return the next micro-batch in parts; an error of a thread is raised here."""
        if self._next is None:
            batch = next(self._batches)
            return batch, self._trainer.load_parts(batch.graphs_G)
        (batch, parts), self._next = self._next, None
        return batch, [part.result() for part in parts.result()]

    def _make_next(self) -> None:
        trainer = self._trainer
        if not trainer.divides:
            return
        batch, later = next(self._batches), trainer.optimizer.part_threads.later

        def parts() -> list[Future[DAGBatch]]:
            loaded = trainer.load_parts(batch.graphs_G)
            return [later(partial(trainer.model.prepared, part)) for part in loaded]

        self._next = batch, later(parts)


class _RecordedSteps:
    def __init__(self, optimizer: Optimizer, ahead: PaddedBatches) -> None:
        self._optimizer, self._ahead = optimizer, ahead

    def add_gradient(self) -> tuple[MicroBatch, dict[str, Tensor]]:
        batch, padded = self._ahead.next()
        return batch, self._optimizer.add_recorded_gradient(padded, batch.noise_seed)


_Steps = _PlainSteps | _RecordedSteps


def recorder_for(model: DAGModel, device: torch.device) -> Recorder | None:
    """Return what records steps; None where that is not possible."""
    if device.type != "cuda" or not model.pads_batches:
        return None
    return partial(record_cuda_graph, device=device)
