"""Write a transformer's trace: attention, feed-forward, whole layers.

What the layers of a transformer consist of: products, norms, sums and gathers of one rank.

Tensor parallelism is Megatron-LM's: the first linear layer of a block is split by columns, the
second by rows, so that each block needs one sum over the tensor ranks in the forward and one in the
backward pass (Shoeybi et al. 2019). With sequence parallelism each sum becomes a reduce-scatter
with an all-gather before the block, and the backward pass gathers the input once more, because only
a shard of it is kept (Korthikanti et al. 2022).

Multi-head latent attention of one rank (DeepSeek-AI 2024).

Compressing layers are the same on all tensor ranks and run on the tokens of a rank's own under
sequence parallelism, whose compressed queries, keys and values are gathered; expanding layers are
split by heads (as in Megatron-LM). Decode expands nothing: queries are multiplied into the latent
space and attend to the cache as it is, and the weighted sum is multiplied out of it, with the same
weights. The cache is not split over tensor ranks, because all heads share it.

Attention blocks of one rank: with keys and values of their own heads, or with latent ones.

Context parallelism gathers keys and values over the context ranks, as for Llama 3.

Feed-forward blocks of one rank: dense, or a mixture of experts (Lepikhin et al. 2020).

Shared experts, which every token passes, are one block beside the routed ones and split over the
tensor ranks as a dense one is; their output joins the sum of the routed ones (DeepSeek-AI 2024).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import final

from layerdag.errors import ConfigError
from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.builder import NodeAppender
from layerdag.traces.trace import OPERATOR, Attribute, NodeType, Trace, Wire
from layerdag.workloads.transformer.costs import ELEMENTWISE, Cost, Costs, LatentCosts, Linear
from layerdag.workloads.transformer.kernel_sizes import (
    NO_SIZES,
    attention_sizes,
    input_gradient_sizes,
    product_sizes,
    weight_gradient_sizes,
)
from layerdag.workloads.transformer.mesh import PEERS

Nodes = tuple[int, ...]
"""Numbers of the nodes that something waits for."""


_OPERATORS = {
    **dict.fromkeys(("norm1", "norm2", "norm_latent"), "norm"),
    "shared_act": "act",
    "embedding": "look_up",  # a group of ranks is called so: roles and operators must differ
}


def _operator(name: str) -> str:
    first = name.partition(".")[0]
    return _OPERATORS.get(first, first)


@final
class TraceBuilder:
    """Nodes in program order; a node's number is its priority.

    Communicator groups and peers are those of a class, not of a rank: ``pg_name`` holds the group's
    role ("tensor"), ``comm_src`` and ``comm_dst`` the place of the peer in ``PEERS`` or, behind
    these, the number of another rank that messages go to.

    What holds the communication slot of a rank (collectives and sends) is chained in program order,
    by control dependencies where data does not do it, and so is the first operator of a task to the
    last of the task before. All ranks write the same tasks in an order that agrees with one order
    of the whole job (``_schedule``), receives need no slot, sends wait for nobody: no cycle of
    waits can exist. The proof is that of ``layerdag.codec``.

    Args:
        dtype: Number format of all operators.
        source: For messages.

    Raises:
        ConfigError: By the methods below, if an operator takes more than 64 bits can state.
    """

    def __init__(self, dtype: str, source: str) -> None:
        self._columns = NodeAppender(source)
        self._source = source
        self._dtype = dtype
        self._done: list[int] = []  # last communication that is over when a node is ready
        self._last_communication: Nodes = ()
        self._last_compute: Nodes = ()
        self._before: Nodes = ()

    def begin_task(self) -> None:
        """Let what follows wait for the operators so far."""
        self._before = self._last_compute

    def compute(
        self,
        name: str,
        cost: Cost,
        after: Nodes,
        dtype: str = "",
        sizes: Mapping[str, int] = NO_SIZES,
    ) -> Nodes:
        """Add an operator of (operations, bytes read and written); return its number.

        ``dtype`` is its number format where it is not that of all operators, ``sizes`` what its
        kernel is called with (``layerdag.workloads.transformer.kernel_sizes``).
        """
        operations, moved = cost
        self._check(name, max(operations, moved))
        columns = self._columns
        columns.attribute(OPERATOR, Wire.STRING, columns.text(_operator(name)))
        if dtype:
            columns.attribute("dtype", Wire.STRING, columns.text(dtype))
        columns.attribute("num_ops", Wire.INT64, max(operations, 1))
        columns.attribute("tensor_size", Wire.UINT64, max(moved, 1))
        for size, value in sizes.items():
            columns.attribute(size, Wire.INT64, value)
        ctrl = tuple(node for node in self._before if node not in after)
        self._before = ()
        self._last_compute = self._add(name, NodeType.COMP, after, ctrl)
        return self._last_compute

    def collective(
        self, name: str, kind: CollectiveType, role: str, size: int, after: Nodes
    ) -> Nodes:
        """Add a collective of ``size`` bytes in the group that the rank has in ``role``.

        ``size`` is the buffer of one rank before the collective: the shard in an all-gather, all
        of it otherwise, as ASTRA-sim reads ``comm_size``.
        """
        self._check(name, size)
        columns = self._columns
        columns.attribute("comm_type", Wire.INT64, kind)
        columns.attribute("comm_size", Wire.INT64, size)
        columns.attribute("pg_name", Wire.STRING, columns.text(role))
        return self._communicate(name, NodeType.COMM_COLL, after)

    def send(self, name: str, peer: str | int, size: int, tag: int, after: Nodes) -> Nodes:
        """Add the send of ``size`` bytes to a neighbor in the pipeline, or to a numbered rank."""
        self._check(name, size)
        self._message("comm_dst", peer, size, tag)
        return self._communicate(name, NodeType.COMM_SEND, after)

    def receive(self, name: str, peer: str | int, size: int, tag: int) -> Nodes:
        """Add the receive of ``size`` bytes from a neighbor in the pipeline."""
        self._check(name, size)
        self._message("comm_src", peer, size, tag)
        return self._add(name, NodeType.COMM_RECV, (), ())

    def trace(self) -> Trace:
        """Return all nodes as the trace of a class."""
        dtype = Attribute("dtype", Wire.STRING, self._dtype)
        return replace(self._columns.trace(), metadata=(dtype,))

    def _check(self, name: str, number: int) -> None:
        if number >= 2**63:
            raise ConfigError(
                f"{self._source}: '{name}' takes {number:.3g} operations or bytes, more than the "
                "64 bits of a trace can state; give a smaller batch, or split it."
            )

    def _message(self, end: str, peer: str | int, size: int, tag: int) -> None:
        self._columns.attribute("comm_size", Wire.INT64, size)
        index = PEERS.index(peer) if isinstance(peer, str) else len(PEERS) + peer
        self._columns.attribute(end, Wire.INT32, index)
        self._columns.attribute("comm_tag", Wire.INT32, tag)

    def _communicate(self, name: str, kind: NodeType, after: Nodes) -> Nodes:
        done = max((self._done[node] for node in after), default=-1)
        ctrl = tuple(node for node in self._last_communication if node > done)
        self._last_communication = self._add(name, kind, after, ctrl)
        self._done[-1] = self._last_communication[0]
        return self._last_communication

    def _add(self, name: str, kind: NodeType, data: Sequence[int], ctrl: Nodes) -> Nodes:
        number = len(self._done)
        self._done.append(max((self._done[node] for node in (*data, *ctrl)), default=-1))
        self._columns.add(number, name, kind, (data, ctrl), (0, 0))
        return (number,)


@dataclass(frozen=True)
class Input:
    """What a layer that is split by columns reads.

    Attributes:
        tokens: Tokens that it is applied to.
        size: Bytes of it that this rank holds.
        whole: Bytes of it of all tensor ranks.
        summed: Whether the gradient is summed over the tensor ranks here, not later with others.
    """

    tokens: int
    size: int
    whole: int
    summed: bool = True


@final
@dataclass(frozen=True)
class BlockWriter:
    """Writes parts of layers onto a builder.

    Attributes:
        builder: Where nodes go.
        costs: Costs of this rank.
        deferred: What writes gradients of weights later, where the schedule splits them from the
            backward pass, each with the weights it belongs to ("dense" or "experts").
    """

    builder: TraceBuilder
    costs: Costs
    deferred: list[tuple[str, Callable[[], Nodes]]] = field(default_factory=list)

    def gradient(self, write: Callable[[], Nodes], weights: str = "dense") -> Nodes:
        """Write the gradient of a weight; where the schedule splits it off, put it off."""
        if not self.costs.plan.splits_backward:
            return write()
        self.deferred.append((weights, write))
        return ()

    # ---- sums and gathers over the tensor ranks ----

    def gather(self, name: str, after: Nodes, size: int = 0) -> Nodes:
        """All-gather of a split tensor, ``size`` bytes of it here; by default the stream."""
        if not self.sharded:
            return after
        size = size or self.costs.own_stream
        return self.builder.collective(name, CollectiveType.ALL_GATHER, "tensor", size, after)

    def total(self, name: str, after: Nodes, size: int = 0) -> Nodes:
        """Sum over the tensor ranks, scattered over them under sequence parallelism."""
        if self.costs.plan.tensor == 1:
            return after
        kind = CollectiveType.REDUCE_SCATTER if self.sharded else CollectiveType.ALL_REDUCE
        return self.builder.collective(name, kind, "tensor", size or self.costs.stream, after)

    @property
    def sharded(self) -> bool:
        """Whether each tensor rank holds the stream of tokens of its own."""
        return self.costs.plan.tensor > 1 and self.costs.plan.sequence_parallel

    # ---- forward ----

    def linear(self, name: str, layer: Linear, after: Nodes, tokens: int = 0) -> Nodes:
        """Write a linear layer; by default of all tokens of the micro-batch."""
        tokens = tokens or self.costs.tokens
        low = self._low(name)
        after = self._cast(f"cast.{name}", tokens, layer.inputs, after) if low else after
        cost = self.costs.linear(layer, tokens, low=low)
        sizes = product_sizes(self.costs, layer, tokens)
        return self.builder.compute(f"mm.{name}", cost, after, self._format(low), sizes)

    def _low(self, name: str) -> bool:
        kept = name.startswith(("router.", "modulation."))
        return bool(self.costs.step.numbers.products) and not kept

    def _format(self, low: bool) -> str:
        return self.costs.step.numbers.products if low else ""

    def _cast(self, name: str, tokens: int, width: int, after: Nodes) -> Nodes:
        count, numbers = tokens * width, self.costs.step.numbers
        moved = int(count * (numbers.weights + 2 * numbers.operand))
        return self.builder.compute(name, (ELEMENTWISE * count, moved), after)

    def norm(self, name: str, after: Nodes, width: int = 0) -> Nodes:
        """Write a norm of this rank's tokens; by default of the stream."""
        cost = self.costs.elementwise(self.costs.own_tokens, width or self.costs.shape.hidden)
        return self.builder.compute(name, cost, after)

    def norm_back(self, name: str, after: Nodes, width: int = 0) -> Nodes:
        """Write the backward pass of a norm."""
        tensors = 4  # gradient and input read, gradient of the residual read and written
        width = width or self.costs.shape.hidden
        cost = self.costs.elementwise(self.costs.own_tokens, width, tensors)
        return self.builder.compute(name, cost, after)

    def columns(self, name: str, layer: Linear, x: Nodes) -> Nodes:
        """Write a layer of the condition that is split by columns, and the gather of its result."""
        costs = self.costs
        if not layer.outputs:
            return x
        h = self.linear(name, layer, x, costs.sequences)
        if costs.plan.tensor == 1:
            return h
        size, kind = costs.sequences * layer.outputs * costs.number, CollectiveType.ALL_GATHER
        return self.builder.collective(f"gather_{name}", kind, "tensor", size, h)

    # ---- backward ----

    def linear_back(
        self, name: str, layer: Linear, dy: Nodes, tokens: int = 0
    ) -> tuple[Nodes, Nodes]:
        """Write the gradients of a linear layer's input and weight."""
        tokens = tokens or self.costs.tokens
        low = self._low(name)
        dtype = self._format(low)
        dy = self._cast(f"cast.{name}.dy", tokens, layer.outputs, dy) if low else dy
        cost = self.costs.linear_dx(layer, tokens, low=low)
        sizes = input_gradient_sizes(self.costs, layer, tokens)
        dx = self.builder.compute(f"mm.{name}.dx", cost, dy, dtype, sizes)
        cost = self.costs.linear_dw(layer, tokens, low=low)
        sizes = weight_gradient_sizes(self.costs, layer, tokens)
        write = partial(self.builder.compute, f"mm.{name}.dw", cost, dy, dtype, sizes)
        return dx, self.gradient(write, self._weights_of(name))

    def columns_back(self, name: str, layer: Linear, dy: Nodes) -> tuple[Nodes, Nodes]:
        """Write the gradients of a layer of the condition: that of the condition is a sum."""
        costs = self.costs
        if not layer.outputs:
            return dy, ()
        dx, dw = self.linear_back(name, layer, dy, costs.sequences)
        if costs.plan.tensor == 1:
            return dx, dw
        size, kind = costs.condition_bytes, CollectiveType.ALL_REDUCE
        return self.builder.collective(f"sum_{name}", kind, "tensor", size, dx), dw

    @property
    def stream(self) -> Input:
        """The residual stream as input of a block."""
        return Input(self.costs.tokens, self.costs.own_stream, self.costs.stream)

    def split_by_columns_back(
        self, name: str, layer: Linear, dy: Nodes, block: str, read: Input
    ) -> tuple[Nodes, Nodes]:
        """Write the gradients of a layer that is split by columns: that of its input is a sum.

        The sum is under way while the weight's gradient is computed.
        """
        where = name.partition(".")[2]
        gather = partial(self.gather, f"gather_again{block}.{where}", dy, read.size)
        x = () if self.costs.plan.splits_backward else gather()
        low = self._low(name)
        dtype = self._format(low)
        dy = self._cast(f"cast.{name}.dy", read.tokens, layer.outputs, dy) if low else dy
        cost = self.costs.linear_dx(layer, read.tokens, low=low)
        sizes = input_gradient_sizes(self.costs, layer, read.tokens)
        dx = self.builder.compute(f"mm.{name}.dx", cost, dy, dtype, sizes)
        if read.summed:
            dx = self.total(f"sum_dx{block}.{where}", dx, read.whole)
        cost = self.costs.linear_dw(layer, read.tokens, low=low)
        of_weight = weight_gradient_sizes(self.costs, layer, read.tokens)

        def write() -> Nodes:
            both = tuple(dict.fromkeys((*dy, *(x or gather()))))
            return self.builder.compute(f"mm.{name}.dw", cost, both, dtype, of_weight)

        return dx, self.gradient(write, self._weights_of(name))

    def _weights_of(self, name: str) -> str:
        of_expert = self.costs.shape.experts and name.startswith(("up.", "down."))
        return "experts" if of_expert else "dense"


