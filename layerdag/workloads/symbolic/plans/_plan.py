"""How a model is split over ranks, and what one step of it does."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from layerdag._runtime import did_you_mean
from layerdag.errors import ConfigError
from layerdag.workloads.symbolic.shapes import Image, ModelShape

Schedule = Literal["1f1b", "interleaved", "gpipe", "zb-h1"]
Recompute = Literal["none", "selective", "full"]
Attention = Literal["flash", "unfused"]
Phase = Literal["training", "prefill", "decode", "inference"]
Causal = Literal["full", "half"]


@dataclass(frozen=True)
class Precision:
    """Bytes of one number of each kind.

    Attributes:
        name: On the command line.
        dtype: Format of matrix products, as traces state it.
        weights: Bytes of a weight, and of an activation.
        gradients: Bytes of a gradient.
        optimizer: Bytes of the optimizer's states of one parameter: 12 for Adam in mixed precision
            (a copy of the weight, momentum, variance, each of 4 bytes).
    """

    name: str
    dtype: str
    weights: int
    gradients: int
    optimizer: int


PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("bf16", "bfloat16", 2, 2, 12),
        Precision("fp16", "float16", 2, 2, 12),
        Precision("bf16-fp32-gradients", "bfloat16", 2, 4, 12),
        Precision("fp32", "float32", 4, 4, 8),
    )
}
"""Precisions by name; "bf16" and "fp16" have the 16 bytes a parameter of the ZeRO paper."""


@dataclass(frozen=True)
class Plan:
    """Degrees of parallelism; their product is the number of ranks (``expert`` is inside ``data``).

    Attributes:
        data: Replicas that share the batch.
        tensor: Ranks that share each layer's matrices.
        pipeline: Stages that share the layers.
        context: Ranks that share each sequence.
        expert: Ranks that share the experts; divides ``data * context``, as in Megatron-LM.
        sequence_parallel: Whether norms and residuals are split over the tensor ranks, too.
        zero: ZeRO stage: what data-parallel ranks share: 1 optimizer states, 2 gradients, too,
            3 parameters, too (fully sharded).
        schedule: Order of micro-batches in a pipeline; "interleaved" is "1f1b" with several virtual
            stages, "zb-h1" the zero-bubble schedule that takes no more memory than "1f1b".
        virtual_stages: Groups of layers that each stage holds (interleaved 1F1B).
        recompute: What the backward pass computes again: nothing, the attention core, or layers.
        attention: "flash" keeps no scores; "unfused" does, as Megatron's published formula.

    Raises:
        ConfigError: If a degree is not possible.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    sequence_parallel: bool = False
    zero: int = 0
    schedule: Schedule = "1f1b"
    virtual_stages: int = 1
    recompute: Recompute = "none"
    attention: Attention = "flash"

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "context", "expert", "virtual_stages"):
            _whole("plan", name, getattr(self, name))
        if type(self.zero) is not int or self.zero not in (0, 1, 2, 3):
            raise ConfigError(f"plan: zero is {self.zero!r}; ZeRO stages are 0 (none) to 3.")
        _known("plan", "schedule", self.schedule, Schedule)
        self._check_schedule()
        _known("plan", "recompute", self.recompute, Recompute)
        _known("plan", "attention", self.attention, Attention)
        if self.data * self.context % self.expert:
            raise ConfigError(
                f"plan: {self.expert} expert ranks do not divide data x context = "
                f"{self.data * self.context}, whose ranks share the experts; raise data to a "
                f"multiple of {self.expert}."
            )

    def _check_schedule(self) -> None:
        """Refuse virtual stages where there is nothing to interleave, and the other way round."""
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
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def replicas(self) -> int:
        """Ranks that hold the same dense weights: their gradients are summed."""
        return self.data * self.context

    @property
    def splits_backward(self) -> bool:
        """Whether gradients of weights are passes of their own."""
        return self.schedule == "zb-h1"

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same experts."""
        return self.replicas // self.expert


@dataclass(frozen=True)
class Step:
    """What one step does.

    Attributes:
        phase: "training" (forward, backward, optimizer), "prefill" (forward, fills the KV cache),
            "decode" (one token a sequence, reads the KV cache) or "inference" (forward, no cache).
        batch: Sequences of one step, of all replicas together.
        sequence: Tokens of a sequence; in decode those that the KV cache holds. Of images those of
            their patches (``Image.tokens``).
        micro_batches: Parts into which a replica cuts its share of the batch.
        tokens: Tokens that decode makes, one after the other.
        precision: Name of a ``Precision``.
        causal: Operations of causal attention: "full" counts the whole square of the sequence, as
            published formulas do (PaLM, Megatron-LM, torchtitan), "half" the computed triangle.

    Raises:
        ConfigError: If a number is not possible.
    """

    phase: Phase = "training"
    batch: int = 1
    sequence: int = 2048
    micro_batches: int = 1
    tokens: int = 1
    precision: str = "bf16"
    causal: Causal = "full"

    def __post_init__(self) -> None:
        for name in ("batch", "sequence", "micro_batches", "tokens"):
            _whole("step", name, getattr(self, name))
        _known("step", "phase", self.phase, Phase)
        _known("step", "causal", self.causal, Causal)
        if self.precision not in PRECISIONS:
            raise ConfigError(
                f"step: there is no precision {self.precision!r}."
                f"{did_you_mean(str(self.precision), PRECISIONS)} Known: {', '.join(PRECISIONS)}."
            )

    @property
    def numbers(self) -> Precision:
        """Bytes of each kind of number."""
        return PRECISIONS[self.precision]

    @property
    def training(self) -> bool:
        """Whether the step has a backward pass."""
        return self.phase == "training"


def check_fit(shape: ModelShape, plan: Plan, step: Step) -> None:
    """Refuse a model that the plan cannot split.

    Raises:
        ConfigError: Naming the two numbers that do not fit, and what to change.
    """
    sharers = plan.data * step.micro_batches
    length = plan.context * (plan.tensor if plan.sequence_parallel else 1)
    split = step.sequence if step.phase != "decode" else length
    for what, total, over, parts in (
        ("query heads", shape.heads, "tensor ranks", plan.tensor),
        ("key heads", shape.key_heads, "tensor ranks", plan.tensor),
        ("feed-forward columns", shape.feed_forward, "tensor ranks", plan.tensor),
        (
            "feed-forward columns of dense layers",
            shape.dense_feed_forward,
            "tensor ranks",
            plan.tensor,
        ),
        ("experts", shape.experts, "expert ranks", plan.expert),
        ("sequences", step.batch, "data ranks x micro-batches", sharers),
        ("tokens of a sequence", split, "context ranks (x tensor ranks)", length),
    ):
        if total % parts:
            raise ConfigError(
                f"{shape.name}: a number of {total} {what} cannot be split evenly over {parts} "
                f"{over}; choose numbers that divide."
            )
    _check_stages(shape, plan, step)
    if plan.expert > 1 and not shape.experts:
        raise ConfigError(
            f"{shape.name}: has no experts to be split over {plan.expert} expert ranks; leave "
            "expert at 1."
        )
    if shape.image:
        _check_image(shape.name, shape.image, step)
    if not step.training:
        _check_inference(plan, step)


def _check_image(name: str, image: Image, step: Step) -> None:
    """Refuse what only models of text have."""
    if step.phase in ("prefill", "decode"):
        raise ConfigError(
            f"{name}: reads images and has no KV cache for {step.phase}; the phases are training "
            "and inference."
        )
    if step.sequence != image.tokens:
        raise ConfigError(
            f"{name}: an image has {image.tokens} tokens, not {step.sequence}; leave sequence out."
        )
    if step.causal == "half":
        raise ConfigError(f"{name}: attention of images is not causal; leave causal out.")


def _check_stages(shape: ModelShape, plan: Plan, step: Step) -> None:
    """Refuse a pipeline with stages that would have nothing to do."""
    stages = plan.pipeline * plan.virtual_stages
    if stages > shape.layers:
        each = f" of {plan.virtual_stages} virtual stages each" if stages > plan.pipeline else ""
        raise ConfigError(
            f"{shape.name}: {shape.layers} layers do not fill {plan.pipeline} pipeline stages"
            f"{each}; use fewer."
        )
    if plan.virtual_stages > 1 and step.training and step.micro_batches % plan.pipeline:
        raise ConfigError(
            f"step: interleaved 1F1B takes micro-batches in groups of the {plan.pipeline} pipeline "
            f"stages; {step.micro_batches} cannot be grouped so. Give a multiple."
        )


def _check_inference(plan: Plan, step: Step) -> None:
    """Refuse what only training has."""
    if plan.zero or plan.recompute != "none":
        raise ConfigError(
            f"step: {step.phase} has no optimizer and no backward pass; leave zero and recompute "
            "out."
        )
    if plan.virtual_stages > 1 or plan.schedule == "zb-h1":
        raise ConfigError(
            f"step: {step.phase} has no backward pass, for whose sake pipelines are interleaved or "
            "split; leave virtual_stages and schedule out."
        )
    if step.phase == "decode" and (plan.context > 1 or plan.sequence_parallel):
        raise ConfigError(
            "step: decode computes one token a sequence, which cannot be split; leave context and "
            "sequence_parallel out."
        )


def _whole(where: str, name: str, value: Any) -> None:
    """Refuse what is no whole number of at least 1."""
    if type(value) is not int or value < 1:
        raise ConfigError(f"{where}: {name} is {value!r}; it must be a whole number, at least 1.")


def _known(where: str, name: str, value: Any, choices: Any) -> None:
    """Refuse a word that is not one of a ``Literal``."""
    known = get_args(choices)
    if value not in known:
        raise ConfigError(
            f"{where}: {name} is {value!r}.{did_you_mean(str(value), known)} Known: "
            f"{', '.join(known)}."
        )
