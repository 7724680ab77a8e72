"""FLOPs, bytes and memory of a rank of a transformer step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

from layerdag.plan import Plan, Step
from layerdag.workloads.transformer.schedule import layers_held, layers_of_chunks, stage_tasks
from layerdag.workloads.transformer.shapes import TIME_FREQUENCIES, Latent, ModelShape

Cost = tuple[int, int]
"""Operations, and bytes read and written."""


@dataclass(frozen=True)
class Linear:
    """A linear layer as one rank holds it.

    Attributes:
        inputs: Columns of its input here.
        outputs: Columns of its output here.
        copies: How many of them (experts of this rank) share the tokens.
    """

    inputs: int
    outputs: int
    copies: int = 1


@final
@dataclass(frozen=True)
class LatentCosts:
    """Costs of what other attention does not have.

    Attributes:
        latent: Widths.
        costs: Costs of the rank.
    """

    latent: Latent
    costs: "Costs"

    @property
    def heads(self) -> int:
        """Heads of this rank."""
        return self.costs.shape.heads // self.costs.plan.tensor

    @property
    def compresses_queries(self) -> bool:
        """Whether queries are made of a compressed vector."""
        return self.latent.query_rank > 0

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch that this rank's tensor group computes."""
        return self.costs.tokens

    @property
    def own_tokens(self) -> int:
        """Tokens that this rank compresses."""
        return self.costs.own_tokens

    @property
    def normed_width(self) -> int:
        """Width of what is normalized after compression."""
        return self.latent.norm_parameters

    @property
    def own_bytes(self) -> int:
        """Bytes of what this rank compresses."""
        return self.own_tokens * self.latent.compressed_width * self.costs.number

    @property
    def whole_bytes(self) -> int:
        """Bytes of that of all tensor ranks."""
        return self.tokens * self.latent.compressed_width * self.costs.number

    # ---- linear layers ----

    @property
    def compress(self) -> Linear:
        """Compressed queries, keys and values and rotary keys, the same on all tensor ranks."""
        return Linear(self.costs.shape.hidden, self.latent.compressed_width)

    @property
    def q_up(self) -> Linear:
        """Queries of this rank's heads."""
        inputs = self.latent.query_rank or self.costs.shape.hidden
        return Linear(inputs, self.heads * self.latent.key_width)

    @property
    def kv_up(self) -> Linear:
        """Keys and values of this rank's heads."""
        return Linear(self.latent.kv_rank, self.heads * self.latent.expanded_width)

    # ---- decode ----

    def into_latent(self) -> Cost:
        """Queries multiplied with what would make keys."""
        return self._of_each_head(self.latent.nope_width)

    def out_of_latent(self) -> Cost:
        """Weighted sums multiplied with what makes values."""
        return self._of_each_head(self.latent.value_width)

    def _of_each_head(self, width: int) -> Cost:
        rank, number = self.latent.kv_rank, self.costs.number
        matrices = self.heads * width * rank
        moved = self.tokens * self.heads * (width + rank) + matrices
        return 2 * self.tokens * matrices, moved * number

    def attention(self) -> Cost:
        """Scores of latent queries and the weighted sum of latent vectors; the cache is read."""
        span = self.costs.step.sequence + 1
        scored, summed = self.latent.cached_width, self.latent.kv_rank
        operations = 2 * self.tokens * span * self.heads * (scored + summed)
        moved = self.tokens * self.heads * (scored + summed)
        moved += self.costs.sequences * span * scored
        if self.costs.plan.attention == "unfused":
            moved += 4 * self.tokens * span * self.heads  # scores: written and read, twice
        return operations, moved * self.costs.number


ELEMENTWISE = 5
"""Operations of norms, activations and the like for each number; a convention."""

ADAM = 12
"""Operations of Adam for each parameter; a convention."""


