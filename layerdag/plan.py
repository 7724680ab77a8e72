"""How a step is split over ranks (`Plan`), what it does (`Step`), and what each source takes.

Every verb that makes a step has its words from here, so that a degree has one name, one default and
one check, whether the step comes from formulas (``layerdag workload``, ``explore``), from a program
or a captured module (``capture``, ``program``, ``sample``), or is an iteration of ``serving``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from layerdag.errors import ConfigError, UsageError
from layerdag.hardware.devices import COMPUTE_CAPABILITY
from layerdag.hardware.dtypes import WEIGHT_FORMATS
from layerdag.runtime.settings import did_you_mean


@final
@dataclass(frozen=True)
class Precision:
    """Bytes of one number of each kind.

    Attributes:
        dtype: Format of everything but the products of layers, as traces state it.
        weights: Bytes of a weight as it is kept and gathered, and of an activation.
        optimizer: Bytes of the optimizer's states of one parameter: 12 for Adam in mixed precision
            (a copy of the weight, momentum, variance, each of 4 bytes).
        products: Format of the matrix products of the layers ("fp8", "mxfp8", "nvfp4"); "" where it
            is ``dtype``. Attention, router, embedding and output layer stay in ``dtype``.
        product_bits: Bits of an operand of these products, block scales included.
    """

    name: str
    dtype: str
    weights: int
    gradients: int
    optimizer: int
    products: str = ""
    product_bits: float = 0.0

    @property
    def operand(self) -> float:
        """Bytes of an operand of a layer's products."""
        return self.product_bits / 8 if self.products else float(self.weights)


PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("bf16", "bfloat16", 2, 2, 12),
        Precision("fp16", "float16", 2, 2, 12),
        Precision("bf16-fp32-gradients", "bfloat16", 2, 4, 12),
        Precision("fp32", "float32", 4, 4, 8),
        Precision("fp8", "bfloat16", 2, 2, 12, "fp8", 8),
        Precision("mxfp8", "bfloat16", 2, 2, 12, "mxfp8", 8.25),
        Precision("nvfp4", "bfloat16", 2, 2, 12, "nvfp4", 4.5),
    )
}
"""Precisions by name; "bf16" and "fp16" have the 16 bytes a parameter of the ZeRO paper. In the
last three, operands of the layers' products are cast first: 8 bits with one scale a tensor, with a
byte of scale for each 32 numbers (OCP Microscaling), 4 bits with a byte for each 16 (NVFP4)."""
SERVED_PRECISIONS = tuple(name for name, weights in WEIGHT_FORMATS.items() if weights.served)
"""Precisions of the weights that serving engines load; "int4_wo": 4 bits of the weights alone."""
AUTO = "auto"
"""The precision that a source takes by itself."""

OPTIMIZER_RULES: Mapping[str, tuple[str, ...]] = {
    "adamw": ("",),  # its decay is 0.01 by default and always runs
    "adam": ("", "decay"),
    "sgd": (*("", "decay"), *("momentum", "momentum-decay"), *("nesterov", "nesterov-decay")),
    "adagrad": ("", "decay"),
    "rmsprop": ("", "decay", "momentum", "momentum-decay"),
}
"""Update rules, with the options that each has operators of its own for."""
OPTIMIZER_OPTIONS = ("momentum", "nesterov", "decay")
OPTIMIZER_IMPLEMENTATIONS = ("fused", "foreach", "forloop")
NO_OPTIMIZER = "none"
"""A step without an update."""


def optimizer_implementations(rule: str) -> tuple[str, ...]:
    """Return the implementations that PyTorch has of a rule, the usual one first."""
    return ("foreach", "forloop") if rule == "rmsprop" else OPTIMIZER_IMPLEMENTATIONS