@final
@dataclass(frozen=True)
class LatentWriter:
    """Writes what is particular to latent attention.

    Attributes:
        write: Writer of parts of layers.
        latent: Costs of latent attention.
    """

    write: BlockWriter
    latent: LatentCosts

    def expand(self, where: str, h: Nodes) -> Nodes:
        """Write queries, keys and values of this rank's heads."""
        queries, compressed = self._queries(where, h)
        keys = self.write.linear(f"kv_up.{where}", self.latent.kv_up, compressed)
        return (*queries, *keys)

    def decode(self, where: str, h: Nodes) -> Nodes:
        """Write attention to the cache of compressed keys and values."""
        builder, latent = self.write.builder, self.latent
        h, compressed = self._queries(where, h)
        h = builder.compute(f"mm.absorb.{where}", latent.into_latent(), h)
        h = builder.compute(f"attention.{where}", latent.attention(), (*h, *compressed))
        return builder.compute(f"mm.value_up.{where}", latent.out_of_latent(), h)

    def _queries(self, where: str, h: Nodes) -> tuple[Nodes, Nodes]:
        """Write the compressing layers and the queries; return what makes queries and the rest."""
        write, latent = self.write, self.latent
        compressed = write.linear(f"compress.{where}", latent.compress, h, latent.own_tokens)
        compressed = write.norm(f"norm_latent.{where}", compressed, latent.normed_width)
        compressed = write.gather(f"gather_latent.{where}", compressed, latent.own_bytes)
        read = compressed if latent.compresses_queries else write.gather(f"gather1.{where}", h)
        return write.linear(f"q_up.{where}", latent.q_up, read), compressed

    def expand_back(self, where: str, dy: Nodes) -> tuple[Nodes, Nodes]:
        """Write the backward pass; return what makes dx, and gradients of weights.

        Ranks make parts of the gradient of what they expanded, of their heads: these are summed.
        """
        write, latent = self.write, self.latent
        dq, q_dw = self._queries_back(where, dy)
        read = Input(latent.tokens, latent.own_bytes, latent.whole_bytes, summed=False)
        dkv, kv_dw = write.split_by_columns_back(
            f"kv_up.{where}", latent.kv_up, dy, "_latent", read
        )
        h = (*dq, *dkv) if latent.compresses_queries else dkv
        h = write.total(f"sum_latent.{where}", h, latent.whole_bytes)
        h = write.norm_back(f"norm_latent.{where}", h, latent.normed_width)
        h, down_dw = write.linear_back(f"compress.{where}", latent.compress, h, latent.own_tokens)
        dx = h if latent.compresses_queries else (*h, *dq)
        return dx, (*q_dw, *kv_dw, *down_dw)

    def _queries_back(self, where: str, dy: Nodes) -> tuple[Nodes, Nodes]:
        write, latent = self.write, self.latent
        if latent.compresses_queries:  # what they read is gathered with compressed keys and values
            return write.linear_back(f"q_up.{where}", latent.q_up, dy)
        return write.split_by_columns_back(f"q_up.{where}", latent.q_up, dy, "1", write.stream)


