"""How a model is trained; configs/training/default.yaml has the keys of ``TrainSettings``.

A value out of bounds raises ConfigError.
"""

from dataclasses import dataclass, field

from layerdag.errors import ConfigError

SCHEDULES = ("constant", "cosine")

AUTO = "auto"

PRECISIONS = (AUTO, "float32", "bfloat16")

MIN_NODES, MAX_NODES, STEPS_PER_EPOCH = 2_000, 64_000, 32
"""Of a micro-batch by default: a GPU is busy with 64,000 nodes (benchmarks/results/gpu-h200.json),
and fewer than 32 steps per epoch would learn from large data alone."""


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW.

    Attributes:
        learning_rate: Peak rate.
        weight_decay: Decoupled decay, on matrices only.
        gradient_clip: Largest gradient norm of parameters that are selected together; 0: none.
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
        precision: Of matrix products in training: "float32", "bfloat16", or "auto" for bfloat16 if
            the device has instructions for it. Validation and sampling are in float32.
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
        """Return the nodes of a micro-batch at most."""
        if not isinstance(self.batch_nodes, str):
            return self.batch_nodes
        if device_type != "cuda":
            return MIN_NODES
        return min(MAX_NODES, max(MIN_NODES, training_nodes // STEPS_PER_EPOCH))


def _require(holds: bool, name: str, found: object, wanted: str) -> None:
    """Raise ConfigError about ``training.<name>`` unless the bound holds."""
    if not holds:
        raise ConfigError(f"training.{name} must be {wanted}, found {found!r}.")
