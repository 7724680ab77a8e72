"""Training runs that are watched for a few steps and then broken off.

The steps are those of ``layerdag.training.loop.train``, with everything that a run does between two
of them, so that what is measured is what users get. A window is the steps between two lines of the
log, at which the watch starts and stops what observes them.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from layerdag.dag.dag import DAGBatch
from layerdag.models.spec import ModelSpec
from layerdag.training.loop import train
from layerdag.training.run import TrainingRun
from layerdag.training.settings import TrainSettings


@dataclass(frozen=True)
class Phase:
    """Windows that are observed in the same way.

    Attributes:
        observer: Makes what is entered before and left after them; its value is kept.
        seconds: Windows are added until they have taken so long; at least one.
    """

    observer: Callable[[], AbstractContextManager[Any]] = nullcontext
    seconds: float = 0.0


@dataclass
class Window:
    """What a phase found.

    Attributes:
        steps: Optimizer steps.
        graphs: Graphs that they trained on.
        seconds: By the wall clock, the device's work done.
        found: What the observer gave.
    """

    steps: int = 0
    graphs: float = 0.0
    seconds: float = 0.0
    found: Any = None


class Enough(Exception):  # noqa: N818 - no error
    """Every phase is over."""


class StepWatch:
    """A logger that observes phases one after the other and then raises ``Enough``.

    Attributes:
        windows: The first is all that comes before the first line of the log, the model's making
            and the first steps; then one for each phase.
    """

    def __init__(self, phases: Sequence[Phase]) -> None:
        self.windows = [Window()]
        self._phases = [Phase(), *phases]
        self._exit = contextlib.ExitStack()
        self._since = time.perf_counter()
        self._step, self._logged = 0, 0.0

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """End a window, and its phase if that took long enough."""
        if "train/graphs_per_second" not in values:  # a validation
            return
        finish_device_work()
        self._add(step, values)
        if self.windows[-1].seconds >= self._phase.seconds:
            self._exit.close()
            if len(self.windows) == len(self._phases):
                raise Enough
            self.windows.append(Window())
            self.windows[-1].found = self._exit.enter_context(self._phase.observer())
        self._step, self._logged = step, values["seconds"]
        self._since = time.perf_counter()

    @property
    def _phase(self) -> Phase:
        return self._phases[len(self.windows) - 1]

    def _add(self, step: int, values: Mapping[str, float]) -> None:
        window = self.windows[-1]
        window.seconds += time.perf_counter() - self._since
        window.steps += step - self._step
        window.graphs += values["train/graphs_per_second"] * (values["seconds"] - self._logged)

    def picture(self, step: int, name: str, file: Path) -> None:
        """Ignore pictures."""

    def close(self) -> None:
        """Leave what is being observed."""
        self._exit.close()


def watched(
    spec: ModelSpec,
    graphs: DAGBatch,
    settings: TrainSettings,
    device: torch.device | str,
    phases: Sequence[Phase],
) -> list[Window]:
    """Train on ``graphs`` until every phase is over.

    Returns:
        What came before the first line of the log, then what each phase found.
    """
    watch = StepWatch(phases)
    endless = _without_end(settings)
    with tempfile.TemporaryDirectory() as folder:
        run = TrainingRun(spec, graphs, graphs, Path(folder))
        try:
            train(run, endless, device=device, loggers=[watch])
        except Enough:
            return watch.windows
        finally:
            watch.close()
    raise AssertionError("a run without end has ended")


def _without_end(settings: TrainSettings) -> TrainSettings:
    """Return the settings of a run that neither validates nor ends."""
    return replace(settings, max_steps=10**9, max_seconds=None, evaluate_every=10**9)


def finish_device_work() -> None:
    """Wait until the device has done what it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
