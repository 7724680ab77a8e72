"""A training run: its settings, what is trained and from what, its folder, its result.

configs/training/default.yaml has the keys of ``TrainSettings``.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerdag.dag.dag import DAGBatch
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.splits import SplitFingerprint
from layerdag.errors import CheckpointError, ConfigError, UsageError
from layerdag.models.base import DAGModel, ModelSpec
from layerdag.runtime.files import (
    LOCK,
    discard_folder,
    file_lock,
    recover,
    require_replaceable,
)
from layerdag.training.checkpoint import (
    BEST,
    CHECKPOINT,
    LAST,
    LOG,
    META,
    PICTURES,
    RUN_FILE,
    InitialWeights,
)
from layerdag.training.loggers import JsonlLogger
from layerdag.training.run_file import write_run_file

SCHEDULES = ("constant", "cosine")
AUTO = "auto"
PRECISIONS = (AUTO, "float32", "bfloat16")
FEWEST_NODES, MOST_NODES, STEPS_PER_EPOCH = 2_000, 64_000, 32
"""Of a micro-batch by default: a GPU is busy with 64,000 nodes (benchmarks/results/gpu-h200.json),
and fewer than 32 steps per epoch would learn from large data alone."""


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW.

    Attributes:
        learning_rate: Peak rate.
        weight_decay: Decoupled decay, on matrices only.
        gradient_clip: Largest gradient norm of parameters that are selected together; 0: none.

    Raises:
        ConfigError: If a value is out of bounds.
    """

    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    gradient_clip: float = 1.0

    def __post_init__(self) -> None:
        for name in ("weight_decay", "gradient_clip"):
            _require(
                getattr(self, name) >= 0, f"optimizer.{name}", getattr(self, name), "at least 0"
            )
        rate = self.learning_rate
        _require(rate > 0, "optimizer.learning_rate", rate, "above 0")


@dataclass(frozen=True)
class LearningRateSchedule:
    """The learning rate over a run.

    Attributes:
        shape: "constant", or "cosine" down to a tenth over the budget.
        warmup_steps: Steps over which the rate rises linearly from 0.

    Raises:
        ConfigError: If a value is out of bounds.
    """

    shape: str = "constant"
    warmup_steps: int = 50

    def __post_init__(self) -> None:
        shape, steps = self.shape, self.warmup_steps
        _require(shape in SCHEDULES, "lr_schedule.shape", shape, f"one of {SCHEDULES}")
        _require(steps >= 0, "lr_schedule.warmup_steps", steps, "at least 0")


