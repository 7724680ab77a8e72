"""FLOPs, bytes and memory of a rank of a transformer step, and sizes of its kernels.

Names of sizes are those of imported traces (``layerdag.traces.pytorch.kernel_shapes``): ``m, n, k,
batch`` of products, ``batch, heads, kv_heads, sequence, kv_sequence, head_dim`` of attention.
Products of experts state ``experts``, those of all ranks. Steps of inference add what kernels of
serving engines are measured by: attention the ``past`` tokens of its cache and its ``window``,
products of experts ``experts_per_token, hidden`` and ``ffn``, the inner width of an expert here.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from layerdag.plan import Plan, Step
from layerdag.workloads.transformer.schedule import layers_held, layers_of_chunks, stage_tasks
from layerdag.workloads.transformer.shapes import TIME_FREQUENCIES, ModelShape

Cost = tuple[int, int]
"""Operations, and bytes read and written."""

Gradient = Literal["", "input", "weight"]
"""The output of a linear layer (""), or the gradient that a product computes."""

ELEMENTWISE = 5
"""Operations of norms, activations and the like for each number; a convention."""

ADAM = 12
"""Operations of Adam for each parameter; a convention."""


@dataclass(frozen=True)
class Linear:
    """A linear layer as one rank computes it for a micro-batch."""

    inputs: int  # columns of its input here
    outputs: int  # columns of its output here
    tokens: int
    copies: int = 1  # how many of them (experts of this rank) share the tokens evenly
    experts: int = 0  # experts of all ranks, of which it is one; 0 for a dense layer

    @property
    def matrix(self) -> int:
        """Weights of one copy here, without biases."""
        return self.inputs * self.outputs


@dataclass(frozen=True)
class Costs:
    """Costs of a model under a plan on one rank."""

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
    def products(self) -> dict[str, Linear]:
        """The linear layers of a layer, and of what is before and after all layers, by name.

        Compressing layers of latent attention, routers and the embedding of patches are the same on
        all tensor ranks; the vocabulary is padded to a multiple of these.
        """
        shape, tensor, tokens, hidden = self.shape, self.plan.tensor, self.tokens, self.shape.hidden
        found = {}
        if shape.modulations:
            width = shape.modulations * hidden // tensor
            found["modulation"] = Linear(hidden, width, self.sequences)
            found["modulation.head"] = Linear(hidden, width // 3, self.sequences)
        if latent := shape.latent:
            heads = shape.heads // tensor
            found["compress"] = Linear(hidden, latent.compressed_width, self.own_tokens)
            found["q_up"] = Linear(latent.query_rank or hidden, heads * latent.key_width, tokens)
            found["kv_up"] = Linear(latent.kv_rank, heads * latent.expanded_width, tokens)
        else:
            width = shape.query_width + 2 * shape.kv_width
            found["qkv"] = Linear(hidden, width // tensor, tokens)
        found["out"] = Linear(shape.output_width // tensor, hidden, tokens)
        up, down = shape.up_width, shape.feed_forward
        if shape.experts:
            found["router"] = Linear(hidden, shape.experts, self.own_tokens)
            sharers = self.plan.expert_sharers
            spread = (self.routed, self._experts, shape.experts)
            found["up"] = Linear(hidden, up // sharers, *spread)
            found["down"] = Linear(down // sharers, hidden, *spread)
        else:
            found["up"] = Linear(hidden, up // tensor, tokens)
            found["down"] = Linear(down // tensor, hidden, tokens)
        if shape.shared_experts:  # one block
            found["shared_up"] = Linear(hidden, shape.shared_experts * up // tensor, tokens)
            found["shared_down"] = Linear(shape.shared_experts * down // tensor, hidden, tokens)
        if image := shape.image:
            patches = self.own_tokens * image.patches // image.tokens
            found["patches"] = Linear(image.patch_numbers, hidden, patches)
        found["logits"] = Linear(hidden, -(-shape.vocabulary // tensor), self.head_tokens)
        return found

    @property
    def _experts(self) -> int:
        return max(self.shape.experts // self.plan.expert, 1)

    def product(self, layer: Linear, gradient: Gradient = "", *, low: bool = False) -> Cost:
        """Two operations for each multiply-accumulate.

        The gradient of the weight is added to what earlier micro-batches left; ``low`` means that
        operands are cast to the format of the layers' products.
        """
        numbers = self.step.numbers
        read, written = (numbers.operand, self.number) if low else (self.number,) * 2
        weight = 2 * numbers.gradients if gradient == "weight" else read
        moved = layer.tokens * (layer.inputs * read + layer.outputs * written)
        moved = int(moved + layer.copies * layer.matrix * weight)
        return 2 * layer.tokens * layer.matrix, moved

    def product_sizes(self, layer: Linear, gradient: Gradient = "") -> dict[str, int]:
        """Return the sizes that the kernel of a product is called with."""
        each = -(-layer.tokens // layer.copies)
        m, n, k = {
            "": (each, layer.outputs, layer.inputs),
            "input": (each, layer.inputs, layer.outputs),
            "weight": (layer.inputs, layer.outputs, each),
        }[gradient]
        sizes = {"m": m, "n": n, "k": k, "batch": layer.copies}
        if layer.experts:
            sizes["experts"] = layer.experts
            if not self.step.training:
                sizes["experts_per_token"] = self.shape.experts_per_token
                sizes |= {"hidden": self.shape.hidden, "ffn": self.products["down"].inputs}
        return sizes

    def condition(self) -> Cost:
        """Embedding of time step and label: a network of two layers, and a look-up."""
        operations, moved = zip(*map(self.product, self._condition), strict=True)
        return sum(operations), sum(moved)

    def condition_back(self) -> Cost:
        """Gradients of both layers' weights, and of the second one's input."""
        first, second = self._condition
        made = [self.product(first, "weight"), self.product(second, "weight")]
        operations, moved = zip(*made, self.product(second, "input"), strict=True)
        return sum(operations), sum(moved)

    @property
    def _condition(self) -> tuple[Linear, Linear]:
        hidden, rows = self.shape.hidden, self.sequences
        return Linear(TIME_FREQUENCIES, hidden, rows), Linear(hidden, hidden, rows)

    # ---- attention ----

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

    def attention_sizes(self) -> dict[str, int]:
        """Return the sizes that the attention core of a rank is called with."""
        shape, tensor, decode = self.shape, self.plan.tensor, self.step.phase == "decode"
        sizes = {
            "batch": self.sequences,
            "heads": shape.heads // tensor,
            "kv_heads": max(shape.key_heads // tensor, 1),
            "sequence": self.tokens // self.sequences,
            "kv_sequence": self.step.sequence + decode,
            "head_dim": shape.head_width,
        }
        if self.step.phase in ("prefill", "decode") and not shape.latent:
            sizes["past"] = self.step.sequence if decode else 0
            sizes["window"] = shape.window
        return sizes

    def latent_bytes(self, tokens: int) -> int:
        """Return the bytes of the compressed queries, keys and values of some tokens."""
        latent = self.shape.latent
        return tokens * latent.compressed_width * self.number if latent else 0

    def through_latent(self, kind: Literal["key", "value"]) -> Cost:
        """Decode: queries times what would make keys, or weighted sums times what makes values."""
        latent, heads = self.shape.latent, self.shape.heads // self.plan.tensor
        assert latent
        width = latent.nope_width if kind == "key" else latent.value_width
        matrices = heads * width * latent.kv_rank
        moved = self.tokens * heads * (width + latent.kv_rank) + matrices
        return 2 * self.tokens * matrices, moved * self.number

    def latent_attention(self) -> Cost:
        """Decode: scores of latent queries and the weighted sum of latent vectors of the cache."""
        latent, heads = self.shape.latent, self.shape.heads // self.plan.tensor
        assert latent
        span = self.step.sequence + 1
        width = latent.cached_width + latent.kv_rank
        moved = self.tokens * heads * width + self.sequences * span * latent.cached_width
        if self.plan.attention == "unfused":
            moved += 4 * self.tokens * span * heads  # scores: written and read, twice
        return 2 * self.tokens * span * heads * width, moved * self.number

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
        shape, tensor, hidden = self.shape, self.plan.tensor, self.shape.hidden
        of_heads = ("qkv", "q_up", "kv_up", "out")
        count = sum(self.products[name].matrix for name in of_heads if name in self.products)
        count += self.products["qkv"].outputs if shape.biases != "none" else 0
        count += hidden if shape.biases in ("attention", "all") else 0
        count += 2 * shape.head_width if shape.qk_norm else 0
        count += shape.modulations * hidden // tensor * (hidden + 1)
        blocks = shape.shared_experts if shape.experts else 1
        return count + self.layer_shared + blocks * self._feed_forward(tensor)

    @cached_property
    def layer_shared(self) -> int:
        """Parameters of one layer that all tensor ranks hold and apply to tokens of their own."""
        shape = self.shape
        count = 2 * shape.norm_parameters + shape.router_parameters
        return count + (shape.latent.shared_parameters(shape.hidden) if shape.latent else 0)

    @cached_property
    def layer_experts(self) -> int:
        """Parameters of the experts of one layer here."""
        each = self._feed_forward(self.plan.expert_sharers)
        return self._experts * each if self.shape.experts else 0

    def _feed_forward(self, sharers: int) -> int:
        shape = self.shape
        count = shape.hidden * (shape.up_width + shape.feed_forward) // sharers
        return count + (shape.up_width // sharers + shape.hidden if shape.biases == "all" else 0)

    @cached_property
    def table(self) -> int:
        """Parameters of the token embedding here; of the output layer as well."""
        return self.products["logits"].matrix

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
            table += self.products["logits"].outputs
        if self.shape.modulations:
            table += self.products["modulation.head"].outputs * (self.shape.hidden + 1)
        return table + self.shape.norm_parameters


@dataclass(frozen=True)
class RankMemory:
    """Peak memory of one rank in bytes, by what it holds."""

    weights: int
    gathered: int  # weights of two layers, gathered for the time of their use (ZeRO 3)
    gradients: int
    optimizer: int
    activations: int
    kv_cache: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(asdict(self).values())

    def row(self, **place: int | str) -> dict[str, Any]:
        """Return the figures for summaries, behind those that say whose they are."""
        return {**place, "total": self.total, **asdict(self)}


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
        kv_cache=_cache(costs, stage),
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
    kept += costs.latent_bytes(costs.own_tokens)
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
    shape, plan, number = costs.shape, costs.plan, costs.number
    own = costs.own_tokens * shape.hidden
    chunks = layers_of_chunks(shape.layers, plan, stage)
    kept = kept_by_chunks(costs, stage)
    kept[0] += own if shape.dropout and stage == 0 else 0
    if stage == plan.pipeline - 1:  # inputs of the last norm and of the output layer, logits
        kept[-1] += 2 * own * number + 4 * costs.head_tokens * costs.products["logits"].outputs
    most = most_kept(costs, stage, kept)
    again = (layer_activations(costs.of_layer(layers[0])) for layers in chunks if layers)
    return most + (max(again, default=0) if plan.recompute in ("alternate", "full") else 0)


def kept_by_chunks(costs: Costs, stage: int, part: float = 1.0) -> list[int]:
    """Return the bytes that the chunks of a stage keep of a micro-batch for its backward pass.

    Layers keep ``part`` of their activations, or their input where these are computed again.
    """
    plan, at = costs.plan, costs.of_layer
    again = costs.own_stream
    return [
        sum(
            again if plan.recomputes(layer) else round(part * layer_activations(at(layer)))
            for layer in layers
        )
        for layers in layers_of_chunks(costs.shape.layers, plan, stage)
    ]


def most_kept(costs: Costs, stage: int, kept: Sequence[int]) -> int:
    """Return the peak of what forward passes keep, walking along the schedule of a stage.

    A pass through a chunk keeps its part until the gradients of its weights are there.
    """
    last = "weights" if costs.plan.splits_backward else "backward"
    held = most = 0
    for task in stage_tasks(costs.plan, stage, costs.step.micro_batches):
        held += kept[task.chunk] * ((task.kind == "forward") - (task.kind == last))
        most = max(most, held)
    return most


def _passing(costs: Costs) -> int:
    shape, tensor = costs.shape, costs.plan.tensor
    dense = shape.dense
    inner = costs.tokens * (dense.up_width + dense.feed_forward) // tensor
    if shape.experts:
        routed = expert_width(costs)
        inner = max(inner, routed) if shape.dense_layers else routed
    return (2 * costs.tokens * shape.hidden + inner) * costs.number


def _cache(costs: Costs, stage: int) -> int:
    shape, plan, step = costs.shape, costs.plan, costs.step
    if step.phase not in ("prefill", "decode"):
        return 0
    layers = layers_held(shape.layers, plan, stage)
    grown = step.tokens if step.phase == "decode" else 0
    tokens = step.batch // plan.data * (step.sequence // plan.context + grown)
    sharers = 1 if shape.latent else plan.tensor  # all heads share what is compressed
    return layers * tokens * shape.cached_width // sharers * costs.number