@dataclass(frozen=True)
class Costs:
    """Costs on one rank.

    Attributes:
        shape: The model.
        plan: How it is split.
        step: What is done.
    """

    shape: ModelShape
    plan: Plan
    step: Step

    def of_layer(self, layer: int) -> "Costs":
        """Return the costs of a layer, counted from 0: of a dense one before all mixtures."""
        return self._dense if layer < self.shape.dense_layers else self

    @cached_property
    def _dense(self) -> "Costs":
        return replace(self, shape=self.shape.dense)

    # ---- tokens of a micro-batch on this rank ----

    @cached_property
    def sequences(self) -> int:
        """Sequences of a micro-batch."""
        return self.step.batch // (self.plan.data * self.step.micro_batches)

    @cached_property
    def tokens(self) -> int:
        """Tokens of a micro-batch that this rank's tensor group computes."""
        length = 1 if self.step.phase == "decode" else self.step.sequence // self.plan.context
        return self.sequences * length

    @cached_property
    def own_tokens(self) -> int:
        """Tokens of the residual stream that this rank holds."""
        return self.tokens // (self.plan.tensor if self.plan.sequence_parallel else 1)

    @cached_property
    def routed(self) -> int:
        """Token copies that reach the experts of this rank, if the router balances them."""
        each = self.plan.tensor // self.plan.expert_sharers
        return self.tokens // each * self.shape.experts_per_token

    @cached_property
    def own_patches(self) -> int:
        """Patches of a micro-batch that this rank embeds."""
        image = self.shape.image
        return self.own_tokens * image.patches // image.tokens if image else 0

    @cached_property
    def head_tokens(self) -> int:
        """Tokens of which the output layer is computed: in inference the last of each sequence."""
        image = self.shape.image
        every = not image.class_token if image else self.step.training
        return self.tokens if every else self.sequences

    @property
    def number(self) -> int:
        """Bytes of an activation."""
        return self.step.numbers.weights

    # ---- linear layers ----

    @cached_property
    def qkv(self) -> Linear:
        """Queries, keys and values."""
        shape = self.shape
        return Linear(shape.hidden, (shape.query_width + 2 * shape.kv_width) // self.plan.tensor)

    @cached_property
    def out(self) -> Linear:
        """Output of attention."""
        return Linear(self.shape.output_width // self.plan.tensor, self.shape.hidden)

    @cached_property
    def up(self) -> Linear:
        """First linear layer of the feed-forward block, gate included."""
        return Linear(self.shape.hidden, self.shape.up_width // self._sharers, self._experts)

    @cached_property
    def down(self) -> Linear:
        """Second linear layer of the feed-forward block."""
        return Linear(self.shape.feed_forward // self._sharers, self.shape.hidden, self._experts)

    @cached_property
    def shared_up(self) -> Linear:
        """First linear layer of the shared experts, which are one block."""
        width = self.shape.shared_experts * self.shape.up_width
        return Linear(self.shape.hidden, width // self.plan.tensor)

    @cached_property
    def shared_down(self) -> Linear:
        """Second linear layer of the shared experts."""
        width = self.shape.shared_experts * self.shape.feed_forward
        return Linear(width // self.plan.tensor, self.shape.hidden)

    @cached_property
    def router(self) -> Linear:
        """Router of a mixture, the same on all tensor ranks."""
        return Linear(self.shape.hidden, self.shape.experts)

    @cached_property
    def logits(self) -> Linear:
        """Output layer; the vocabulary is padded to a multiple of the tensor ranks."""
        return Linear(self.shape.hidden, -(-self.shape.vocabulary // self.plan.tensor))

    @cached_property
    def modulation(self) -> Linear:
        """Scales, shifts and gates of a layer, from time step and label."""
        shape = self.shape
        return Linear(shape.hidden, shape.modulations * shape.hidden // self.plan.tensor)

    @cached_property
    def last_modulation(self) -> Linear:
        """Scale and shift of the last norm."""
        return Linear(self.shape.hidden, self.modulation.outputs // 3)

    @cached_property
    def patches(self) -> Linear:
        """Embedding of patches, the same on all tensor ranks."""
        image = self.shape.image
        return Linear(image.patch_numbers if image else 0, self.shape.hidden)

    @property
    def _sharers(self) -> int:
        return self.plan.expert_sharers if self.shape.experts else self.plan.tensor

    @property
    def _experts(self) -> int:
        return max(self.shape.experts // self.plan.expert, 1)

    def linear(self, layer: Linear, tokens: int, *, low: bool = False) -> Cost:
        """Forward: two operations for each multiply-accumulate; ``low``: of cast operands."""
        return self._product(layer, tokens, self._operand(low), low)

    def linear_dx(self, layer: Linear, tokens: int, *, low: bool = False) -> Cost:
        """Gradient of the input."""
        return self._product(layer, tokens, self._operand(low), low)

    def linear_dw(self, layer: Linear, tokens: int, *, low: bool = False) -> Cost:
        """Gradient of the weight, added to what earlier micro-batches left."""
        return self._product(layer, tokens, 2 * self.step.numbers.gradients, low)

    def _operand(self, low: bool) -> int | float:
        return self.step.numbers.operand if low else self.step.numbers.weights

    def _product(self, layer: Linear, tokens: int, weight_bytes: int | float, low: bool) -> Cost:
        matrix = layer.inputs * layer.outputs
        read, written = (self.step.numbers.operand, self.number) if low else (self.number,) * 2
        moved = tokens * (layer.inputs * read + layer.outputs * written)
        return 2 * tokens * matrix, int(moved + layer.copies * matrix * weight_bytes)

    # ---- attention ----

    @cached_property
    def latent(self) -> LatentCosts | None:
        """Costs of latent attention, where the model has it."""
        return LatentCosts(self.shape.latent, self) if self.shape.latent else None

    @property
    def absorbed(self) -> bool:
        """Whether attention is computed in the space of compressed keys and values."""
        return self.shape.latent is not None and self.step.phase == "decode"

    def attention(self) -> Cost:
        """Scores and weighted sum: two products with the whole (cached) sequence."""
        shape, tensor = self.shape, self.plan.tensor
        span = self.step.sequence + (self.step.phase == "decode")
        products = shape.query_width + shape.output_width
        operations = 2 * self.tokens * span * products // tensor
        if 0 < shape.window < span:  # a triangle (the square, counted full) and a band
            band = shape.window * (1 if self.step.causal == "full" else 2)
            operations = operations * (span + min(band, span)) // (2 * span)
        if self.step.causal == "half" and self.step.phase != "decode":
            operations //= 2
        moved = self.tokens * products + self.sequences * span * (
            shape.kv_width + shape.value_width
        )
        if self.plan.attention == "unfused":
            moved += 4 * self.tokens * span * shape.heads  # scores: written and read, twice
        return operations, moved * self.number // tensor

    def attention_back(self) -> Cost:
        """Gradients of queries, keys, values: twice the products of the forward pass."""
        operations, moved = self.attention()
        return 2 * operations, 2 * moved

    # ---- what is done for each number ----

    def elementwise(self, tokens: int, width: int, tensors: int = 2) -> Cost:
        """An operator that reads and writes ``tensors`` tensors of (tokens, width)."""
        count = tokens * width
        return ELEMENTWISE * count, tensors * count * self.number

    def embedding(self) -> Cost:
        """Look-up: one addition for each number."""
        count = self.tokens * self.shape.hidden
        return count, 2 * count * self.number

    def adam(self, parameters: int) -> Cost:
        """Update of this rank's shard: gradients and states read, states and weights written."""
        numbers = self.step.numbers
        moved = numbers.gradients + 2 * numbers.optimizer + numbers.weights
        return ADAM * parameters, moved * parameters

    # ---- messages ----

    @property
    def stream(self) -> int:
        """Bytes of the residual stream of all tensor ranks: what an all-reduce sums."""
        return self.tokens * self.shape.hidden * self.number

    @property
    def own_stream(self) -> int:
        """Bytes of the residual stream that this rank holds; what the pipeline passes on."""
        return self.own_tokens * self.shape.hidden * self.number

    @property
    def condition_bytes(self) -> int:
        """Bytes of the embedded time step and label of all sequences; 0 without."""
        adaptive = self.shape.norm == "adaptive"
        return self.sequences * self.shape.hidden * self.number * adaptive

    @property
    def passed(self) -> int:
        """Bytes that a stage passes on to the next."""
        return self.own_stream + self.condition_bytes

    @property
    def routed_stream(self) -> int:
        """Bytes of the token copies that this rank sends to experts."""
        return self.own_stream * self.shape.experts_per_token

    @property
    def keys_and_values(self) -> int:
        """Bytes of the keys and values of this rank's tokens."""
        width = self.shape.kv_width + self.shape.value_width
        return self.tokens * width // self.plan.tensor * self.number

    # ---- parameters of this rank ----

    @cached_property
    def layer_dense(self) -> int:
        """Parameters of one layer here, without experts."""
        shape, tensor = self.shape, self.plan.tensor
        count = self.out.inputs * self.out.outputs + self._projections
        count += shape.hidden if shape.biases in ("attention", "all") else 0
        count += 2 * shape.head_width if shape.qk_norm else 0
        count += shape.router_parameters + 2 * shape.norm_parameters
        count += self.modulation.outputs * (shape.hidden + 1)
        if not shape.experts:
            return count + self._feed_forward(tensor)
        return count + shape.shared_experts * self._feed_forward(tensor)

    @cached_property
    def layer_shared(self) -> int:
        """Parameters of one layer that all tensor ranks hold and apply to tokens of their own."""
        shape = self.shape
        count = 2 * shape.norm_parameters + shape.router_parameters
        return count + (shape.latent.shared_parameters(shape.hidden) if shape.latent else 0)

    @property
    def _projections(self) -> int:
        shape = self.shape
        if shape.latent:
            here = shape.heads // self.plan.tensor
            count = shape.latent.expanding_parameters(shape.hidden, here)
            return count + shape.latent.shared_parameters(shape.hidden)
        count = self.qkv.inputs * self.qkv.outputs
        return count + (self.qkv.outputs if shape.biases != "none" else 0)

    @cached_property
    def layer_experts(self) -> int:
        """Parameters of the experts of one layer here."""
        return self._experts * self._feed_forward(self._sharers) if self.shape.experts else 0

    def _feed_forward(self, tensor: int) -> int:
        shape = self.shape
        count = shape.hidden * (shape.up_width + shape.feed_forward) // tensor
        return count + (shape.up_width // tensor + shape.hidden if shape.biases == "all" else 0)

    @cached_property
    def table(self) -> int:
        """Parameters of the token embedding here; of the output layer as well."""
        return self.logits.outputs * self.shape.hidden

    @cached_property
    def entry(self) -> int:
        """Parameters before the first layer; all but the token table are on all tensor ranks."""
        if self.shape.image:
            return self.shape.embedding_parameters
        return self.table + self.shape.positions * self.shape.hidden

    def exit(self, shared: bool) -> int:
        """Parameters behind the last layer; ``shared``: a tied token table is here already."""
        table = 0 if self.shape.tied and shared else self.table
        if self.shape.image:
            table += self.logits.outputs + self.last_modulation.outputs * (self.shape.hidden + 1)
        return table + self.shape.norm_parameters


def condition(costs: Costs) -> Cost:
    """Return the cost of the embedding: a network of two layers, and a look-up."""
    return _time(costs, costs.linear)


def condition_backward(costs: Costs) -> Cost:
    """Return that of the gradients of both layers' weights, and of the second one's input."""
    operations, moved = _time(costs, costs.linear_dw)
    second = Linear(costs.shape.hidden, costs.shape.hidden)
    more, further = costs.linear_dx(second, costs.sequences)
    return operations + more, moved + further


def _time(costs: Costs, product: Callable[[Linear, int], Cost]) -> Cost:
    hidden = costs.shape.hidden
    layers = (Linear(TIME_FREQUENCIES, hidden), Linear(hidden, hidden))
    operations, moved = zip(*(product(layer, costs.sequences) for layer in layers), strict=True)
    return sum(operations), sum(moved)


@dataclass(frozen=True)
class RankMemory:
    """Peak memory of one rank in bytes, by what it holds.

    Attributes:
        weights: Weights that the rank keeps.
        gathered: Weights of two layers, gathered for the time of their use (ZeRO 3).
        gradients: Gradients that the rank keeps.
        optimizer: States of the optimizer.
        activations: What forward passes keep for backward passes, at its peak.
        kv_cache: Keys and values of all sequences (inference).
    """

    weights: int
    gathered: int
    gradients: int
    optimizer: int
    activations: int
    kv_cache: int

    @property
    def total(self) -> int:
        """All of it."""
        kept = self.weights + self.gathered + self.gradients + self.optimizer
        return kept + self.activations + self.kv_cache


def rank_memory(costs: Costs, stage: int) -> RankMemory:
    """Return the memory of the ranks of a pipeline stage.

    States follow the ZeRO paper (Rajbhandari et al. 2020, 16 bytes a parameter in mixed precision),
    activations Korthikanti et al. 2022, extended to grouped heads, gates, experts and contexts;
    the number of micro-batches in flight is counted along the schedule.
    """
    plan, numbers, training = costs.plan, costs.step.numbers, costs.step.training
    dense, experts = rank_parameters(costs, stage)

    def shared(from_stage: int) -> int:
        if plan.zero < from_stage:
            return dense + experts
        return -(-dense // plan.replicas) + -(-experts // plan.expert_replicas)

    largest = costs.layer_dense + costs.layer_experts
    largest = max(largest, costs.of_layer(0).layer_dense)
    return RankMemory(
        weights=shared(3) * numbers.weights,
        gathered=2 * largest * numbers.weights if plan.zero == 3 and plan.replicas > 1 else 0,
        gradients=shared(2) * numbers.gradients if training else 0,
        optimizer=shared(1) * numbers.optimizer if training else 0,
        activations=_kept(costs, stage) if training else _passing(costs),
        kv_cache=0 if costs.step.phase in ("training", "inference") else _cache(costs, stage),
    )


def rank_parameters(costs: Costs, stage: int) -> tuple[int, int]:
    """Return the dense parameters and those of experts that a rank of a stage computes with."""
    shape, plan = costs.shape, costs.plan
    chunks = layers_of_chunks(shape.layers, plan, stage)
    layers = [costs.of_layer(layer) for chunk in chunks for layer in chunk]
    first, last = stage == 0, stage == plan.pipeline - 1
    dense = sum(layer.layer_dense for layer in layers)
    if first:
        dense += costs.entry
    if last:
        dense += costs.exit(shared=first)
    return dense, sum(layer.layer_experts for layer in layers)


def layer_activations(costs: Costs) -> int:
    """Return the bytes that one layer keeps of one micro-batch for its backward pass.

    For a GPT with dropout these are sbh(10 + 24/t) bytes, sbh * 34/t with sequence parallelism, and
    5as^2b/t more where the scores are kept (s tokens, b sequences, h width, a heads, t tensor
    ranks): Korthikanti et al. 2022, equations 2 and 4.
    """
    shape, plan, number = costs.shape, costs.plan, costs.number
    own = costs.own_tokens * shape.hidden
    kept = 3 * own * number  # inputs of both norms and of the queries' layer
    kept += (2 * own) if shape.dropout else 0  # masks of a byte
    if shape.modulations:  # these, and what is multiplied with gates
        kept += (shape.modulations * costs.sequences * shape.hidden + 2 * own) * number
    queries = costs.tokens * (shape.query_width + shape.output_width) * number
    keys = costs.tokens * plan.context * (shape.kv_width + shape.value_width) * number
    kept += (queries + keys) // plan.tensor  # attention's inputs and its output
    kept += costs.latent.own_bytes if costs.latent else 0
    if plan.attention == "unfused" and plan.recompute == "none":
        scores = costs.tokens * costs.step.sequence * shape.heads // plan.tensor
        kept += scores * (2 * number + 1 if shape.dropout else number)
    if not shape.experts:
        inner = costs.tokens * (shape.up_width + shape.feed_forward) // plan.tensor
        return kept + own * number + inner * number
    inner = expert_width(costs)
    copies = own * shape.experts_per_token
    return kept + (own + 2 * copies + inner) * number


def expert_width(costs: Costs) -> int:
    """Return the numbers that a mixture's inner layers make of a micro-batch on this rank."""
    shape, plan = costs.shape, costs.plan
    width, shared = shape.up_width + shape.feed_forward, costs.tokens * shape.shared_experts
    return costs.routed * width // plan.expert_sharers + shared * width // plan.tensor


def _kept(costs: Costs, stage: int) -> int:
    """Return the peak of what forward passes keep, walking along the schedule.

    What a forward pass keeps is held until the gradients of weights are there.
    """
    shape, plan, number = costs.shape, costs.plan, costs.number
    own = costs.own_tokens * shape.hidden
    chunks = layers_of_chunks(shape.layers, plan, stage)
    kept = [
        sum(
            own * number if plan.recomputes(layer) else layer_activations(costs.of_layer(layer))
            for layer in layers
        )
        for layers in chunks
    ]
    kept[0] += own if shape.dropout and stage == 0 else 0
    if stage == plan.pipeline - 1:  # inputs of the last norm and of the output layer, logits
        kept[-1] += 2 * own * number + 4 * costs.head_tokens * costs.logits.outputs
    last = "weights" if plan.splits_backward else "backward"
    held = most = 0
    for task in stage_tasks(plan, stage, costs.step.micro_batches):
        held += kept[task.chunk] * ((task.kind == "forward") - (task.kind == last))
        most = max(most, held)
    again = (layer_activations(costs.of_layer(layers[0])) for layers in chunks if layers)
    return most + (max(again, default=0) if plan.recompute in ("alternate", "full") else 0)


def _passing(costs: Costs) -> int:
    shape, tensor = costs.shape, costs.plan.tensor
    inner = costs.tokens * (shape.up_width + shape.feed_forward) // tensor
    inner = expert_width(costs) if shape.experts else inner
    if shape.dense_layers:
        dense = shape.dense
        inner = max(inner, costs.tokens * (dense.up_width + dense.feed_forward) // tensor)
    return (2 * costs.tokens * shape.hidden + inner) * costs.number


def _cache(costs: Costs, stage: int) -> int:
    shape, plan, step = costs.shape, costs.plan, costs.step
    layers = layers_held(shape.layers, plan, stage)
    grown = step.tokens if step.phase == "decode" else 0
    tokens = step.batch // plan.data * (step.sequence // plan.context + grown)
    sharers = 1 if shape.latent else plan.tensor  # all heads share what is compressed
    return layers * tokens * shape.cached_width // sharers * costs.number