@final
@dataclass(frozen=True)
class AttentionWriter:
    """Writes attention blocks.

    Attributes:
        write: Writer of their parts.
    """

    write: BlockWriter

    @property
    def _costs(self) -> Costs:
        return self.write.costs

    def forward(self, where: str, h: Nodes) -> Nodes:
        """Write the block of a layer; return what makes its output."""
        costs, write = self._costs, self.write
        if costs.latent and costs.absorbed:
            h = LatentWriter(write, costs.latent).decode(where, h)
        elif costs.latent:
            h = self._core(where, LatentWriter(write, costs.latent).expand(where, h))
        else:
            h = write.gather(f"gather1.{where}", h)
            h = self._core(where, write.linear(f"qkv.{where}", costs.qkv, h))
        h = write.linear(f"out.{where}", costs.out, h)
        return write.total(f"sum1.{where}", h)

    def backward(self, where: str, dy: Nodes) -> tuple[Nodes, Nodes]:
        """Write the backward pass; return what makes dx, and gradients of weights."""
        costs, write = self._costs, self.write
        h, out_dw = write.linear_back(
            f"out.{where}", costs.out, write.gather(f"gather1.{where}", dy)
        )
        if costs.plan.recompute == "selective":
            h = self._scores(f"attention.{where}.again", costs.attention(), h)
        h = self._core_back(where, h)
        if costs.latent:
            h, dw = LatentWriter(write, costs.latent).expand_back(where, h)
        else:
            read = write.stream
            h, dw = write.split_by_columns_back(f"qkv.{where}", costs.qkv, h, "1", read)
        return h, (*out_dw, *dw)

    def _core(self, where: str, h: Nodes) -> Nodes:
        """Write the attention core; keys and values come from all context ranks."""
        costs, builder = self._costs, self.write.builder
        if costs.plan.context > 1:
            size, kind = costs.keys_and_values, CollectiveType.ALL_GATHER
            h = builder.collective(f"gather_kv.{where}", kind, "context", size, h)
        return self._scores(f"attention.{where}", costs.attention(), h)

    def _scores(self, name: str, cost: Cost, after: Nodes) -> Nodes:
        sizes = attention_sizes(self._costs)
        return self.write.builder.compute(name, cost, after, sizes=sizes)

    def _core_back(self, where: str, dy: Nodes) -> Nodes:
        costs, builder = self._costs, self.write.builder
        h = self._scores(f"attention.{where}", costs.attention_back(), dy)
        if costs.plan.context == 1:
            return h
        size, kind = costs.keys_and_values * costs.plan.context, CollectiveType.REDUCE_SCATTER
        return builder.collective(f"sum_dkv.{where}", kind, "context", size, h)