OPTIMIZERS = (
    *(
        "-".join(filter(None, (rule, variant, implementation)))
        for rule, variants in OPTIMIZER_RULES.items()
        for variant in variants
        for implementation in ("", *optimizer_implementations(rule))
    ),
    NO_OPTIMIZER,
)
"""Names: a rule, its options and an implementation, such as "sgd-momentum-foreach"."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "schedule": ("1f1b", "interleaved", "gpipe", "zb-h1"),
    "recompute": ("none", "selective", "alternate", "full"),
    "attention": ("flash", "unfused"),
    "fsdp_unit": ("layer", "module"),
    "phase": ("training", "prefill", "decode", "inference"),
    "precision": (AUTO, *PRECISIONS),
    "causal": ("full", "half"),
    "device": ("cpu", *COMPUTE_CAPABILITY),
}
"""The words that a setting may have."""
ALL_DEGREES = ("data", "fsdp", "tensor", "pipeline", "context", "expert")
_MIN = {
    **dict.fromkeys(ALL_DEGREES, 1),
    **dict.fromkeys(("virtual_stages", "sequence", "tokens", "accumulate"), 1),
    **dict.fromkeys(("first_layers", "last_layers", "bucket_bytes"), 0),
    **dict.fromkeys(("batch", "micro_batches", "layers"), 0),
}


@final
@dataclass(frozen=True)
class Plan:
    """Degrees of parallelism; their product is the number of ranks (``expert`` is inside ``data``).

    Ranks are numbered tensor fastest, then context and fsdp, data, and pipeline slowest.

    Attributes:
        data: Replicas that share the batch; their gradients are summed by all-reduce.
        fsdp: Ranks that share the batch, parameters, gradients and optimizer states (FSDP, ZeRO 3).
        tensor: Ranks that share each layer's matrices.
        pipeline: Stages that share the layers.
        context: Ranks that share each sequence.
        expert: Ranks that share the experts; divides ``data * context``, as in Megatron-LM, with
            ``expert_tensor`` 1 ``data * context * tensor``.
        sequence_parallel: Whether norms and residuals are split over the tensor ranks, too.
        zero: What ``data`` ranks share: 0 nothing, 1 optimizer states, 2 gradients, too,
            3 parameters, too, which makes them ``fsdp`` ranks.
        schedule: Order of micro-batches in a pipeline: 1f1b, interleaved (1f1b with several virtual
            stages), gpipe, zb-h1 (zero-bubble, with no more memory than 1f1b).
        virtual_stages: Groups of layers that each stage holds (interleaved 1F1B).
        recompute: What the backward pass computes again: none, selective (the attention core, as
            Megatron-LM), alternate (every second layer, which torchtitan's selective modes come
            to), full (all layers).
        attention: flash, which keeps no scores, or unfused, which does.
        expert_tensor: Ranks that share the matrices of one expert: 0 as many as ``tensor``; 1 none,
            so that experts are spread over the tensor ranks, too (Megatron-LM's
            expert-tensor-parallel size).
        ends_as_layers: Whether embedding and output layer count as a layer each where layers are
            split over stages, so that 126 layers fill 16 x 8 stages (as for Llama 3 405B).
        first_layers: Layers of the first stage; 0 for as many as the others.
        last_layers: Layers of the last stage; 0 for as many as the others.
        cuts: Modules with which the stages after the first begin, such as layers.4,layers.8; by
            default stages have equal shares of the operations.
        fsdp_unit: What fsdp ranks gather at once: a layer, or a module (each parameter of a model
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
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    sequence_parallel: bool = False
    zero: int = 0
    schedule: str = "1f1b"
    virtual_stages: int = 1
    recompute: str = "none"
    attention: str = "flash"
    expert_tensor: int = 0
    ends_as_layers: bool = False
    first_layers: int = 0
    last_layers: int = 0
    cuts: tuple[str, ...] = ()
    fsdp_unit: str = "layer"
    keep_gathered: bool = False
    bucket_bytes: int = 25 * 2**20

    def __post_init__(self) -> None:
        _require_possible("plan", self)
        if type(self.zero) is not int or self.zero not in range(4):
            raise ConfigError(f"plan: zero is {self.zero!r}; ZeRO stages are 0 (none) to 3.")
        if self.cuts and len(self.cuts) != self.pipeline - 1:
            raise ConfigError(
                f"plan: {len(self.cuts)} cuts ({', '.join(self.cuts)[:80]}) make "
                f"{len(self.cuts) + 1} stages, but pipeline is {self.pipeline}; name the module "
                "with which each stage after the first begins."
            )
        several = self.virtual_stages > 1
        if several and self.pipeline == 1:
            raise ConfigError(
                f"plan: {self.virtual_stages} virtual stages need a pipeline; give pipeline at "
                "least 2 stages."
            )
        if several and self.schedule not in ("1f1b", "interleaved"):
            raise ConfigError(
                f"plan: schedule {self.schedule} has one virtual stage only, not "
                f"{self.virtual_stages}; choose interleaved, or leave virtual_stages out."
            )
        if self.schedule == "interleaved" and not several:
            raise ConfigError(
                "plan: schedule interleaved needs virtual_stages of at least 2, the groups of "
                "layers that each stage holds."
            )

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.data * self.fsdp * self.tensor * self.pipeline * self.context

    @property
    def mesh(self) -> dict[str, int]:
        """Degrees of a recorded step, the slowest dimension of its mesh first."""
        return {name: getattr(self, name) for name in ("pipeline", "data", "fsdp", "tensor")}

    @property
    def replicas(self) -> int:
        """Ranks that hold the same dense weights: their gradients are summed."""
        return self.data * self.context

    def recomputes(self, layer: int) -> bool:
        """Return whether the backward pass computes a layer again."""
        return self.recompute == "full" or (self.recompute == "alternate" and layer % 2 == 1)

    @property
    def splits_backward(self) -> bool:
        """Whether gradients of weights are passes of their own."""
        return self.schedule == "zb-h1"

    @property
    def expert_sharers(self) -> int:
        """Ranks that share the matrices of one expert."""
        return self.expert_tensor or self.tensor

    @property
    def experts_over(self) -> int:
        """Ranks of a stage over which whole experts are spread."""
        return self.replicas * self.tensor // self.expert_sharers

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same experts."""
        return self.experts_over // self.expert


@final
@dataclass(frozen=True)
class Step:
    """What one step does.

    Attributes:
        phase: training (forward, backward, optimizer), prefill (forward, fills the KV cache),
            decode (one token a sequence, reads the KV cache) or inference (forward, no cache).
        batch: Sequences of one step, of all ranks together; by default one for each micro-batch or
            pass of a rank that has its own.
        sequence: Tokens of a sequence; in decode those that the KV cache holds. Of images those of
            their patches. By default 2048, or what a model with learned positions has.
        micro_batches: Parts into which a rank cuts its share of the batch; of a program, times that
            its inputs go through a pipeline (by default once for each stage).
        tokens: Tokens that decode makes, one after the other.
        precision: Name of one of ``PRECISIONS``. A module of your own runs as it is (auto, fp32),
            or its forward pass and loss under ``torch.autocast`` (bf16).
        causal: Operations of causal attention: full counts the whole square of the sequence, as
            published formulas do (PaLM, Megatron-LM, torchtitan), half the computed triangle.
        optimizer: One of ``OPTIMIZERS``: adamw, adam, sgd, adagrad, rmsprop or none; with momentum,
            nesterov, decay, and fused, foreach, forloop, such as sgd-momentum-foreach.
        clip: Largest norm of all gradients together, to which they are scaled down before the
            update; 0 for no clipping.
        accumulate: Forward and backward passes whose gradients are summed before the update.
            Replicas average gradients in the last alone, as under ``no_sync``; ``fsdp`` ranks
            scatter them in each, as ``fully_shard`` does unless told otherwise.
        layers: Layers of a known model that are captured; 0 for all.
        device: Whose kernels run attention, dropout and batch normalization: those of a GPU such as
            h100, or of a processor, cpu.

    Raises:
        ConfigError: If a value is not possible.
    """

    phase: str = "training"
    batch: int = 1
    sequence: int = 2048
    micro_batches: int = 1
    tokens: int = 1
    precision: str = "bf16"
    causal: str = "full"
    optimizer: str = "adamw"
    clip: int | float = 0
    accumulate: int = 1
    layers: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        _require_possible("step", self)
        if self.optimizer not in OPTIMIZERS:
            raise ConfigError(
                f"step: optimizer is {self.optimizer!r}."
                f"{did_you_mean(self.optimizer, OPTIMIZERS)} Known: "
                f"{', '.join((*OPTIMIZER_RULES, NO_OPTIMIZER))}; with "
                f"{', '.join(OPTIMIZER_OPTIONS)} where the rule has it, and "
                f"{', '.join(OPTIMIZER_IMPLEMENTATIONS)}, joined by hyphens, such as "
                "sgd-momentum-foreach."
            )
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
        if self.tokens != 1 and self.phase in ("training", "inference"):
            raise ConfigError(
                f"step: {self.tokens} tokens are asked for, but phase {self.phase!r} makes none; "
                "leave tokens out, or ask for phase 'decode'."
            )

    @property
    def numbers(self) -> Precision:
        """Bytes of each kind of number."""
        return PRECISIONS[self.precision]

    @property
    def training(self) -> bool:
        """Whether the step has a backward pass."""
        return self.phase == "training"


def _require_possible(where: str, settings: Plan | Step) -> None:
    for name, value in vars(settings).items():
        if name in _MIN and (type(value) is not int or value < _MIN[name]):
            raise ConfigError(
                f"{where}: {name} is {value!r}; it must be a whole number, at least {_MIN[name]}."
            )
        if name in CHOICES:
            _require_word(where, name, value, CHOICES[name])


def _require_word(where: str, name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(
            f"{where}: {name} is {value!r}.{did_you_mean(str(value), known)} Known: "
            f"{', '.join(known)}."
        )


@final
@dataclass(frozen=True)
class StepSettings:
    """A plan, and what is done under it."""

    plan: Plan = field(default_factory=Plan)
    step: Step = field(default_factory=Step)


@final
@dataclass(frozen=True)
class Source:
    """What makes steps, and which settings it takes.

    Attributes:
        plan: Fields of ``Plan``, in the order of its figures.
        step: Fields of ``Step``, likewise.
        defaults: Of fields that mean "as many as usual" where nothing is given.
        choices: Words of a field, where it does not take all.
    """

    name: str
    plan: tuple[str, ...]
    step: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of all settings, which include both words for ranks that share parameters."""
        return tuple(dict.fromkeys((*self.plan, "fsdp", "zero", *self.step)))

    def read(self, given: Mapping[str, Any]) -> StepSettings:
        """Return the plan and the step that keywords give.

        ``fsdp=4`` and ``data=4, zero=3`` are the same plan, which every source takes.

        Raises:
            UsageError: If a keyword is unknown; names the nearest.
            ConfigError: If a value is not possible.
        """
        known = sorted(self.settings)
        for key in given:
            if key not in known:
                raise UsageError(
                    f"{self.name} has no setting '{key}'.{did_you_mean(key, known)} Known: "
                    f"{', '.join(known)}."
                )
        plan = Plan(**{key: value for key, value in given.items() if hasattr(Plan, key)})
        settings = {**self.defaults, **given}
        step = Step(**{key: value for key, value in settings.items() if hasattr(Step, key)})
        found = StepSettings(self._shared(plan), step)
        self.check(found)
        return found

    def check(self, settings: StepSettings) -> None:
        """Raise ConfigError if there is a setting that it does not take."""
        for where, part, taken in (
            ("plan", settings.plan, self.plan),
            ("step", settings.step, self.step),
        ):
            for name, value in vars(part).items():
                if name in self.choices:
                    _require_word(where, name, value, self.choices[name])
                elif name not in taken and value != getattr(type(part), name):
                    raise ConfigError(f"{where}: {self.name} has no {name}; leave it out.")
                elif name in ("batch", "micro_batches") and not value and name not in self.defaults:
                    raise ConfigError(
                        f"{where}: {name} is 0; it must be a whole number, at least 1."
                    )

    def _shared(self, plan: Plan) -> Plan:
        """Return a plan with the word for ranks that share parameters that this source has."""
        if "fsdp" in self.plan:
            if plan.zero in (1, 2):
                raise ConfigError(
                    f"plan: zero is {plan.zero}; PyTorch's fully_shard shares parameters, too: "
                    "give fsdp."
                )
            if plan.zero == 0:
                return plan
            return replace(plan, data=1, fsdp=plan.data * plan.fsdp, zero=0)
        if plan.fsdp == 1:
            return plan
        if plan.data > 1 or plan.zero in (1, 2):
            raise ConfigError(
                f"plan: {self.name} has no {plan.data} replicas of {plan.fsdp} fsdp ranks; give "
                "fsdp alone, or data and zero."
            )
        return replace(plan, data=plan.fsdp, fsdp=1, zero=3)

    def facts(self, settings: StepSettings) -> dict[str, dict[str, Any]]:
        """Return the settings that it takes as JSON data."""
        return {
            "plan": {name: getattr(settings.plan, name) for name in self.plan},
            "step": {name: getattr(settings.step, name) for name in self.step},
        }


def usual_setting(name: str) -> Any:
    """Return the default of a field of ``Plan`` or ``Step``."""
    return getattr(Step if hasattr(Step, name) else Plan, name)


FORMULAS = Source(
    "workload()",
    plan=(
        *("data", "tensor", "pipeline", "context", "expert", "sequence_parallel", "zero"),
        *("schedule", "virtual_stages", "recompute", "attention", "expert_tensor"),
        *("ends_as_layers", "first_layers", "last_layers"),
    ),
    step=("phase", "batch", "sequence", "micro_batches", "tokens", "precision", "causal"),
    choices={"precision": tuple(PRECISIONS)},
)
"""Steps of transformers and recommendation models by formulas."""

RECORDED = Source(
    "a capture",
    plan=(
        *("pipeline", "schedule", "cuts", "data", "fsdp", "tensor", "sequence_parallel"),
        *("fsdp_unit", "keep_gathered", "bucket_bytes"),
    ),
    step=(
        *("phase", "batch", "sequence", "precision", "optimizer", "clip", "accumulate"),
        *("micro_batches", "layers", "device"),
    ),
    defaults={"batch": 0, "micro_batches": 0, "precision": AUTO},
    choices={
        "phase": ("training", "inference"),
        "precision": (AUTO, "bf16", "fp16", "fp32"),
        "schedule": ("1f1b", "gpipe"),
    },
)
"""Steps of programs and modules that PyTorch runs without a device."""


DEGREES = tuple(name for name in ALL_DEGREES if name in RECORDED.plan)
"""Degrees of recorded steps."""

SIDES = ("prefill", "decode")
"""Ranks of a disaggregated step, each with a plan of its own."""
SIDE_SETTINGS = ("data", "tensor", "pipeline", "expert", "micro_batches")
"""What is given for each side, such as ``prefill_tensor``."""


def read_recorded(given: Mapping[str, Any]) -> StepSettings:
    """Return the plan and the step of a capture.

    Raises:
        UsageError: If a keyword is unknown; names the nearest.
        ConfigError: If a value is not possible, or belongs to a pipeline and there is none.
    """
    found = RECORDED.read(given)
    if found.plan.pipeline == 1 and (found.step.micro_batches or found.plan.schedule != "1f1b"):
        named = "micro_batches" if found.step.micro_batches else "schedule"
        raise ConfigError(f"plan: {named} belongs to a pipeline; give pipeline=2 or more.")
    return found
