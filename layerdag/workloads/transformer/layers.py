"""Write a transformer's layers into a trace: products, norms, sums and gathers of one rank.

Tensor parallelism is Megatron-LM's: the first linear layer of a block is split by columns, the
second by rows, so that each block needs one sum over the tensor ranks in the forward and one in the
backward pass (Shoeybi et al. 2019). With sequence parallelism each sum becomes a reduce-scatter
with an all-gather before the block, and the backward pass gathers the input once more, because only
a shard of it is kept (Korthikanti et al. 2022).

Multi-head latent attention (DeepSeek-AI 2024): compressing layers are the same on all tensor ranks
and run on the tokens of a rank's own under sequence parallelism, whose compressed queries, keys and
values are gathered; expanding layers are split by heads (as in Megatron-LM). Decode expands
nothing: queries are multiplied into the latent space and attend to the cache as it is, and the
weighted sum is multiplied out of it, with the same weights. The cache is not split over tensor
ranks, because all heads share it.

Context parallelism gathers keys and values over the context ranks, as for Llama 3.

Mixtures of experts follow Lepikhin et al. 2020. Shared experts, which every token passes, are one
block, split over the tensor ranks as a dense one is; their output joins the sum of the routed ones
(DeepSeek-AI 2024).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from layerdag.errors import ConfigError
from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.builder import NodeAppender
from layerdag.traces.trace import OPERATOR, Attribute, NodeType, Trace, Wire
from layerdag.workloads.transformer.costs import ELEMENTWISE, Cost, Costs
from layerdag.workloads.transformer.mesh import PEERS

Nodes = tuple[int, ...]
"""Numbers of the nodes that something waits for."""


_OPERATORS = {
    **dict.fromkeys(("norm1", "norm2", "norm_latent"), "norm"),
    "shared_act": "act",
    "embedding": "look_up",  # a group of ranks is called so: roles and operators must differ
}


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
        sizes: Mapping[str, int] | None = None,
    ) -> Nodes:
        """Add an operator of (operations, bytes read and written); return its number.

        ``dtype`` is its number format where it is not that of all operators, ``sizes`` what its
        kernel is called with.
        """
        operations, moved = cost
        self._check(name, max(operations, moved))
        columns, operator = self._columns, name.partition(".")[0]
        operator = _OPERATORS.get(operator, operator)
        columns.attribute(OPERATOR, Wire.STRING, columns.text(operator))
        if dtype:
            columns.attribute("dtype", Wire.STRING, columns.text(dtype))
        columns.attribute("num_ops", Wire.INT64, max(operations, 1))
        columns.attribute("tensor_size", Wire.UINT64, max(moved, 1))
        for size, value in (sizes or {}).items():
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
class SplitInput:
    """The input of a layer split by columns, of whose gradient each tensor rank has a part."""

    block: str  # in names of nodes
    size: int  # bytes of it that this rank holds
    whole: int  # bytes of it of all tensor ranks
    summed: bool = True  # whether the gradient is summed over these here, not later with others


@dataclass(frozen=True)
class BlockWriter:
    """Writes parts of layers onto a builder.

    Where the schedule splits gradients of weights from the backward pass, ``deferred`` has what
    writes them later, each with the weights it belongs to ("dense" or "experts").
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

    # ---- communication ----

    def collective(
        self, name: str, kind: CollectiveType, role: str, size: int, after: Nodes
    ) -> Nodes:
        """Write a collective over the ranks of a degree, unless there is only one."""
        if getattr(self.costs.plan, role) == 1:
            return after
        return self.builder.collective(name, kind, role, size, after)

    def gather(self, name: str, after: Nodes, size: int = 0) -> Nodes:
        """All-gather of a split tensor, ``size`` bytes of it here; by default the stream."""
        if not self.sharded:
            return after
        size = size or self.costs.own_stream
        return self.collective(name, CollectiveType.ALL_GATHER, "tensor", size, after)

    def total(self, name: str, after: Nodes, size: int = 0) -> Nodes:
        """Sum over the tensor ranks, scattered over them under sequence parallelism."""
        kind = CollectiveType.REDUCE_SCATTER if self.sharded else CollectiveType.ALL_REDUCE
        return self.collective(name, kind, "tensor", size or self.costs.stream, after)

    @property
    def sharded(self) -> bool:
        """Whether each tensor rank holds the stream of tokens of its own."""
        return self.costs.plan.tensor > 1 and self.costs.plan.sequence_parallel

    def stream(self, block: str) -> SplitInput:
        """Return the residual stream as input of a block."""
        return SplitInput(block, self.costs.own_stream, self.costs.stream)

    # ---- linear layers, by their names in ``Costs.products`` ----

    def linear(self, name: str, where: str, after: Nodes) -> Nodes:
        """Write a linear layer."""
        costs, layer, dtype = self.costs, self.costs.products[name], self._dtype(name)
        after = self._cast(f"cast.{name}.{where}", layer.tokens * layer.inputs, dtype, after)
        cost = costs.product(layer, low=bool(dtype))
        sizes = costs.product_sizes(layer)
        return self.builder.compute(f"mm.{name}.{where}", cost, after, dtype, sizes)

    def linear_back(
        self, name: str, where: str, dy: Nodes, read: SplitInput | None = None
    ) -> tuple[Nodes, Nodes]:
        """Write the gradients of a linear layer's input and weight.

        That of the input is a sum over tensor ranks if the layer is split by columns (``read``): it
        is under way while the weight's gradient is computed.
        """
        costs, layer, dtype = self.costs, self.costs.products[name], self._dtype(name)
        low, product, of_output = bool(dtype), f"mm.{name}.{where}", dy

        def gather() -> Nodes:
            if read is None:
                return ()
            return self.gather(f"gather_again{read.block}.{where}", of_output, read.size)

        x = () if costs.plan.splits_backward else gather()
        dy = self._cast(f"cast.{name}.{where}.dy", layer.tokens * layer.outputs, dtype, dy)
        cost, sizes = costs.product(layer, "input", low=low), costs.product_sizes(layer, "input")
        dx = self.builder.compute(f"{product}.dx", cost, dy, dtype, sizes)
        if read and read.summed:
            dx = self.total(f"sum_dx{read.block}.{where}", dx, read.whole)

        def write() -> Nodes:
            both = tuple(dict.fromkeys((*dy, *(x or gather()))))
            cost = costs.product(layer, "weight", low=low)
            sizes = costs.product_sizes(layer, "weight")
            return self.builder.compute(f"{product}.dw", cost, both, dtype, sizes)

        return dx, self.gradient(write, "experts" if layer.experts else "dense")

    def _dtype(self, name: str) -> str:
        """Return the format of a product where it is not that of everything else."""
        kept = name in ("router", "modulation", "modulation.head", "logits")
        return "" if kept else self.costs.step.numbers.products

    def _cast(self, name: str, count: int, dtype: str, after: Nodes) -> Nodes:
        if not dtype:
            return after
        numbers = self.costs.step.numbers
        moved = int(count * (numbers.weights + 2 * numbers.operand))
        return self.builder.compute(name, (ELEMENTWISE * count, moved), after)

    def columns(self, name: str, where: str, x: Nodes) -> Nodes:
        """Write a layer of the condition that is split by columns, and the gather of its result."""
        costs = self.costs
        if name not in costs.products:
            return x
        h = self.linear(name, where, x)
        size = costs.sequences * costs.products[name].outputs * costs.number
        kind = CollectiveType.ALL_GATHER
        return self.collective(f"gather_{name}.{where}", kind, "tensor", size, h)

    def columns_back(self, name: str, where: str, dy: Nodes) -> tuple[Nodes, Nodes]:
        """Write the gradients of a layer of the condition: that of the condition is a sum."""
        costs = self.costs
        if name not in costs.products:
            return dy, ()
        dx, dw = self.linear_back(name, where, dy)
        size, kind = costs.condition_bytes, CollectiveType.ALL_REDUCE
        return self.collective(f"sum_{name}.{where}", kind, "tensor", size, dx), dw

    # ---- norms ----

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


