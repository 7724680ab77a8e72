"""How long a training step takes, in closed form: what it asks for over what a device gives.

``StepDemand`` is arithmetic of shape, plan and step; ``DataSheet`` is the maker's;
``StepEfficiency`` has a few fitted numbers with a meaning each. A step takes micro-batches times
the fullest stage, longer by the pipeline's bubble, and what no computation hides. Nothing here is
simulated, so that a plan costs microseconds; ``simulate`` has the order of every operator instead.

All numbers may be arrays over many steps, so that shares are fitted to all of them at once.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.devices import DataSheet
from layerdag.workloads.transformer.costs import Costs, Linear
from layerdag.workloads.transformer.job import SymbolicJob
from layerdag.workloads.transformer.schedule import layers_of_chunks

Number = Any
"""A float, or a float64 array of one number for each of S steps."""

FORMATS = ("", "fp8", "mxfp8", "nvfp4")
"""Formats of the layers' products by their code; "" is that of everything else."""


@dataclass(frozen=True)
class StepDemand:
    """What a training step asks of a rank of the fullest stage; per micro-batch unless told.

    Attributes:
        products: Operations of the layers' matrix products, all passes.
        outputs: Twice the numbers that these products make: what they start and finish costs as
            much as so many operations times ``StepEfficiency.tile``.
        head_products: Operations of the output layer, in 16 bits.
        head_outputs: Twice the numbers that it makes.
        attention: Operations of attention, causal ones counted half.
        moved: Bytes that norms, activations, sums and the like read and write.
        moved_by_experts: The same around experts: copies, permutations, activations.
        moved_by_casts: Numbers that are cast to the format of the products.
        moved_by_head: Bytes of the logits and their gradients.
        format: Place in ``FORMATS``.
        dense_layers: Layers of the stage without a mixture.
        mixture_layers: Its layers with one.
        tensor_bytes: Bytes that a rank sends to tensor ranks.
        context_bytes: The same to context ranks.
        expert_bytes: The same to expert ranks.
        passed_bytes: The same to the next and the previous stage.
        weight_bytes: Bytes of the dense weights of the rank that others hold, too.
        expert_weight_bytes: The same of its experts.
        replicas: Ranks that hold the same dense weights.
        expert_replicas: Ranks that hold the same experts.
        tensor: Tensor ranks.
        context: Context ranks.
        expert: Expert ranks.
        zero: ZeRO stage.
        parameters: Parameters that the rank updates.
        micro_batches: Micro-batches of a replica.
        stages: Pipeline stages.
        bubble: Idle share of the pipeline, of the time that it works.
        devices: All ranks.
        node: Devices that share the fast link.
        eager: 1 where element-wise operators are not compiled into one another, else 0.
        asynchronous: 1 where the products of a block hide its tensor-parallel sums, else 0.
    """

    products: Number
    outputs: Number
    head_products: Number
    head_outputs: Number
    attention: Number
    moved: Number
    moved_by_experts: Number
    moved_by_casts: Number
    moved_by_head: Number
    format: Number
    dense_layers: Number
    mixture_layers: Number
    tensor_bytes: Number
    context_bytes: Number
    expert_bytes: Number
    passed_bytes: Number
    weight_bytes: Number
    expert_weight_bytes: Number
    replicas: Number
    expert_replicas: Number
    tensor: Number
    context: Number
    expert: Number
    zero: Number
    parameters: Number
    micro_batches: Number
    stages: Number
    bubble: Number
    devices: Number
    node: Number
    eager: Number
    asynchronous: Number


@dataclass(frozen=True)
class StepEfficiency:
    """What of a data sheet a step gets, and what it pays beside: the fitted numbers.

    Attributes:
        bf16: Share of the peak that large products in 16 bits reach.
        fp8: The same with 8 bits and one scale for a tensor.
        mxfp8: The same with a scale for each 32 numbers.
        fp4: The same with 4 bits.
        tile: Length of the sum that takes as long as starting and finishing a tile of a product;
            products over short sums are slow.
        memory: Share of the memory bandwidth that element-wise operators get.
        attention: Share of the peak in 16 bits that attention gets, causal operations counted half.
        experts: Share of the memory bandwidth that copies and permutations around experts get.
        casts: Bytes moved for each number that is cast, over six.
        link: Share of the link inside a node.
        network: Share of the network between nodes, of two nodes.
        growth: How much slower the network is for each doubling of nodes.
        eager: How much slower element-wise operators are where each is a kernel of its own.
        launch: Host time of a layer in s, all passes of a micro-batch; a step that is faster waits
            for the host.
        launch_experts: The same of a layer with a mixture.
        launch_scaled: How many times as much where each expert's operands have scales of blocks
            (mxfp8, nvfp4), which are made and arranged by kernels of their own.
        data_exposed: Share of gathers and sums of weights (data parallel) that nothing hides.
        tensor_exposed: The same of tensor and context parallel communication.
        asynchronous: What is left of that where products hide it piece by piece.
        expert_exposed: The same of exchanges between experts.
        passing_exposed: The same of what stages pass on.
        fixed: Time of a step in s that depends on nothing.
    """

    bf16: Number
    fp8: Number
    mxfp8: Number
    fp4: Number
    tile: Number
    memory: Number
    attention: Number
    experts: Number
    casts: Number
    link: Number
    network: Number
    growth: Number
    eager: Number
    launch: Number
    launch_experts: Number
    launch_scaled: Number
    data_exposed: Number
    tensor_exposed: Number
    asynchronous: Number
    expert_exposed: Number
    passing_exposed: Number
    fixed: Number


