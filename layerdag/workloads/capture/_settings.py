"""What is captured: how the model is split over ranks, and what the step does."""

from dataclasses import dataclass, field, fields
from typing import Any

from layerdag._runtime import did_you_mean
from layerdag.errors import ConfigError, UsageError

UNITS = ("layer", "module")
PHASES = ("training", "inference")
OPTIMIZERS = ("adamw", "sgd", "none")
PRECISIONS = ("bf16", "fp16", "fp32")


@dataclass(frozen=True)
class CapturePlan:
    """Degrees of parallelism; the number of ranks is their product, tensor fastest, data slowest.

    Attributes:
        data: Replicas; their gradients are averaged by all-reduce.
        fsdp: Ranks that share parameters, gradients and optimizer states (``fully_shard``).
        tensor: Ranks that share each layer's matrices (DTensor).
        sequence_parallel: Whether norms and residuals are split over the tensor ranks, too.
        fsdp_unit: What is gathered at once: a "layer", or a "module" (each parameter of a model
            without biases).
        keep_gathered: Whether parameters stay gathered between forward and backward.
        bucket_bytes: Gradients of so many bytes are summed at once by ``data`` ranks, as DDP does;
            0 for each parameter alone. With ``fsdp`` its units are the buckets.

    Raises:
        ConfigError: If a value is not possible.
    """

    data: int = 1
    fsdp: int = 1
    tensor: int = 1
    sequence_parallel: bool = False
    fsdp_unit: str = "layer"
    keep_gathered: bool = False
    bucket_bytes: int = 25 * 2**20

    def __post_init__(self) -> None:
        for name in ("data", "fsdp", "tensor"):
            _whole("plan", name, getattr(self, name), 1)
        _whole("plan", "bucket_bytes", self.bucket_bytes, 0)
        _known("plan", "fsdp_unit", self.fsdp_unit, UNITS)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.data * self.fsdp * self.tensor

    @property
    def degrees(self) -> dict[str, int]:
        """Degree of each dimension of the mesh, slowest first."""
        return {"data": self.data, "fsdp": self.fsdp, "tensor": self.tensor}


@dataclass(frozen=True)
class CaptureStep:
    """What the step does.

    Attributes:
        phase: "training" (forward, backward, optimizer) or "inference" (forward alone).
        batch: Sequences of the step, of all ranks; 0 for one for each rank that has its own.
        sequence: Tokens of a sequence.
        precision: Number format of a preset's weights: "bf16", "fp16", "fp32".
        optimizer: "adamw" (fused), "sgd" or "none".
        layers: Layers of a preset that are captured; 0 for all.

    Raises:
        ConfigError: If a value is not possible.
    """

    phase: str = "training"
    batch: int = 0
    sequence: int = 2048
    precision: str = "bf16"
    optimizer: str = "adamw"
    layers: int = 0

    def __post_init__(self) -> None:
        _whole("step", "batch", self.batch, 0)
        _whole("step", "layers", self.layers, 0)
        _whole("step", "sequence", self.sequence, 1)
        _known("step", "phase", self.phase, PHASES)
        _known("step", "precision", self.precision, PRECISIONS)
        _known("step", "optimizer", self.optimizer, OPTIMIZERS)

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.phase == "training"


@dataclass(frozen=True)
class Settings:
    """Plan and step together.

    Attributes:
        plan: How the model is split.
        step: What is done.
    """

    plan: CapturePlan = field(default_factory=CapturePlan)
    step: CaptureStep = field(default_factory=CaptureStep)

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Settings":
        """Return the settings that keywords give.

        Raises:
            UsageError: If a keyword is unknown; names the nearest.
        """
        plan, step = ({f.name for f in fields(kind)} for kind in (CapturePlan, CaptureStep))
        for key in given:
            if key not in plan | step:
                raise UsageError(
                    f"a capture has no setting '{key}'.{did_you_mean(key, sorted(plan | step))} "
                    f"Known: {', '.join(sorted(plan | step))}."
                )
        return cls(
            CapturePlan(**{key: value for key, value in given.items() if key in plan}),
            CaptureStep(**{key: value for key, value in given.items() if key in step}),
        )


def _whole(where: str, name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number of at least ``least``."""
    if type(value) is not int or value < least:
        raise ConfigError(
            f"{where}: {name} is {value!r}; it must be a whole number, at least {least}."
        )


def _known(where: str, name: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuse a word that is not known."""
    if value not in known:
        raise ConfigError(
            f"{where}: {name} is {value!r}.{did_you_mean(str(value), known)} Known: "
            f"{', '.join(known)}."
        )
