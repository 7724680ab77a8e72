"""How long a training step takes, in closed form: what it asks for over what a device gives.

``StepDemand`` is arithmetic of shape, plan and step; ``DataSheet`` is the maker's;
``StepEfficiency`` has a few fitted numbers with a meaning each. A step takes micro-batches times
the fullest stage, longer by the pipeline's bubble, and what no computation hides. Nothing here is
simulated, so that a plan costs microseconds; ``simulate`` has the order of every operator instead.

All numbers may be arrays over many steps, so that shares are fitted to all of them at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.devices import DataSheet
from layerdag.workloads.transformer.costs import Costs
from layerdag.workloads.transformer.job import SymbolicJob
from layerdag.workloads.transformer.schedule import layers_held, layers_of_chunks

Number = Any
"""A float, or a float64 array of one number for each of S steps."""

FORMATS = ("", "fp8", "mxfp8", "nvfp4")
"""Formats of the layers' products by their code; "" is that of everything else."""


@dataclass(frozen=True)
class StepDemand:
    """What a training step asks of a rank of the fullest stage, most of it per micro-batch."""

    products: Number  # operations of the layers' matrix products, all passes
    # Twice the numbers that these products make: what they start and finish costs as much as so
    # many operations times ``StepEfficiency.tile``
    outputs: Number
    head_products: Number  # operations of the output layer, in 16 bits
    head_outputs: Number  # twice the numbers that it makes
    attention: Number  # operations of attention, causal ones counted half
    moved: Number  # bytes that norms, activations, sums and the like read and write
    moved_by_experts: Number  # the same around experts: copies, permutations, activations
    moved_by_casts: Number  # numbers that are cast to the format of the products
    moved_by_head: Number  # bytes of the logits and their gradients
    format: Number
    dense_layers: Number  # layers of the stage without a mixture
    mixture_layers: Number  # its layers with one
    tensor_bytes: Number  # bytes that a rank sends to tensor ranks
    context_bytes: Number  # bytes that it sends to context ranks
    expert_bytes: Number  # bytes that it sends to expert ranks
    passed_bytes: Number  # bytes that it sends to the next and the previous stage
    weight_bytes: Number  # bytes of the rank's dense weights that other ranks share
    expert_weight_bytes: Number  # bytes of its experts that other ranks share
    replicas: Number  # ranks that hold the same dense weights
    expert_replicas: Number  # ranks that hold the same experts
    tensor: Number
    context: Number
    expert: Number
    zero: Number
    parameters: Number  # parameters that the rank updates
    micro_batches: Number
    stages: Number
    bubble: Number  # idle share of the pipeline, of the time that it works
    devices: Number
    node: Number  # devices that share the fast link
    eager: Number  # 1 where element-wise operators are not compiled into one another, else 0
    asynchronous: Number  # 1 where the products of a block hide its tensor-parallel sums, else 0


@dataclass(frozen=True)
class StepEfficiency:
    """Shares of a data sheet's rates that a step reaches, and its overheads: the fitted numbers."""

    bf16: Number  # share of the peak that large products in 16 bits reach
    fp8: Number  # that share with 8 bits and one scale for a tensor
    mxfp8: Number  # that share with a scale for each 32 numbers
    fp4: Number  # that share with 4 bits
    # Length of the sum that takes as long as starting and finishing a tile of a product; products
    # over short sums are slow
    tile: Number
    memory: Number  # share of the memory bandwidth that element-wise operators get
    # Share of the peak in 16 bits that attention gets, causal operations counted half
    attention: Number
    experts: Number  # share of the memory bandwidth that copies and permutations around experts get
    casts: Number  # bytes moved for each number that is cast, over six
    link: Number  # share of the link inside a node
    network: Number  # share of the network between nodes, of two nodes
    growth: Number  # how much slower the network is for each doubling of nodes
    eager: Number  # how much slower element-wise operators are where each is a kernel of its own
    # Host time of a layer in s, all passes of a micro-batch; a step that is faster waits for the
    # host
    launch: Number
    launch_experts: Number  # host time of a layer with a mixture
    # How many times as much where each expert's operands have scales of blocks (mxfp8, nvfp4),
    # which are made and arranged by kernels of their own
    launch_scaled: Number
    data_exposed: Number  # share of gathers and sums of weights (data parallel) that nothing hides
    tensor_exposed: Number  # exposed share of tensor and context parallel communication
    asynchronous: Number  # what is left of that where products hide it piece by piece
    expert_exposed: Number  # exposed share of exchanges between experts
    passing_exposed: Number  # exposed share of what stages pass on
    fixed: Number  # time of a step in s that depends on nothing


