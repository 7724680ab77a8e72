"""What a training run is given and what it gives back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerdag.datasets import SplitFingerprint
from layerdag.graph import DAGBatch
from layerdag.models import DAGModel, ModelSpec
from layerdag.training._run_folder import BEST, LAST
from layerdag.training._weights import InitialWeights


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
        overwrite: Whether checkpoints of an older run in ``directory`` may be replaced.
        start: Weights to start from; None for random ones.
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

    @property
    def best(self) -> Path:
        """Checkpoint of the best weights, for inference."""
        return self.directory / BEST

    @property
    def last(self) -> Path:
        """Checkpoint of the last weights, for resuming."""
        return self.directory / LAST


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
