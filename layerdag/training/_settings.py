"""The settings of a training run, checked when they are made."""

from dataclasses import dataclass

from layerdag.errors import ConfigError

SCHEDULES = ("constant", "cosine")
PRECISIONS = ("auto", "float32", "bfloat16")


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
            weighs graphs of all sizes alike.
        accumulate: Micro-batches a process adds up before one optimizer step.
        learning_rate: Peak rate of AdamW.
        weight_decay: Decoupled decay of AdamW, on matrices only.
        warmup_steps: Steps over which the rate rises linearly from 0.
        schedule: "constant", or "cosine" down to a tenth over the budget.
        gradient_clip: Largest gradient norm of what is selected together; 0: none.
        ema_decay: Decay of the averaged weights, which are what is judged and kept.
        evaluate_every: Steps between validations.
        patience: Validations without a better likelihood before an objective stops; 0 never stops.
        log_every: Steps between log lines.
        precision: Of matrix products in training: "float32", "bfloat16", or "auto" for bfloat16 if
            the device has instructions for it. Validation and sampling are in float32.

    Raises:
        ConfigError: If a value is out of bounds.
    """

    seed: int = 0
    max_steps: int | None = 2000
    max_seconds: float | None = None
    batch_graphs: int = 256
    batch_nodes: int = 2_000
    accumulate: int = 1
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup_steps: int = 50
    schedule: str = "constant"
    gradient_clip: float = 1.0
    ema_decay: float = 0.999
    evaluate_every: int = 100
    patience: int = 10
    log_every: int = 20
    precision: str = "auto"

    def __post_init__(self) -> None:
        for name in ("batch_graphs", "batch_nodes", "accumulate", "evaluate_every", "log_every"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("weight_decay", "warmup_steps", "gradient_clip", "patience"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        _require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        _require(0 <= self.ema_decay < 1, "ema_decay", self.ema_decay, "in [0, 1)")
        _require(self.schedule in SCHEDULES, "schedule", self.schedule, f"one of {SCHEDULES}")
        _require(self.precision in PRECISIONS, "precision", self.precision, f"one of {PRECISIONS}")
        _require(
            self.max_steps is not None or self.max_seconds is not None,
            "max_steps", None, "a number unless training.max_seconds is one",
        )  # fmt: skip
        _require(self.max_steps is None or self.max_steps >= 1, "max_steps", self.max_steps, ">= 1")
        _require(
            self.max_seconds is None or self.max_seconds > 0, "max_seconds", self.max_seconds, "> 0"
        )


def _require(holds: bool, name: str, found: object, wanted: str) -> None:
    """Raise ConfigError about ``training.<name>`` unless the bound holds."""
    if not holds:
        raise ConfigError(f"training.{name} must be {wanted}, found {found!r}.")