@dataclass(frozen=True)
class StepTime:
    """Where the time of a step goes, in s."""

    products: Number  # matrix products and attention
    memory: Number  # what waits for memory: element-wise operators, casts, copies
    host: Number  # what the host adds to that
    communication: Number  # what nothing hides: tensor, context, expert, pipeline and data parallel
    bubble: Number  # idle time of the pipeline
    update: Number  # the optimizer, and what is fixed

    @property
    def total(self) -> Number:
        """The sum of the parts."""
        kept = self.products + self.memory + self.host + self.communication
        return kept + self.bubble + self.update


_OF_PLAN = ("replicas", "expert_replicas", "tensor", "context", "expert", "zero")
_COUNTED = (
    *("compress", "q_up", "kv_up", "qkv", "out"),
    *("up", "down", "shared_up", "shared_down"),
)
"""Products of a layer that take time worth counting."""
_INNER, _COPIES = 4, 2
"""How often mixtures move the inner numbers of experts, and tokens to and from experts, in a pass.

Chosen by cross-validation over the public rows: once and six times are worse on every Blackwell
device (``layerdag accuracy --calibrate 10 --refit``).
"""


def step_demand(
    job: SymbolicJob, node: int, *, eager: bool = False, asynchronous: bool = False
) -> StepDemand:
    """Return the demand of a training step.

    ``node`` devices share the fast link. Products of ``asynchronous`` steps hide tensor-parallel
    sums piece by piece; element-wise operators of ``eager`` ones are not compiled into one another.

    Raises:
        ConfigError: If the step does not train, or the model reads images.
    """
    if not job.step.training or job.shape.image:
        raise ConfigError(
            f"{job.shape.name}: only training steps of models of text have a time in closed form; "
            "simulate others."
        )
    costs, shape, plan, step = job.costs, job.shape, job.plan, job.step
    stage = max(range(plan.pipeline), key=lambda s: (layers_held(shape.layers, plan, s), -s))
    chunks = layers_of_chunks(shape.layers, plan, stage)
    layers = [layer for chunk in chunks for layer in chunk]
    total = _Sum()
    for layer in layers:
        total.add_layer(costs.of_layer(layer), plan.recomputes(layer))
    mixtures = sum(bool(costs.of_layer(layer).shape.experts) for layer in layers)
    head = _Sum()
    logits = costs.products["logits"]
    head.add_product(costs, "logits", 3)
    # In a pipeline the last stage has fewer layers or is waited for: half of the head counts.
    ends = 1.0 if plan.pipeline == 1 else 0.5
    dense = sum(costs.of_layer(layer).layer_dense for layer in layers)
    tables = costs.table if costs.shape.tied and plan.pipeline == 1 else 2 * costs.table
    dense += round(tables * ends)
    experts = sum(costs.of_layer(layer).layer_experts for layer in layers)
    idle = (plan.pipeline - 1) / (step.micro_batches * plan.virtual_stages)
    shared = -(-dense // plan.replicas) if plan.zero else dense
    expert_sharers = plan.expert_replicas if plan.zero else 1
    return StepDemand(
        products=total.operations,
        outputs=total.outputs,
        head_products=ends * head.operations,
        head_outputs=ends * head.outputs,
        attention=total.attention,
        moved=total.moved,
        moved_by_experts=total.moved_by_experts,
        moved_by_casts=total.casts(step.micro_batches) if step.numbers.products else 0.0,
        moved_by_head=ends * 12 * logits.tokens * logits.outputs,
        format=float(FORMATS.index(step.numbers.products)),
        dense_layers=float(len(layers) - mixtures),
        mixture_layers=float(mixtures),
        tensor_bytes=total.tensor_bytes,
        context_bytes=total.context_bytes,
        expert_bytes=total.expert_bytes,
        passed_bytes=2.0 * plan.virtual_stages * costs.passed * (plan.pipeline > 1),
        weight_bytes=float(dense * step.numbers.weights),
        expert_weight_bytes=float(experts * step.numbers.weights),
        **{name: float(getattr(plan, name)) for name in _OF_PLAN},
        parameters=float(shared + experts // expert_sharers),
        micro_batches=float(step.micro_batches),
        stages=float(plan.pipeline),
        bubble=idle / 3 if plan.splits_backward else idle,
        devices=float(plan.ranks),
        node=float(node),
        eager=float(eager),
        asynchronous=float(asynchronous),
    )


class _Sum:
    def __init__(self) -> None:
        self.operations = self.outputs = self.attention = 0.0
        self.moved = self.moved_by_experts = 0.0
        self.tensor_bytes = self.context_bytes = self.expert_bytes = 0.0
        self._cast = self._cast_weights = 0.0

    def casts(self, micro_batches: int) -> float:
        """Return the numbers cast for a micro-batch; weights are cast once a step."""
        return self._cast + self._cast_weights / micro_batches

    def add_product(self, costs: Costs, name: str, passes: int) -> None:
        """Add a product of ``passes`` passes: forward, both gradients, forward once more."""
        layer = costs.products[name]
        # Sequence-parallel ranks compress tokens of their own, which is not counted here.
        tokens = float(costs.tokens if name == "compress" else layer.tokens)
        matrix = float(layer.matrix)
        self.operations += passes * 2 * matrix * tokens
        made = tokens * layer.outputs
        back = tokens * layer.inputs + layer.copies * matrix
        self.outputs += 2 * (made * (1 + (passes > 3)) + back)
        share = passes / 3
        self._cast += share * tokens * (layer.inputs + layer.outputs)
        self._cast_weights += share * layer.copies * matrix

    def add_layer(self, costs: Costs, again: bool) -> None:
        """Add a layer; ``again``: its forward pass is computed twice."""
        shape, plan = costs.shape, costs.plan
        passes, tokens, number = 3 + again, costs.tokens, costs.number
        for name in _COUNTED:
            if name in costs.products:
                self.add_product(costs, name, passes)
        operations = costs.attention()[0] / (1 if costs.step.causal == "half" else 2)
        self.attention += operations * (3.5 + (again or plan.recompute == "selective"))
        width = 3 * (shape.query_width if shape.latent else shape.query_width + 2 * shape.kv_width)
        dense = 0 if shape.experts else (shape.up_width + shape.feed_forward) * tokens
        each = costs.own_tokens * 10 * shape.hidden + (dense + tokens * width) / plan.tensor
        self.moved += passes * number * each
        # Sums of the stream: forward, backward, and once more where it is computed again. A sum
        # moves (t - 1) / t of the buffer twice, a gather and a scatter once each.
        sums = 2 * (2 + again)
        ring = (plan.tensor - 1) / plan.tensor
        self.tensor_bytes += 2 * sums * costs.stream * ring
        self.context_bytes += (3 + again) * costs.keys_and_values * (plan.context - 1)
        if shape.experts:
            copied = costs.routed * shape.hidden * number
            inner = costs.routed * (shape.up_width + shape.feed_forward) / plan.expert_sharers
            self.moved_by_experts += passes * (_INNER * number * inner + _COPIES * copied)
            exchanges = 2 * (2 + again)
            self.expert_bytes += exchanges * costs.routed_stream * (plan.expert - 1) / plan.expert


Numbers = TypeVar("Numbers", StepDemand, DataSheet)


def stacked(parts: Sequence[Numbers]) -> Numbers:
    """Return the demands, or the sheets, of many steps as one of arrays."""
    return _with_numbers(parts[0], lambda name: np.array([getattr(part, name) for part in parts]))


def taken(whole: Numbers, rows: np.ndarray) -> Numbers:
    """Return some rows of what ``stacked`` gave."""
    return _with_numbers(whole, lambda name: getattr(whole, name)[rows])


def _with_numbers(whole: Numbers, of: Callable[[str], Any]) -> Numbers:
    names = [f.name for f in fields(whole) if f.name not in ("name", "generation")]
    return replace(whole, **{name: of(name) for name in names})


def step_time(demand: StepDemand, sheet: DataSheet, shares: StepEfficiency) -> StepTime:
    """Return the time of a step and its parts."""
    d, s = demand, shares
    rate = np.select(
        [d.format == 1, d.format == 2, d.format == 3],
        [s.fp8 * sheet.fp8, s.mxfp8 * sheet.fp8, s.fp4 * sheet.fp4],
        s.bf16 * sheet.bf16,
    )
    head = (d.head_products + s.tile * d.head_outputs) / (s.bf16 * sheet.bf16)
    products = (d.products + s.tile * d.outputs) / rate + head
    products = products + d.attention / (s.attention * sheet.bf16)
    elementwise = (d.moved + d.moved_by_head) * s.eager**d.eager + 6 * s.casts * d.moved_by_casts
    memory = elementwise / (s.memory * sheet.bytes_per_s)
    memory = memory + d.moved_by_experts / (s.experts * sheet.bytes_per_s)
    inside = s.link * sheet.link_bytes_per_s
    nodes = np.maximum(d.devices / d.node, 1)
    outside = s.network * sheet.network_bytes_per_s / (1 + s.growth * np.log2(nodes))
    blocks = _blocks(d, s, inside, outside)
    device = products + memory + blocks
    of_mixture = s.launch_experts * np.where(d.format >= 2, s.launch_scaled, 1.0)
    launched = sheet.host * ((d.dense_layers + 1) * s.launch + d.mixture_layers * of_mixture)
    # Near the point where host and device take equally long, each waits for the other at times.
    each = (device**4 + launched**4) ** 0.25
    gather = _gather_of_weights(d, inside, outside)
    # ZeRO 3 gathers twice and sums once in a micro-batch, behind the layers.
    moved = 3 * gather
    exposed = np.maximum(s.data_exposed * moved, moved - 0.9 * each)
    weights = np.where(d.zero == 3, exposed, 0.0)
    # Without it, gradients in 32 bits are summed, and updated weights in 16 bits are gathered.
    once = np.maximum(s.data_exposed * moved, moved - 0.8 * each)
    each_time = s.data_exposed * (d.micro_batches + 1) * gather
    sums = np.select([d.zero == 3, d.zero == 2], [0.0 * gather, each_time], once)
    passing = s.passing_exposed * d.passed_bytes / outside
    busy = d.micro_batches * (each + passing)
    update = 30 * d.parameters / (0.8 * sheet.bytes_per_s) + s.fixed
    turns = d.micro_batches
    return StepTime(
        products=turns * products,
        memory=turns * memory,
        host=turns * (each - device),
        communication=turns * (blocks + passing + weights) + sums,
        bubble=d.bubble * (busy + turns * weights),
        update=update,
    )


def _blocks(d: StepDemand, s: StepEfficiency, inside: Number, outside: Number) -> Number:
    tensor = d.tensor_bytes / inside * s.asynchronous**d.asynchronous
    context = d.context_bytes / np.where(d.context * d.tensor <= d.node, inside, outside)
    away = np.maximum(1 - d.node / d.expert, 0)  # exchanges are direct: so much leaves the node
    expert = np.maximum(d.expert_bytes * away / outside, d.expert_bytes / inside)
    return s.tensor_exposed * (tensor + context) + s.expert_exposed * expert


def _gather_of_weights(d: StepDemand, inside: Number, outside: Number) -> Number:
    """Return the time of one gather of the dense weights and the experts.

    All ranks of a group in a node bring their share of the network (rings over all of its ports).
    """
    together = np.clip(d.node / d.tensor, 1, d.replicas)
    rate = np.where(d.tensor * d.replicas <= d.node, inside, np.minimum(together * outside, inside))
    dense = d.weight_bytes * (d.replicas - 1) / d.replicas / rate
    together = np.clip(d.node / d.expert, 1, d.expert_replicas)
    within = d.expert * d.expert_replicas <= d.node
    rate = np.where(within, inside, np.minimum(together * outside, inside))
    experts = d.expert_weight_bytes * (d.expert_replicas - 1) / d.expert_replicas / rate
    return dense + experts