@dataclass(frozen=True)
class StepTime:
    """Where the time of a step goes, in s; the parts add up to ``total``.

    Attributes:
        products: Matrix products and attention.
        memory: What waits for memory: element-wise operators, casts, copies.
        host: What the host adds to that.
        communication: What nothing hides: tensor, context, expert, pipeline and data parallel.
        bubble: Idle time of the pipeline.
        update: The optimizer, and what is fixed.
    """

    products: Number
    memory: Number
    host: Number
    communication: Number
    bubble: Number
    update: Number

    @property
    def total(self) -> Number:
        """All of it."""
        kept = self.products + self.memory + self.host + self.communication
        return kept + self.bubble + self.update


_INNER, _COPIES = 4, 2
"""How often mixtures move the inner numbers of experts, and tokens to and from experts, in a pass.

Chosen by cross-validation over the public rows: once and six times are worse on every Blackwell
device (``layerdag accuracy --calibrate 10 --refit``).
"""


def step_demand(
    job: SymbolicJob, node: int, *, eager: bool = False, asynchronous: bool = False
) -> StepDemand:
    """Return what a training step asks for.

    Args:
        job: Shape, plan and step.
        node: Devices that share the fast link: of a node, or of a rack.
        eager: Whether element-wise operators are not compiled into one another.
        asynchronous: Whether products hide tensor-parallel sums piece by piece.

    Raises:
        ConfigError: If the step does not train, or the model reads images.
    """
    if not job.step.training or job.shape.image:
        raise ConfigError(
            f"{job.shape.name}: only training steps of models of text have a time in closed form; "
            "simulate others."
        )
    costs, plan, step = job.costs, job.plan, job.step
    stage = max(range(plan.pipeline), key=lambda s: (_layers(costs, s), -s))
    chunks = layers_of_chunks(costs.shape.layers, plan, stage)
    layers = [layer for chunk in chunks for layer in chunk]
    total = _Sum()
    for layer in layers:
        total.add_layer(costs.of_layer(layer), plan.recomputes(layer))
    mixtures = sum(bool(costs.of_layer(layer).shape.experts) for layer in layers)
    head = _Sum()
    head.add_product(costs, costs.logits, costs.head_tokens, 3)
    # In a pipeline the last stage has fewer layers or is waited for: half of the head counts.
    ends = 1.0 if plan.pipeline == 1 else 0.5
    dense = sum(costs.of_layer(layer).layer_dense for layer in layers)
    tables = costs.table if costs.shape.tied and plan.pipeline == 1 else 2 * costs.table
    dense += round(tables * ends)
    experts = sum(costs.of_layer(layer).layer_experts for layer in layers)
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
        moved_by_head=ends * 12 * costs.head_tokens * costs.logits.outputs,
        format=float(FORMATS.index(step.numbers.products)),
        dense_layers=float(len(layers) - mixtures),
        mixture_layers=float(mixtures),
        tensor_bytes=total.tensor_bytes,
        context_bytes=total.context_bytes,
        expert_bytes=total.expert_bytes,
        passed_bytes=2.0 * plan.virtual_stages * costs.passed * (plan.pipeline > 1),
        weight_bytes=float(dense * step.numbers.weights),
        expert_weight_bytes=float(experts * step.numbers.weights),
        replicas=float(plan.replicas),
        expert_replicas=float(plan.expert_replicas),
        tensor=float(plan.tensor),
        context=float(plan.context),
        expert=float(plan.expert),
        zero=float(plan.zero),
        parameters=float(shared + experts // expert_sharers),
        micro_batches=float(step.micro_batches),
        stages=float(plan.pipeline),
        bubble=_bubble(job),
        devices=float(plan.ranks),
        node=float(node),
        eager=float(eager),
        asynchronous=float(asynchronous),
    )