@dataclass(frozen=True)
class BackwardOutputs:
    """What the backward pass of a layer or block leaves.

    Attributes:
        dx: Nodes that make the gradient of its input.
        dense: Nodes that make gradients of dense weights.
        experts: Nodes that make gradients of experts.
    """

    dx: Nodes
    dense: Nodes
    experts: Nodes = ()


@final
@dataclass(frozen=True)
class FeedForwardWriter:
    """Writes feed-forward blocks.

    Attributes:
        write: Writer of their parts.
    """

    write: BlockWriter

    @property
    def _costs(self) -> Costs:
        return self.write.costs

    def forward(self, where: str, h: Nodes) -> Nodes:
        """Write the block of a layer; return what makes its output."""
        return self._mixture(where, h) if self._costs.shape.experts else self._dense(where, h)

    def backward(self, where: str, dy: Nodes) -> BackwardOutputs:
        """Write the backward pass of that block."""
        block = self._mixture_back if self._costs.shape.experts else self._dense_back
        return block(where, dy)

    # ---- forward ----

    def _dense(self, where: str, h: Nodes) -> Nodes:
        write = self.write
        h = write.gather(f"gather2.{where}", h)
        h = write.linear(f"up.{where}", self._costs.up, h)
        h = self._activation(f"act.{where}", h, self._costs.tokens)
        h = write.linear(f"down.{where}", self._costs.down, h)
        return write.total(f"sum2.{where}", h)

    def _mixture(self, where: str, h: Nodes) -> Nodes:
        costs, write = self._costs, self.write
        shared = self._shared(where, h)
        h = write.linear(f"router.{where}", costs.router, h, costs.own_tokens)
        h = self._exchange(f"dispatch.{where}", h)
        if self._split:
            h = write.gather(f"gather2.{where}", h, costs.routed_stream)
        h = write.linear(f"up.{where}", costs.up, h, costs.routed)
        h = self._activation(f"act.{where}", h, costs.routed, of_experts=True)
        h = write.linear(f"down.{where}", costs.down, h, costs.routed)
        if write.sharded and self._split:
            h = write.total(f"sum2.{where}", h, costs.stream * costs.shape.experts_per_token)
        h = self._exchange(f"combine.{where}", h)
        h = self._mix(f"mix.{where}", (*h, *shared))
        return h if write.sharded else write.total(f"sum2.{where}", h)

    def _shared(self, where: str, h: Nodes) -> Nodes:
        costs, write = self._costs, self.write
        if not costs.shape.shared_experts:
            return ()
        h = write.gather(f"gather_shared.{where}", h)
        h = write.linear(f"shared_up.{where}", costs.shared_up, h)
        h = self._activation(f"shared_act.{where}", h, costs.tokens * costs.shape.shared_experts)
        h = write.linear(f"shared_down.{where}", costs.shared_down, h)
        return write.total(f"sum_shared.{where}", h) if write.sharded else h

    @property
    def _split(self) -> bool:
        return self._costs.plan.expert_sharers > 1

    def _mix(self, name: str, after: Nodes) -> Nodes:
        shape = self._costs.shape
        copies = shape.experts_per_token + (shape.shared_experts > 0)
        cost = self._costs.elementwise(self._costs.own_tokens * copies, shape.hidden)
        return self.write.builder.compute(name, cost, after)

    def _exchange(self, name: str, after: Nodes) -> Nodes:
        if self._costs.plan.expert == 1:
            return after
        size, kind = self._costs.routed_stream, CollectiveType.ALL_TO_ALL
        return self.write.builder.collective(name, kind, "expert", size, after)

    def _activation(
        self, name: str, after: Nodes, tokens: int, tensors: int = 1, of_experts: bool = False
    ) -> Nodes:
        shape, plan = self._costs.shape, self._costs.plan
        tensor = plan.expert_sharers if of_experts else plan.tensor
        operations, _ = self._costs.elementwise(tokens, shape.feed_forward // tensor)
        width = (shape.up_width + shape.feed_forward) // tensor
        moved = tensors * tokens * width * self._costs.number
        return self.write.builder.compute(name, (tensors * operations, moved), after)

    # ---- backward ----

    def _dense_back(self, where: str, dy: Nodes) -> BackwardOutputs:
        costs, write = self._costs, self.write
        h = write.gather(f"gather2.{where}", dy)
        h, down_dw = write.linear_back(f"down.{where}", costs.down, h)
        h = self._activation(f"act.{where}", h, costs.tokens, tensors=2)
        h, up_dw = write.split_by_columns_back(f"up.{where}", costs.up, h, "2", write.stream)
        return BackwardOutputs(h, (*down_dw, *up_dw))

    def _mixture_back(self, where: str, dy: Nodes) -> BackwardOutputs:
        costs, write = self._costs, self.write
        dy = self._mix(f"mix.{where}", dy)
        shared = self._shared_back(where, dy)
        h = self._exchange(f"combine.{where}", dy)
        if self._split:
            h = write.gather(f"gather2.{where}", h, costs.routed_stream)
        h, down_dw = write.linear_back(f"down.{where}", costs.down, h, costs.routed)
        h = self._activation(f"act.{where}", h, costs.routed, tensors=2, of_experts=True)
        copies = costs.shape.experts_per_token
        read = Input(costs.routed, costs.routed_stream, costs.stream * copies, write.sharded)
        if self._split:
            h, up_dw = write.split_by_columns_back(f"up.{where}", costs.up, h, "2", read)
        else:
            h, up_dw = write.linear_back(f"up.{where}", costs.up, h, costs.routed)
        h = self._exchange(f"dispatch.{where}", h)
        h = (*h, *shared.dx)
        if not write.sharded:
            h = write.total(f"sum_dx2.{where}", h)
        h, router_dw = write.linear_back(f"router.{where}", costs.router, h, costs.own_tokens)
        return BackwardOutputs(h, (*router_dw, *shared.dense), (*down_dw, *up_dw))

    def _shared_back(self, where: str, dy: Nodes) -> BackwardOutputs:
        """Write the backward pass of the shared experts; its sum may be the routed ones', too."""
        costs, write = self._costs, self.write
        if not costs.shape.shared_experts:
            return BackwardOutputs((), ())
        h = write.gather(f"gather_shared.{where}", dy)
        h, down_dw = write.linear_back(f"shared_down.{where}", costs.shared_down, h)
        count = costs.tokens * costs.shape.shared_experts
        h = self._activation(f"shared_act.{where}", h, count, tensors=2)
        read = Input(costs.tokens, costs.own_stream, costs.stream, write.sharded)
        h, up_dw = write.split_by_columns_back(
            f"shared_up.{where}", costs.shared_up, h, "_shared", read
        )
        return BackwardOutputs(h, (*down_dw, *up_dw))


@final
@dataclass(frozen=True)
class LayerWriter:
    """Writes passes of a layer.

    Attributes:
        write: Writer of parts of layers, with the costs of this layer.
    """

    write: BlockWriter

    def forward(self, where: str, x: Nodes) -> Nodes:
        """Write the forward pass of a layer; return what makes its output."""
        write = self.write
        h = write.columns(f"modulation.{where}", write.costs.modulation, x)
        h = write.norm(f"norm1.{where}", h)
        h = AttentionWriter(write).forward(where, h)
        h = write.norm(f"norm2.{where}", h)
        return FeedForwardWriter(write).forward(where, h)

    def backward(self, where: str, dy: Nodes, again: bool) -> BackwardOutputs:
        """Write the backward pass of a layer; ``dy`` makes the gradient of its output.

        ``again``: its forward pass is computed once more.
        """
        write, h = self.write, dy
        if again:
            h = self.forward(f"{where}.again", dy)
        passed = FeedForwardWriter(write).backward(where, h)
        h = write.norm_back(f"norm2.{where}", passed.dx)
        h, attention_dw = AttentionWriter(write).backward(where, h)
        h = write.norm_back(f"norm1.{where}", h)
        h, scale_dw = write.columns_back(f"modulation.{where}", write.costs.modulation, h)
        made = (*passed.dense, *attention_dw, *scale_dw, *h)
        return BackwardOutputs(h, made, passed.experts)
