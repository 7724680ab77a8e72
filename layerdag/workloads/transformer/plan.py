"""A parallelism plan, its device mesh, and the pipeline schedule."""

from dataclasses import dataclass
from typing import Any, Literal, final, get_args

import numpy as np

from layerdag.codec.placement import RankTraces
from layerdag.errors import ConfigError
from layerdag.runtime.settings import did_you_mean
from layerdag.traces.trace import Trace
from layerdag.workloads.transformer.shapes import Image, ModelShape

Schedule = Literal["1f1b", "interleaved", "gpipe", "zb-h1"]
Recompute = Literal["none", "selective", "alternate", "full"]
Attention = Literal["flash", "unfused"]
Phase = Literal["training", "prefill", "decode", "inference"]
Causal = Literal["full", "half"]


@dataclass(frozen=True)
class Precision:
    """Bytes of one number of each kind.

    Attributes:
        name: On the command line.
        dtype: Format of everything but the products of layers, as traces state it.
        weights: Bytes of a weight as it is kept and gathered, and of an activation.
        gradients: Bytes of a gradient.
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


MAX_LAYER_RUNS = 100_000
"""Most runs of a layer in the programs of all stages: some four million nodes, 2.6 GB."""

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


@dataclass(frozen=True)
class Plan:
    """Degrees of parallelism; their product is the number of ranks (``expert`` is inside ``data``).

    Attributes:
        data: Replicas that share the batch.
        tensor: Ranks that share each layer's matrices.
        pipeline: Stages that share the layers.
        context: Ranks that share each sequence.
        expert: Ranks that share the experts; divides ``data * context``, as in Megatron-LM, with
            ``expert_tensor`` 1 ``data * context * tensor``.
        expert_tensor: Ranks that share the matrices of one expert: 0 as many as ``tensor``; 1 none,
            so that experts are spread over the tensor ranks, too (Megatron-LM's
            expert-tensor-parallel size).
        sequence_parallel: Whether norms and residuals are split over the tensor ranks, too.
        zero: ZeRO stage: what data-parallel ranks share: 1 optimizer states, 2 gradients, too,
            3 parameters, too (fully sharded).
        schedule: Order of micro-batches in a pipeline; "interleaved" is "1f1b" with several virtual
            stages, "zb-h1" the zero-bubble schedule that takes no more memory than "1f1b".
        virtual_stages: Groups of layers that each stage holds (interleaved 1F1B).
        recompute: What the backward pass computes again: nothing; "selective" the attention core
            (Megatron-LM); "alternate" every second layer, which torchtitan's selective modes come
            to (every second layer, or every second product of all); "full" all layers.
        attention: "flash" keeps no scores; "unfused" does, as Megatron's published formula.
        ends_as_layers: Whether embedding and output layer count as a layer each where layers are
            split over stages, so that 126 layers fill 16 x 8 stages (as for Llama 3 405B).
        first_layers: Layers of the first stage; 0 for as many as the others.
        last_layers: Layers of the last stage; 0 for as many as the others.

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
    expert_tensor: int = 0
    ends_as_layers: bool = False
    first_layers: int = 0
    last_layers: int = 0

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "context", "expert", "virtual_stages"):
            _whole("plan", name, getattr(self, name))
        for name in ("first_layers", "last_layers"):
            if getattr(self, name):
                _whole("plan", name, getattr(self, name))
        if type(self.zero) is not int or self.zero not in (0, 1, 2, 3):
            raise ConfigError(f"plan: zero is {self.zero!r}; ZeRO stages are 0 (none) to 3.")
        _known("plan", "schedule", self.schedule, Schedule)
        self._check_schedule()
        _known("plan", "recompute", self.recompute, Recompute)
        _known("plan", "attention", self.attention, Attention)
        self._check_experts()

    def _check_experts(self) -> None:
        if self.expert_tensor not in (0, 1, self.tensor):
            raise ConfigError(
                f"plan: expert_tensor is {self.expert_tensor!r}; it is 1 (experts are spread over "
                f"the tensor ranks) or the {self.tensor} tensor ranks, which 0 stands for."
            )
        spread = self.tensor > 1 and self.expert_tensor == 1
        if spread and not self.sequence_parallel:
            raise ConfigError(
                "plan: expert_tensor 1 gives each tensor rank tokens of its own to send to "
                "experts, which it has with sequence_parallel only; set it, too."
            )
        if self.experts_over % self.expert:
            over = "data x context x tensor" if spread else "data x context"
            raise ConfigError(
                f"plan: {self.expert} expert ranks do not divide {over} = "
                f"{self.experts_over}, whose ranks share the experts; raise data to a "
                f"multiple of {self.expert}"
                + ("." if spread or self.tensor == 1 else ", or set expert_tensor to 1.")
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
        if self.tokens != 1 and self.phase in ("training", "inference"):
            raise ConfigError(
                f"step: {self.tokens} tokens are asked for, but phase {self.phase!r} makes none; "
                "leave tokens out, or ask for phase 'decode'."
            )
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
        (
            "feed-forward columns",
            shape.feed_forward,
            "tensor ranks",
            plan.expert_sharers if shape.experts else plan.tensor,
        ),
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
    _check_length(shape, step)
    if plan.expert > 1 and not shape.experts:
        raise ConfigError(
            f"{shape.name}: has no experts to be split over {plan.expert} expert ranks; leave "
            "expert at 1."
        )
    if shape.image:
        _check_image(shape.name, shape.image, step)
    if not step.training:
        _check_inference(plan, step)


def _check_length(shape: ModelShape, step: Step) -> None:
    turns = step.micro_batches * (step.tokens if step.phase == "decode" else 1)
    if shape.layers * turns > MAX_LAYER_RUNS:
        each = "micro-batches x tokens" if step.phase == "decode" else "micro-batches"
        raise ConfigError(
            f"{shape.name}: {shape.layers:,} layers x {turns:,} {each} are "
            f"{shape.layers * turns:,} runs of a layer, each of ten to forty nodes; at most "
            f"{MAX_LAYER_RUNS:,} are taken, so choose fewer."
        )


def _check_image(name: str, image: Image, step: Step) -> None:
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
    stages = plan.pipeline * plan.virtual_stages
    filling = shape.layers + 2 * plan.ends_as_layers
    if stages > filling:
        each = f" of {plan.virtual_stages} virtual stages each" if stages > plan.pipeline else ""
        more = "" if plan.ends_as_layers or stages > filling + 2 else ", or set ends_as_layers"
        raise ConfigError(
            f"{shape.name}: {shape.layers} layers do not fill {plan.pipeline} pipeline stages"
            f"{each}; use fewer{more}."
        )
    _check_ends(shape, plan)
    if plan.virtual_stages > 1 and step.training and step.micro_batches % plan.pipeline:
        raise ConfigError(
            f"step: interleaved 1F1B takes micro-batches in groups of the {plan.pipeline} pipeline "
            f"stages; {step.micro_batches} cannot be grouped so. Give a multiple."
        )


def _check_ends(shape: ModelShape, plan: Plan) -> None:
    given = [count for count in (plan.first_layers, plan.last_layers) if count]
    if not given:
        return
    if plan.ends_as_layers or plan.pipeline <= len(given):
        raise ConfigError(
            f"plan: first_layers {plan.first_layers} and last_layers {plan.last_layers} need a "
            "pipeline with stages between, and ends_as_layers left out."
        )
    rest, stages = shape.layers - sum(given), plan.pipeline - len(given)
    if rest < stages * plan.virtual_stages or any(n % plan.virtual_stages for n in given):
        raise ConfigError(
            f"{shape.name}: first_layers {plan.first_layers} and last_layers {plan.last_layers} "
            f"leave {rest} layers for {stages} stages of {plan.virtual_stages} virtual stages; "
            "choose numbers that the virtual stages divide and that leave a layer for each."
        )


def _check_inference(plan: Plan, step: Step) -> None:
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
    known = get_args(choices)
    if value not in known:
        raise ConfigError(
            f"{where}: {name} is {value!r}.{did_you_mean(str(value), known)} Known: "
            f"{', '.join(known)}."
        )


ROLES = ("tensor", "context", "data", "expert", "expert_data", "embedding")
"""Communicator groups that a rank can be in. "data" are the ranks that hold the same dense weights
(of all contexts), "expert_data" those that hold the same experts, "embedding" the first and the
last stage."""

PEERS = ("previous", "next")
"""Neighbors in the pipeline, in a ring: after the last stage comes the first."""


@final
@dataclass(frozen=True)
class DeviceMesh:
    """The ranks of a plan.

    Attributes:
        plan: The degrees.
    """

    plan: Plan

    def stage(self, rank: int) -> int:
        """Return the pipeline stage of ``rank``."""
        return rank // self._per_stage

    @property
    def _per_stage(self) -> int:
        return self.plan.tensor * self.plan.replicas

    def groups(self, role: str) -> np.ndarray:
        """Return the groups of a role, int64 (G, members); each rank is in one of them at most."""
        plan = self.plan
        rank_PXT = np.arange(plan.ranks).reshape(plan.pipeline, plan.replicas, plan.tensor)
        if role == "tensor":
            return rank_PXT.reshape(-1, plan.tensor)
        if role == "context":
            rank_PDCT = rank_PXT.reshape(plan.pipeline, plan.data, plan.context, plan.tensor)
            return np.moveaxis(rank_PDCT, 2, 3).reshape(-1, plan.context)
        if role == "data":
            return np.moveaxis(rank_PXT, 1, 2).reshape(-1, plan.replicas)
        if role == "embedding":
            ends = rank_PXT[[0, -1]].reshape(2, -1)
            return ends.T if plan.pipeline > 1 else ends[:1].T
        rank_PKET = rank_PXT.reshape(plan.pipeline, -1, plan.expert, plan.expert_sharers)
        axis, size = (2, plan.expert) if role == "expert" else (1, plan.expert_replicas)
        return np.moveaxis(rank_PKET, axis, 3).reshape(-1, size)

    def peer_R(self, peer: str) -> np.ndarray:
        """Return the neighbor of every rank in the pipeline, int64 (R,)."""
        step = self._per_stage if peer == "next" else -self._per_stage
        return (np.arange(self.plan.ranks) + step) % self.plan.ranks


def stage_traces(plan: Plan, stages: tuple[Trace, ...]) -> RankTraces:
    """Return the traces of all ranks; those of a stage share all columns but groups and peers.

    Args:
        plan: The degrees of parallelism.
        stages: The program of each stage, groups and peers by role (``Tape``).
    """
    grid = DeviceMesh(plan)
    used = {text for trace in stages for text in trace.strings}
    return RankTraces(
        stages,
        np.arange(plan.ranks) // (plan.ranks // plan.pipeline),
        {role: grid.groups(role) for role in ROLES if role in used},
        [grid.peer_R(peer) for peer in PEERS],
    )


Pass = Literal["forward", "backward", "weights"]


@dataclass(frozen=True)
class Task:
    """One pass of one micro-batch through the layers of one chunk of a stage.

    Attributes:
        micro_batch: Its number.
        kind: "forward", "backward", or "weights": the gradients of weights, where the schedule
            splits them from the backward pass, which is then the gradients of inputs only.
        chunk: Which of the virtual stages of this stage.
    """

    micro_batch: int
    kind: Pass
    chunk: int = 0


def stage_tasks(plan: Plan, stage: int, micro_batches: int) -> list[Task]:
    """Return the tasks of a stage in program order.

    GPipe (Huang et al. 2019) runs all forward passes, then all backward passes. 1F1B (PipeDream,
    Megatron-LM) begins with as many forward passes as there are stages after this one, then takes
    turns, so that no more than ``stages - stage`` micro-batches are in flight. For interleaved 1F1B
    and ZB-H1 see the functions below.

    All orders are free of deadlock: with the dependencies between stages all tasks together form
    a DAG, since task k of a stage waits for tasks of neighbors only that can run without it
    (tests/unit/workloads/transformer/test_plan.py runs them).
    """
    if plan.virtual_stages > 1:
        return _interleaved(stage, plan.pipeline, plan.virtual_stages, micro_batches)
    if plan.schedule == "zb-h1":
        return _zero_bubble(stage, plan.pipeline, micro_batches)
    warm_up = micro_batches if plan.schedule == "gpipe" else plan.pipeline - stage - 1
    every = range(micro_batches)
    return _in_turns(
        [Task(m, "forward") for m in every], [Task(m, "backward") for m in every], warm_up
    )


def _in_turns(forward: list[Task], backward: list[Task], warm_up: int) -> list[Task]:
    warm_up = min(warm_up, len(forward))
    tasks = forward[:warm_up]
    for ahead, back in zip(forward[warm_up:], backward, strict=False):
        tasks += [ahead, back]
    return tasks + backward[len(forward) - warm_up :]


def _interleaved(stage: int, stages: int, chunks: int, count: int) -> list[Task]:
    """Return interleaved 1F1B (Narayanan et al. 2021, section 2.2, as Megatron-LM runs it).

    A stage holds ``chunks`` virtual stages. Micro-batches come in groups of as many as there are
    stages; a group passes all chunks of a stage, forward from the first to the last chunk, backward
    from the last to the first, before the next group does. The idle share is (p - 1) / (m v)
    instead of (p - 1) / m; up to (v - 1) p + 2 (p - stage - 1) + 1 chunk passes are in flight.
    """
    order = [
        (first + position, chunk)
        for first in range(0, count, stages)
        for chunk in range(chunks)
        for position in range(stages)
    ]
    return _in_turns(
        [Task(m, "forward", chunk) for m, chunk in order],
        [Task(m, "backward", chunks - 1 - chunk) for m, chunk in order],
        2 * (stages - stage - 1) + (chunks - 1) * stages,
    )


def _zero_bubble(stage: int, stages: int, count: int) -> list[Task]:
    """Return ZB-H1 (Qi et al. 2024, section 2.1): 1F1B with gradients of weights put off.

    Stage s puts them off by s micro-batches, so that all stages keep at most ``stages``
    micro-batches, as the first stage of 1F1B does. The idle time is (p - 1)(F + B - W) instead of
    (p - 1)(F + B + W), with the times of forward pass, gradients of inputs, gradients of weights.
    """
    warm_up = min(stages - stage - 1, count)
    tasks = [Task(m, "forward") for m in range(warm_up)]
    for m in range(count):
        if warm_up + m < count:
            tasks.append(Task(warm_up + m, "forward"))
        tasks.append(Task(m, "backward"))
        if m >= stage:
            tasks.append(Task(m - stage, "weights"))
    return tasks + [Task(m, "weights") for m in range(max(count - stage, 0), count)]


def layers_of_stage(layers: int, stage: int, stages: int) -> range:
    """Return the layers of a stage: contiguous, the remainder to the early stages."""
    each, more = divmod(layers, stages)
    first = stage * each + min(stage, more)
    return range(first, first + each + (stage < more))


def layers_of_chunks(layers: int, plan: Plan, stage: int) -> tuple[range, ...]:
    """Return the layers of each virtual stage of a stage: the stages take turns."""
    every = plan.pipeline * plan.virtual_stages
    positions = range(stage, every, plan.pipeline)
    if plan.first_layers or plan.last_layers:
        ends = np.cumsum([0, *_given_counts(layers, plan)]).tolist()
        return tuple(range(ends[position], ends[position + 1]) for position in positions)
    if not plan.ends_as_layers:
        return tuple(layers_of_stage(layers, position, every) for position in positions)
    parts = [layers_of_stage(layers + 2, position, every) for position in positions]
    return tuple(range(max(p.start - 1, 0), min(p.stop - 1, layers)) for p in parts)


def _given_counts(layers: int, plan: Plan) -> list[int]:
    stages, chunks = plan.pipeline, plan.virtual_stages
    given = {0: plan.first_layers, stages - 1: plan.last_layers}
    fixed = {stage: count for stage, count in given.items() if count}
    free = (stages - len(fixed)) * chunks
    rest = iter(len(layers_of_stage(layers - sum(fixed.values()), n, free)) for n in range(free))
    return [
        fixed[position % stages] // chunks if position % stages in fixed else next(rest)
        for position in range(stages * chunks)
    ]


def layers_held(layers: int, plan: Plan, stage: int) -> int:
    """Return how many layers a stage holds in all its chunks."""
    return sum(map(len, layers_of_chunks(layers, plan, stage)))
