"""A training run: what is trained and from what, and how it ended."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerdag.dag.dag import DAGBatch
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.splits import SplitFingerprint
from layerdag.models.base import DAGModel
from layerdag.models.spec import ModelSpec
from layerdag.training.checkpoint import BEST, LAST, InitialWeights


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """What to train and where to put it."""

    spec: ModelSpec  # the model as plain data
    train: DAGBatch  # all training graphs
    validation: DAGBatch  # all validation graphs
    directory: Path  # of the run; checkpoints go to its ``best`` and ``last``
    schema: Mapping[str, Any] = field(default_factory=dict)  # of the data set, as JSON
    run_config: Mapping[str, Any] = field(default_factory=dict)  # resolved, as JSON
    data_fingerprint: str = ""  # of the training data
    split: SplitFingerprint | None = None  # which graphs are for training, validation and test
    overwrite: bool = False  # whether an older run in ``directory`` may be replaced
    start: InitialWeights | None = None  # Weights to start from; None for random ones
    # what ``run.json`` in ``directory`` shall hold, for its owner alone; empty for no such file
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
    """How a run ended."""

    reason: str  # "budget", "patience" or the name of a signal
    step: int  # optimizer steps done
    seconds: float  # spent, those before resuming included
    metrics: Mapping[str, float]  # of the best checkpoint; none before a validation
    best: Path  # checkpoint for inference, which the first validation makes
    last: Path  # checkpoint for resuming

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
