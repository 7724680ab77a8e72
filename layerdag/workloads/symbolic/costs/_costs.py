"""Operations and bytes of every operator and message of one rank, for one micro-batch."""

from dataclasses import dataclass, replace
from functools import cached_property

from layerdag.workloads.symbolic.costs._latent_costs import LatentCosts
from layerdag.workloads.symbolic.costs._linear import Cost, Linear
from layerdag.workloads.symbolic.plans import Plan, Step
from layerdag.workloads.symbolic.shapes import ModelShape

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
        return Linear(self.shape.output_width // self.plan.tensor, self.shape.hidden)

    @cached_property
    def up(self) -> Linear:
        """First linear layer of the feed-forward block, gate included."""
        return Linear(self.shape.hidden, self.shape.up_width // self.plan.tensor, self._experts)

    @cached_property
    def down(self) -> Linear:
        """Second linear layer of the feed-forward block."""
        return Linear(self.shape.feed_forward // self.plan.tensor, self.shape.hidden, self._experts)

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
        count += shape.hidden if shape.biases == "all" else 0
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
        """Parameters here of what makes queries, keys and values."""
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