@dataclass(frozen=True)
class TrainSettings:
    """How to train any model on any data set; the defaults are those of ``layerdag train``.

    Attributes:
        seed: Of the order of the graphs, the noise and the initial weights.
        max_steps: Optimizer steps at most; None leaves it to ``max_seconds``.
        max_seconds: Wall-clock seconds at most, validation included; None for no limit.
        batch_graphs: Graphs of a micro-batch at most.
        batch_nodes: Nodes of a micro-batch at most (a larger graph comes alone). Let this be the
            limit that binds: then all micro-batches hold about as many decisions, and clipping
            weighs graphs of all sizes alike. "auto" is 2,000, and on a GPU a 32nd of the training
            nodes between 2,000 and 64,000.
        accumulate: Micro-batches a process adds up before one optimizer step.
        optimizer: AdamW.
        lr_schedule: The learning rate over the run.
        ema_decay: Decay of the moving average of the weights, which is validated and kept.
        evaluate_every: Steps between validations.
        patience: Validations without a better likelihood before an objective stops; 0 never stops.
        log_every: Steps between log lines.
        cuda_graphs: Whether steps on a GPU are recorded once and repeated, where the model's
            batches can be padded; such a step does not wait for the host. Batches are then made
            once and come in another order in each epoch.
        precision: Of matrix products in training: "float32", "bfloat16", or "auto" for bfloat16 if
            the device has instructions for it. Validation and sampling are in float32.

    Raises:
        ConfigError: If a value is out of bounds.
    """

    seed: int = 0
    max_steps: int | None = 2000
    max_seconds: float | None = None
    batch_graphs: int = 256
    batch_nodes: int | str = AUTO
    accumulate: int = 1
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    lr_schedule: LearningRateSchedule = field(default_factory=LearningRateSchedule)
    ema_decay: float = 0.999
    evaluate_every: int = 100
    patience: int = 10
    log_every: int = 20
    cuda_graphs: bool = True
    precision: str = AUTO

    def __post_init__(self) -> None:
        for name in ("batch_graphs", "accumulate", "evaluate_every", "log_every"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        nodes = self.batch_nodes
        fits = nodes == AUTO if isinstance(nodes, str) else nodes >= 1
        _require(fits, "batch_nodes", nodes, f'at least 1, or "{AUTO}"')
        _require(self.patience >= 0, "patience", self.patience, "at least 0")
        _require(0 <= self.ema_decay < 1, "ema_decay", self.ema_decay, "in [0, 1)")
        _require(self.precision in PRECISIONS, "precision", self.precision, f"one of {PRECISIONS}")
        _require(
            self.max_steps is not None or self.max_seconds is not None,
            "max_steps", None, "a number unless training.max_seconds is one",
        )  # fmt: skip
        _require(self.max_steps is None or self.max_steps >= 1, "max_steps", self.max_steps, ">= 1")
        _require(
            self.max_seconds is None or self.max_seconds > 0, "max_seconds", self.max_seconds, "> 0"
        )

    def nodes_per_batch(self, device_type: str, training_nodes: int) -> int:
        """Return the nodes of a micro-batch at most.

        Args:
            device_type: "cpu", "cuda".
            training_nodes: Of all training graphs.
        """
        if not isinstance(self.batch_nodes, str):
            return self.batch_nodes
        if device_type != "cuda":
            return FEWEST_NODES
        return min(MOST_NODES, max(FEWEST_NODES, training_nodes // STEPS_PER_EPOCH))


def _require(holds: bool, name: str, found: object, wanted: str) -> None:
    """Raise ConfigError about ``training.<name>`` unless the bound holds."""
    if not holds:
        raise ConfigError(f"training.{name} must be {wanted}, found {found!r}.")


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """What to train and where to put it.

    Attributes:
        spec: The model as plain data.
        train: All training graphs.
        validation: All validation graphs.
        directory: Of the run; checkpoints go to its ``best`` and ``last``.
        schema: The data set's schema as JSON-serializable data.
        run_config: The resolved configuration as JSON-serializable data.
        data_fingerprint: Of the training data.
        split: Which graphs are for training, validation and test.
        overwrite: Whether an older run in ``directory`` may be replaced.
        start: Weights to start from; None for random ones.
        record: What ``run.json`` in ``directory`` shall hold, for its owner alone; empty for no
            such file.
    """

    spec: ModelSpec
    train: DAGBatch
    validation: DAGBatch
    directory: Path
    schema: Mapping[str, Any] = field(default_factory=dict)
    run_config: Mapping[str, Any] = field(default_factory=dict)
    data_fingerprint: str = ""
    split: SplitFingerprint | None = None
    overwrite: bool = False
    start: InitialWeights | None = None
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def best(self) -> Path:
        """Checkpoint of the best weights, for inference."""
        return self.directory / BEST

    @property
    def last(self) -> Path:
        """Checkpoint of the last weights, for resuming."""
        return self.directory / LAST


def assemble(
    data: GraphDataset,
    directory: Path,
    spec: ModelSpec,
    *,
    start: InitialWeights | None = None,
    run_config: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> TrainingRun:
    """Return the training run of a model on the training and validation parts of a data set.

    Args:
        data: What is trained on.
        directory: Of the run.
        spec: Of the model, from ``spec_for`` or ``warm_start``.
        start: Weights to start from; None for random ones.
        run_config: On record in the checkpoint.
        record: What ``run.json`` shall hold.
        overwrite: Whether an older run in ``directory`` may be replaced.

    Raises:
        GraphError: If the training or the validation part is empty.
    """
    return TrainingRun(
        spec=spec,
        train=data.batch("train"),
        validation=data.batch("val"),
        directory=directory,
        schema=data.schema.to_dict(),
        run_config=run_config or {},
        data_fingerprint=data.fingerprint,
        split=data.split,
        overwrite=overwrite,
        start=start,
        record=record or {},
    )


@dataclass(frozen=True)
class CallbackResult:
    """What a callback found at a validation: figures by name, pictures by name and file."""

    values: Mapping[str, float] = field(default_factory=dict)
    pictures: Mapping[str, Path] = field(default_factory=dict)


Callback = Callable[[DAGModel, int], CallbackResult]
"""Called after a validation with the model, averaged weights in place, and the step."""


@dataclass(frozen=True)
class TrainResult:
    """How a run ended.

    Attributes:
        reason: "budget", "patience" or the name of a signal.
        step: Optimizer steps done.
        seconds: Spent, those before resuming included.
        metrics: Validation figures of the best checkpoint, none before the first validation.
        best: Checkpoint for inference, which the first validation makes.
        last: Checkpoint for resuming.
    """

    reason: str
    step: int
    seconds: float
    metrics: Mapping[str, float]
    best: Path
    last: Path

    @property
    def is_finished(self) -> bool:
        """Whether it ended by itself, not by a signal."""
        return self.reason in ("budget", "patience")

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        return {
            "reason": self.reason,
            "step": self.step,
            "seconds": round(self.seconds, 1),
            "metrics": dict(self.metrics),
            "best": str(self.best) if self.best.is_dir() else None,
            "last": str(self.last) if self.last.is_dir() else None,
        }


_PICTURE = re.compile(r"samples-\d{6,}\.png")


@contextlib.contextmanager
def hold_run(directory: Path, *, overwrite: bool, goes_on: bool = False) -> Iterator[None]:
    """Hold a run's folder for this process, and put in order what a killed one left there.

    Args:
        directory: Of the run.
        overwrite: Whether an older run there may be replaced.
        goes_on: Whether this is the run that was left there.

    Raises:
        UsageError: If another process is training there, it is a file, or it holds what may not be
            replaced.
        CheckpointError: If there is no run to go on with.
    """
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory}: is a file; name a folder for the run with out=...")
    try:
        with file_lock(directory / LOCK, guarded=directory):
            for name in (BEST, LAST, LOG, RUN_FILE):
                recover(directory / name)
            if goes_on:
                require_resumable(directory)
            else:
                require_free(directory, overwrite=overwrite)
            yield
    finally:
        with contextlib.suppress(OSError):  # not empty: the usual case
            directory.rmdir()


def run_of(path: Path) -> Path:
    """Return the folder of the run that ``path`` names: the folder itself, or its ``last``."""
    inside = path.name in (BEST, LAST) and not (path / LAST).is_dir()
    return path.parent if inside else path


def require_resumable(directory: Path) -> None:
    """Raise CheckpointError unless a run was left in ``directory``."""
    if not (directory / LAST / META).is_file():
        raise CheckpointError(
            f"{directory}: holds no run to go on with ({LAST}/{META} is missing); name the folder "
            "of a run, or start one with out=..."
        )


def require_free(directory: Path, *, overwrite: bool) -> None:
    """Raise UsageError if a new run in ``directory`` would replace what it may not.

    What an older run left there may be replaced if the user allows it and it is provably one.
    Other files are not in the way: a run leaves them alone.
    """
    names = [name for name in (BEST, LAST, *_PROOFS) if (directory / name).exists()]
    if names and not overwrite:
        on = f"go on with it (resume={directory}), " if LAST in names else ""
        raise UsageError(
            f"{directory}: holds a run already ({', '.join(names)}); {on}name another folder with "
            "out=..., or allow that it is replaced with overwrite=true."
        )
    for name in (BEST, LAST):
        require_replaceable(directory / name, CHECKPOINT, overwrite=True)
    for name, proof in _PROOFS.items():
        if name in names and not proof(directory / name):
            raise UsageError(
                f"{directory / name}: was not written by a run of layerdag, so it is never "
                "replaced; name another folder with out=..."
            )


def begin_run(
    directory: Path, record: Mapping[str, Any], resumed_step: int | None = None
) -> JsonlLogger:
    """Remove what an older run left, write what is on record, and return the log.

    Args:
        directory: Of the run, which is held.
        record: What ``run.json`` shall hold; empty for no such file.
        resumed_step: Step from which the run in the folder goes on; None for a new one.
    """
    if resumed_step is None:
        clear_run(directory)
    if record:
        write_run_file(directory, record)
    return JsonlLogger(directory / LOG, resumed_step or 0)


def clear_run(directory: Path) -> None:
    """Remove what an older run left in ``directory``, after ``require_free``."""
    for name in (BEST, LAST):
        discard_folder(directory / name)
    for name in _PROOFS:
        (directory / name).unlink(missing_ok=True)
    if (directory / PICTURES).is_dir():
        for path in (directory / PICTURES).iterdir():
            if _PICTURE.fullmatch(path.name):
                path.unlink()


def _is_log(file: Path) -> bool:
    try:
        with file.open(encoding="utf-8") as lines:
            first = lines.readline(1_000_000)
        return not first or "step" in json.loads(first)
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _is_run_file(file: Path) -> bool:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"notice", "config"} <= content.keys()


_PROOFS: dict[str, Callable[[Path], bool]] = {LOG: _is_log, RUN_FILE: _is_run_file}