def _layers(costs: Costs, stage: int) -> int:
    return sum(map(len, layers_of_chunks(costs.shape.layers, costs.plan, stage)))


def _bubble(job: SymbolicJob) -> float:
    """Return (p - 1) / (m v), a third of it where gradients of weights fill the bubble."""
    plan = job.plan
    idle = (plan.pipeline - 1) / (job.step.micro_batches * plan.virtual_stages)
    return idle / 3 if plan.splits_backward else idle


class _Sum:
    def __init__(self) -> None:
        self.operations = self.outputs = self.attention = 0.0
        self.moved = self.moved_by_experts = 0.0
        self.tensor_bytes = self.context_bytes = self.expert_bytes = 0.0
        self._cast = self._cast_weights = 0.0

    def casts(self, micro_batches: int) -> float:
        """Return the numbers cast for a micro-batch; weights are cast once a step."""
        return self._cast + self._cast_weights / micro_batches

    def add_product(self, costs: Costs, layer: Linear, tokens: float, passes: int) -> None:
        """Add a product of ``passes`` passes: forward, both gradients, forward once more."""
        matrix = float(layer.inputs * layer.outputs)
        self.operations += passes * costs.linear(layer, 1)[0] * tokens
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
        for layer, count in self._products(costs):
            self.add_product(costs, layer, count, passes)
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

    @staticmethod
    def _products(costs: Costs) -> list[tuple[Linear, float]]:
        shape, tokens, latent = costs.shape, costs.tokens, costs.latent
        if latent:
            found = [(latent.compress, tokens), (latent.q_up, tokens), (latent.kv_up, tokens)]
        else:
            found = [(costs.qkv, tokens)]
        found.append((costs.out, tokens))
        reached = costs.routed if shape.experts else tokens
        found += [(costs.up, reached), (costs.down, reached)]
        if shape.shared_experts:
            found += [(costs.shared_up, tokens), (costs.shared_down, tokens)]
        return [(layer, float(count)) for layer, count in found]


def stacked(parts: list[StepDemand]) -> StepDemand:
    """Return the demands of many steps as one of arrays."""
    return StepDemand(
        **{f.name: np.array([getattr(part, f.name) for part in parts]) for f in fields(StepDemand)}
    )


def stacked_sheets(sheets: list[DataSheet]) -> DataSheet:
    """Return the sheets of many steps as one of arrays."""
    names = [f.name for f in fields(DataSheet) if f.name not in ("name", "generation")]
    numbers: dict[str, Any] = {
        name: np.array([getattr(sheet, name) for sheet in sheets]) for name in names
    }
    return DataSheet(name="", generation="", **numbers)


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
    weights = _gathers(d, s, inside, outside, each)
    passing = s.passing_exposed * d.passed_bytes / outside
    busy = d.micro_batches * (each + passing)
    sums = _sums(d, s, inside, outside, each)
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


def _of_weights(d: StepDemand, inside: Number, outside: Number) -> tuple[Number, Number]:
    """Return the time of one gather of the dense weights, and of the experts.

    All ranks of a group in a node bring their share of the network (rings over all of its ports).
    """
    together = np.clip(d.node / d.tensor, 1, d.replicas)
    rate = np.where(d.tensor * d.replicas <= d.node, inside, np.minimum(together * outside, inside))
    dense = d.weight_bytes * (d.replicas - 1) / d.replicas / rate
    together = np.clip(d.node / d.expert, 1, d.expert_replicas)
    within = d.expert * d.expert_replicas <= d.node
    rate = np.where(within, inside, np.minimum(together * outside, inside))
    experts = d.expert_weight_bytes * (d.expert_replicas - 1) / d.expert_replicas / rate
    return dense, experts


def _gathers(
    d: StepDemand, s: StepEfficiency, inside: Number, outside: Number, each: Number
) -> Number:
    """Return what ZeRO 3 exposes in a micro-batch: two gathers and a sum, behind the layers."""
    dense, experts = _of_weights(d, inside, outside)
    moved = 3 * (dense + experts)
    exposed = np.maximum(s.data_exposed * moved, moved - 0.9 * each)
    return np.where(d.zero == 3, exposed, 0.0)


def _sums(
    d: StepDemand, s: StepEfficiency, inside: Number, outside: Number, each: Number
) -> Number:
    """Return what sums of gradients expose in a step, where parameters are not shared."""
    dense, experts = _of_weights(d, inside, outside)
    once = 3 * (dense + experts)  # gradients in 32 bits, updated weights in 16
    once = np.maximum(s.data_exposed * once, once - 0.8 * each)
    each_time = s.data_exposed * (d.micro_batches + 1) * (dense + experts)
    return np.select([d.zero == 3, d.zero == 2], [0.0 * dense, each_time], once)
