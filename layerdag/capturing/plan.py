"""What is captured: the degrees of a plan, what its step does, and both from keywords.

A file of its own, without PyTorch's distributed package, whose import takes longer than most
programs take to draw.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from layerdag.capturing.optimizers import require_optimizer
from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.settings import did_you_mean

UNITS = ("layer", "module")
PHASES = ("training", "inference")
PRECISIONS = ("auto", "bf16", "fp16", "fp32")
SCHEDULES = ("1f1b", "gpipe")
COMPUTE_CAPABILITY: Mapping[str, float] = MappingProxyType(
    {"a100": 8.0, "a100_40": 8.0, "a100_80": 8.0, "l40s": 8.9, "rtx4090": 8.9,
     "h100": 9.0, "h100_sxm": 9.0, "h100_sxm_96": 9.0, "h200": 9.0, "h200_sxm": 9.0,
     "b200": 10.0, "b200_sxm": 10.0, "gb200": 10.0, "b300": 10.3, "b300_sxm": 10.3, "gb300": 10.3}
)  # fmt: skip
"""NVIDIA's compute capability of the GPUs whose kernels are known."""
DEVICES = ("cpu", *COMPUTE_CAPABILITY)


@dataclass(frozen=True)
class CapturePlan:
    """Degrees of parallelism; the number of ranks is their product.

    Ranks are numbered tensor fastest, then fsdp, data, and pipeline slowest.

    Attributes:
        pipeline: Stages that share the units of a program, one after the other
            (``torch.distributed.pipelining``).
        schedule: Order of the micro-batches in a pipeline: "1f1b" or "gpipe".
        cuts: Modules with which the stages after the first begin, such as ("layers.4",); by default
            stages have equal shares of the operations.
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

    pipeline: int = 1
    schedule: str = "1f1b"
    cuts: tuple[str, ...] = ()
    data: int = 1
    fsdp: int = 1
    tensor: int = 1
    sequence_parallel: bool = False
    fsdp_unit: str = "layer"
    keep_gathered: bool = False
    bucket_bytes: int = 25 * 2**20

    def __post_init__(self) -> None:
        for name in ("pipeline", "data", "fsdp", "tensor"):
            _whole("plan", name, getattr(self, name), 1)
        _known("plan", "schedule", self.schedule, SCHEDULES)
        if self.cuts and len(self.cuts) != self.pipeline - 1:
            raise ConfigError(
                f"plan: {len(self.cuts)} cuts ({', '.join(self.cuts)[:80]}) make "
                f"{len(self.cuts) + 1} stages, but pipeline is {self.pipeline}; name the module "
                "with which each stage after the first begins."
            )
        _whole("plan", "bucket_bytes", self.bucket_bytes, 0)
        _known("plan", "fsdp_unit", self.fsdp_unit, UNITS)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return math.prod(self.degrees.values())

    @property
    def degrees(self) -> dict[str, int]:
        """Degree of each dimension of the mesh, slowest first."""
        names = ("pipeline", "data", "fsdp", "tensor")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class CaptureStep:
    """What the step does.

    Attributes:
        phase: "training" (forward, backward, optimizer) or "inference" (forward alone).
        batch: Sequences of the step, of all ranks; 0 for one for each rank that has its own.
        sequence: Tokens of a sequence.
        precision: Number format of a preset's weights: "bf16" ("auto"), "fp16", "fp32". A module
            of your own runs as it is ("auto", "fp32"), or its forward pass and loss under
            ``torch.autocast`` ("bf16"), with the weights as they are.
        optimizer: A name of ``layerdag.capturing.optimizers``, such as "adamw" (fused),
            "sgd-momentum-foreach", or "none".
        clip: Largest norm of all gradients together, to which they are scaled down before the
            update; 0 for no clipping.
        accumulate: Forward and backward passes whose gradients are summed before the update, each
            on the inputs of a module, or on its part of a preset's batch. Replicas average
            gradients in the last alone, as under ``no_sync``; ``fsdp`` ranks scatter them in each,
            as ``fully_shard`` does unless told otherwise.
        micro_batches: Times that the inputs of a program go through a pipeline before the update; 0
            for one for each stage.
        layers: Layers of a preset that are captured; 0 for all.
        device: Whose kernels run attention, dropout and batch normalization: those of a GPU such as
            "h100", or of a processor, "cpu".

    Raises:
        ConfigError: If a value is not possible.
    """

    phase: str = "training"
    batch: int = 0
    sequence: int = 2048
    precision: str = "auto"
    optimizer: str = "adamw"
    clip: int | float = 0
    accumulate: int = 1
    micro_batches: int = 0
    layers: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        _whole("step", "batch", self.batch, 0)
        _whole("step", "micro_batches", self.micro_batches, 0)
        _whole("step", "layers", self.layers, 0)
        _whole("step", "sequence", self.sequence, 1)
        _known("step", "phase", self.phase, PHASES)
        _known("step", "precision", self.precision, PRECISIONS)
        _whole("step", "accumulate", self.accumulate, 1)
        require_optimizer("step", self.optimizer)
        _known("step", "device", self.device, DEVICES)
        if type(self.clip) not in (int, float) or not 0 <= self.clip < math.inf:
            raise ConfigError(
                f"step: clip is {self.clip!r}; it must be a number, the largest norm, or 0 for no "
                "clipping."
            )
        if not self.training and (self.clip or self.accumulate > 1):
            named = "clip" if self.clip else "accumulate"
            raise ConfigError(
                f"step: phase inference has no gradients; leave {named} out, or give phase "
                "training."
            )

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

    Raises:
        ConfigError: If a setting belongs to a pipeline and there is none.
    """

    plan: CapturePlan = field(default_factory=CapturePlan)
    step: CaptureStep = field(default_factory=CaptureStep)

    def __post_init__(self) -> None:
        usual = CapturePlan()
        if self.plan.pipeline == 1 and (
            self.step.micro_batches or self.plan.schedule != usual.schedule
        ):
            named = "micro_batches" if self.step.micro_batches else "schedule"
            raise ConfigError(f"plan: {named} belongs to a pipeline; give pipeline=2 or more.")

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> "Settings":
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
    if type(value) is not int or value < least:
        raise ConfigError(
            f"{where}: {name} is {value!r}; it must be a whole number, at least {least}."
        )


def _known(where: str, name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(
            f"{where}: {name} is {value!r}.{did_you_mean(str(value), known)} Known: "
            f"{', '.join(known)}."
        )