@dataclass(frozen=True)
class BackwardOutputs:
    """What makes the gradients of a layer's or block's input, dense weights and experts."""

    dx: Nodes
    dense: Nodes
    experts: Nodes = ()


@final
class LayerWriter(BlockWriter):
    """Writes passes of a layer; its costs are those of that layer."""

    def forward(self, where: str, x: Nodes) -> Nodes:
        """Write the forward pass of a layer; return what makes its output."""
        h = self.columns("modulation", where, x)
        h = self.norm(f"norm1.{where}", h)
        h = self._attention(where, h)
        h = self.norm(f"norm2.{where}", h)
        return self._mixture(where, h) if self.costs.shape.experts else self._dense(where, h)

    def backward(self, where: str, dy: Nodes, again: bool) -> BackwardOutputs:
        """Write the backward pass of a layer; ``dy`` makes the gradient of its output.

        ``again``: its forward pass is computed once more.
        """
        h = self.forward(f"{where}.again", dy) if again else dy
        block = self._mixture_back if self.costs.shape.experts else self._dense_back
        passed = block(where, h)
        h = self.norm_back(f"norm2.{where}", passed.dx)
        h, attention_dw = self._attention_back(where, h)
        h = self.norm_back(f"norm1.{where}", h)
        h, scale_dw = self.columns_back("modulation", where, h)
        made = (*passed.dense, *attention_dw, *scale_dw, *h)
        return BackwardOutputs(h, made, passed.experts)

    # ---- attention ----

    def _attention(self, where: str, h: Nodes) -> Nodes:
        costs = self.costs
        if not costs.shape.latent:
            h = self.gather(f"gather1.{where}", h)
            h = self._core(where, self.linear("qkv", where, h))
        elif costs.step.phase == "decode":
            h, compressed = self._latent_queries(where, h)
            h = self.builder.compute(f"mm.absorb.{where}", costs.through_latent("key"), h)
            h = (*h, *compressed)
            h = self.builder.compute(f"attention.{where}", costs.latent_attention(), h)
            h = self.builder.compute(f"mm.value_up.{where}", costs.through_latent("value"), h)
        else:
            queries, compressed = self._latent_queries(where, h)
            h = self._core(where, (*queries, *self.linear("kv_up", where, compressed)))
        h = self.linear("out", where, h)
        return self.total(f"sum1.{where}", h)

    def _attention_back(self, where: str, dy: Nodes) -> tuple[Nodes, Nodes]:
        """Write the backward pass; return what makes dx, and gradients of weights."""
        costs = self.costs
        h, out_dw = self.linear_back("out", where, self.gather(f"gather1.{where}", dy))
        if costs.plan.recompute == "selective":
            h = self._scores(f"attention.{where}.again", costs.attention(), h)
        h = self._scores(f"attention.{where}", costs.attention_back(), h)
        size, kind = costs.keys_and_values * costs.plan.context, CollectiveType.REDUCE_SCATTER
        h = self.collective(f"sum_dkv.{where}", kind, "context", size, h)
        if costs.shape.latent:
            h, dw = self._latent_back(where, h)
        else:
            h, dw = self.linear_back("qkv", where, h, self.stream("1"))
        return h, (*out_dw, *dw)

    def _core(self, where: str, h: Nodes) -> Nodes:
        """Write the attention core; keys and values come from all context ranks."""
        size, kind = self.costs.keys_and_values, CollectiveType.ALL_GATHER
        h = self.collective(f"gather_kv.{where}", kind, "context", size, h)
        return self._scores(f"attention.{where}", self.costs.attention(), h)

    def _scores(self, name: str, cost: Cost, after: Nodes) -> Nodes:
        return self.builder.compute(name, cost, after, sizes=self.costs.attention_sizes())

    def _latent_queries(self, where: str, h: Nodes) -> tuple[Nodes, Nodes]:
        """Write the compressing layers and the queries; return the queries and the rest."""
        costs, latent = self.costs, self.costs.shape.latent
        assert latent
        compressed = self.linear("compress", where, h)
        compressed = self.norm(f"norm_latent.{where}", compressed, latent.norm_parameters)
        own = costs.latent_bytes(costs.own_tokens)
        compressed = self.gather(f"gather_latent.{where}", compressed, own)
        read = compressed if latent.query_rank else self.gather(f"gather1.{where}", h)
        return self.linear("q_up", where, read), compressed

    def _latent_back(self, where: str, dy: Nodes) -> tuple[Nodes, Nodes]:
        """Write the backward pass; return what makes dx, and gradients of weights.

        Ranks make parts of the gradient of what they expanded, of their heads: these are summed.
        """
        costs, latent = self.costs, self.costs.shape.latent
        assert latent
        # Compressed queries are gathered with compressed keys and values.
        read = None if latent.query_rank else self.stream("1")
        dq, q_dw = self.linear_back("q_up", where, dy, read)
        own, whole = costs.latent_bytes(costs.own_tokens), costs.latent_bytes(costs.tokens)
        read = SplitInput("_latent", own, whole, summed=False)
        dkv, kv_dw = self.linear_back("kv_up", where, dy, read)
        h = (*dq, *dkv) if latent.query_rank else dkv
        h = self.total(f"sum_latent.{where}", h, whole)
        h = self.norm_back(f"norm_latent.{where}", h, latent.norm_parameters)
        h, down_dw = self.linear_back("compress", where, h)
        dx = h if latent.query_rank else (*h, *dq)
        return dx, (*q_dw, *kv_dw, *down_dw)

    # ---- feed-forward blocks ----

    def _dense(self, where: str, h: Nodes, shared: int = 0) -> Nodes:
        """Write a dense block, or that of ``shared`` experts, whose sum the routed ones may do."""
        prefix, block = ("shared_", "_shared") if shared else ("", "2")
        h = self.gather(f"gather{block}.{where}", h)
        h = self.linear(f"{prefix}up", where, h)
        h = self._activation(f"{prefix}act.{where}", h, self.costs.tokens * max(shared, 1))
        h = self.linear(f"{prefix}down", where, h)
        return h if shared and not self.sharded else self.total(f"sum{block}.{where}", h)

    def _dense_back(self, where: str, dy: Nodes, shared: int = 0) -> BackwardOutputs:
        prefix, block = ("shared_", "_shared") if shared else ("", "2")
        h = self.gather(f"gather{block}.{where}", dy)
        h, down_dw = self.linear_back(f"{prefix}down", where, h)
        tokens = self.costs.tokens * max(shared, 1)
        h = self._activation(f"{prefix}act.{where}", h, tokens, tensors=2)
        read = replace(self.stream(block), summed=self.sharded or not shared)
        h, up_dw = self.linear_back(f"{prefix}up", where, h, read)
        return BackwardOutputs(h, (*down_dw, *up_dw))

    def _mixture(self, where: str, h: Nodes) -> Nodes:
        costs, split = self.costs, self.costs.plan.expert_sharers > 1
        count = costs.shape.shared_experts
        shared = self._dense(where, h, count) if count else ()
        h = self.linear("router", where, h)
        h = self._exchange(f"dispatch.{where}", h)
        if split:
            h = self.gather(f"gather2.{where}", h, costs.routed_stream)
        h = self.linear("up", where, h)
        h = self._activation(f"act.{where}", h, costs.routed, of_experts=True)
        h = self.linear("down", where, h)
        if self.sharded and split:
            h = self.total(f"sum2.{where}", h, costs.stream * costs.shape.experts_per_token)
        h = self._exchange(f"combine.{where}", h)
        h = self._mix(f"mix.{where}", (*h, *shared))
        return h if self.sharded else self.total(f"sum2.{where}", h)

    def _mixture_back(self, where: str, dy: Nodes) -> BackwardOutputs:
        costs, split = self.costs, self.costs.plan.expert_sharers > 1
        dy = self._mix(f"mix.{where}", dy)
        count = costs.shape.shared_experts
        shared = self._dense_back(where, dy, count) if count else BackwardOutputs((), ())
        h = self._exchange(f"combine.{where}", dy)
        if split:
            h = self.gather(f"gather2.{where}", h, costs.routed_stream)
        h, down_dw = self.linear_back("down", where, h)
        h = self._activation(f"act.{where}", h, costs.routed, tensors=2, of_experts=True)
        whole = costs.stream * costs.shape.experts_per_token
        read = SplitInput("2", costs.routed_stream, whole, self.sharded) if split else None
        h, up_dw = self.linear_back("up", where, h, read)
        h = self._exchange(f"dispatch.{where}", h)
        h = (*h, *shared.dx)
        if not self.sharded:
            h = self.total(f"sum_dx2.{where}", h)
        h, router_dw = self.linear_back("router", where, h)
        return BackwardOutputs(h, (*router_dw, *shared.dense), (*down_dw, *up_dw))

    def _mix(self, name: str, after: Nodes) -> Nodes:
        shape = self.costs.shape
        copies = shape.experts_per_token + (shape.shared_experts > 0)
        cost = self.costs.elementwise(self.costs.own_tokens * copies, shape.hidden)
        return self.builder.compute(name, cost, after)

    def _exchange(self, name: str, after: Nodes) -> Nodes:
        size, kind = self.costs.routed_stream, CollectiveType.ALL_TO_ALL
        return self.collective(name, kind, "expert", size, after)

    def _activation(
        self, name: str, after: Nodes, tokens: int, tensors: int = 1, of_experts: bool = False
    ) -> Nodes:
        shape, plan = self.costs.shape, self.costs.plan
        tensor = plan.expert_sharers if of_experts else plan.tensor
        operations, _ = self.costs.elementwise(tokens, shape.feed_forward // tensor)
        width = (shape.up_width + shape.feed_forward) // tensor
        moved = tensors * tokens * width * self.costs.number
        return self.builder.compute(name, (tensors * operations, moved), after)
