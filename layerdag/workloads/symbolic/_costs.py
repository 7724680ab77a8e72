"""Operations and bytes of every operator and message of one rank, for one micro-batch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from layerdag.workloads.symbolic._plan import Plan, Step
from layerdag.workloads.symbolic._shape import TIME_FREQUENCIES, ModelShape

ELEMENTWISE = 5
"""Operations of norms, activations and the like for each number; a convention."""

ADAM = 12
"""Operations of Adam for each parameter; a convention."""

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
        return self.tokens * self.shape.experts_per_token

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
        return Linear(self.shape.query_width // self.plan.tensor, self.shape.hidden)

    @cached_property
    def up(self) -> Linear:
        """First linear layer of the feed-forward block, gate included."""
        return Linear(self.shape.hidden, self.shape.up_width // self.plan.tensor, self._experts)

    @cached_property
    def down(self) -> Linear:
        """Second linear layer of the feed-forward block."""
        return Linear(self.shape.feed_forward // self.plan.tensor, self.shape.hidden, self._experts)

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
    def _experts(self) -> int:
        return max(self.shape.experts // self.plan.expert, 1)

    def linear(self, layer: Linear, tokens: int) -> Cost:
        """Forward: two operations for each multiply-accumulate."""
        return self._product(layer, tokens, self.step.numbers.weights)

    def linear_dx(self, layer: Linear, tokens: int) -> Cost:
        """Gradient of the input."""
        return self._product(layer, tokens, self.step.numbers.weights)

    def linear_dw(self, layer: Linear, tokens: int) -> Cost:
        """Gradient of the weight, added to what earlier micro-batches left."""
        return self._product(layer, tokens, 2 * self.step.numbers.gradients)

    def _product(self, layer: Linear, tokens: int, weight_bytes: int) -> Cost:
        matrix = layer.inputs * layer.outputs
        moved = tokens * (layer.inputs + layer.outputs) * self.number
        return 2 * tokens * matrix, moved + layer.copies * matrix * weight_bytes

    # ---- attention ----

    def attention(self) -> Cost:
        """Scores and weighted sum: two products with the whole (cached) sequence."""
        shape, tensor = self.shape, self.plan.tensor
        span = self.step.sequence + (self.step.phase == "decode")
        operations = 4 * self.tokens * span * shape.query_width // tensor
        if self.step.causal == "half" and self.step.phase != "decode":
            operations //= 2
        moved = 2 * self.tokens * shape.query_width + 2 * self.sequences * span * shape.kv_width
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

    def condition(self) -> Cost:
        """Embedding of time step and label: a network of two layers, and a look-up."""
        return self._time(self.linear)

    def condition_back(self) -> Cost:
        """Gradients of the weights of both layers, and of the input of the second."""
        operations, moved = self._time(self.linear_dw)
        second = Linear(self.shape.hidden, self.shape.hidden)
        more, further = self.linear_dx(second, self.sequences)
        return operations + more, moved + further

    def _time(self, product: Callable[[Linear, int], Cost]) -> Cost:
        hidden = self.shape.hidden
        layers = (Linear(TIME_FREQUENCIES, hidden), Linear(hidden, hidden))
        operations, moved = zip(*(product(layer, self.sequences) for layer in layers), strict=True)
        return sum(operations), sum(moved)

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
        return 2 * self.tokens * self.shape.kv_width // self.plan.tensor * self.number

    # ---- parameters of this rank ----

    @cached_property
    def layer_dense(self) -> int:
        """Parameters of one layer here, without experts."""
        shape, tensor = self.shape, self.plan.tensor
        count = self.qkv.inputs * self.qkv.outputs + self.out.inputs * self.out.outputs
        count += self.qkv.outputs if shape.biases != "none" else 0
        count += shape.hidden if shape.biases == "all" else 0
        count += 2 * shape.head_width if shape.qk_norm else 0
        count += shape.router_parameters + 2 * shape.norm_parameters
        count += self.modulation.outputs * (shape.hidden + 1)
        return count + (0 if shape.experts else self._feed_forward(tensor))

    @cached_property
    def layer_experts(self) -> int:
        """Parameters of the experts of one layer here."""
        return self._experts * self._feed_forward(self.plan.tensor) if self.shape.experts else 0

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
