"""Forward and backward pass of a transformer layer, as one rank runs them.

Tensor parallelism is Megatron-LM's: the first linear layer of a block is split by columns, the
second by rows, so that each block needs one sum over the tensor ranks in the forward and one in the
backward pass (Shoeybi et al. 2019). With sequence parallelism each sum becomes a reduce-scatter
with an all-gather before the block, and the backward pass gathers the input once more, because only
a shard of it is kept (Korthikanti et al. 2022). Experts: Lepikhin et al. 2020. Context: keys and
values are gathered over the context ranks, as for Llama 3.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from layerdag.traces import CollectiveType
from layerdag.workloads.symbolic._costs import Costs, Linear
from layerdag.workloads.symbolic._tape import Nodes, Tape


@dataclass(frozen=True)
class Passed:
    """What the backward pass of a layer leaves.

    Attributes:
        dx: Nodes that make the gradient of the layer's input.
        dense: Nodes that make gradients of dense weights.
        experts: Nodes that make gradients of experts.
    """

    dx: Nodes
    dense: Nodes
    experts: Nodes = ()


@dataclass(frozen=True)
class LayerWriter:
    """Writes passes of layers onto a tape.

    Attributes:
        tape: Where nodes go.
        costs: Costs of this rank.
        put_off: What writes gradients of weights later, where the schedule splits them from the
            backward pass, each with the weights it belongs to ("dense" or "experts").
    """

    tape: Tape
    costs: Costs
    put_off: list[tuple[str, Callable[[], Nodes]]] = field(default_factory=list)

    def gradient(self, write: Callable[[], Nodes], weights: str = "dense") -> Nodes:
        """Write the gradient of a weight; where the schedule splits it off, put it off."""
        if not self.costs.plan.splits_backward:
            return write()
        self.put_off.append((weights, write))
        return ()

    # ---- sums and gathers over the tensor ranks ----

    def gather(self, name: str, after: Nodes, size: int = 0) -> Nodes:
        """All-gather of a split tensor, ``size`` bytes of it here; by default the stream."""
        if not self._sharded:
            return after
        size = size or self.costs.own_stream
        return self.tape.collective(name, CollectiveType.ALL_GATHER, "tensor", size, after)

    def total(self, name: str, after: Nodes, size: int = 0) -> Nodes:
        """Sum over the tensor ranks, scattered over them under sequence parallelism."""
        if self.costs.plan.tensor == 1:
            return after
        kind = CollectiveType.REDUCE_SCATTER if self._sharded else CollectiveType.ALL_REDUCE
        return self.tape.collective(name, kind, "tensor", size or self.costs.stream, after)

    @property
    def _sharded(self) -> bool:
        return self.costs.plan.tensor > 1 and self.costs.plan.sequence_parallel

    def _linear(self, name: str, layer: Linear, after: Nodes, tokens: int = 0) -> Nodes:
        cost = self.costs.linear(layer, tokens or self.costs.tokens)
        return self.tape.compute(f"mm.{name}", cost, after)

    def _norm(self, name: str, after: Nodes) -> Nodes:
        cost = self.costs.elementwise(self.costs.own_tokens, self.costs.shape.hidden)
        return self.tape.compute(name, cost, after)

    def _norm_back(self, name: str, after: Nodes) -> Nodes:
        tensors = 4  # gradient and input read, gradient of the residual read and written
        cost = self.costs.elementwise(self.costs.own_tokens, self.costs.shape.hidden, tensors)
        return self.tape.compute(name, cost, after)

    # ---- forward ----

    def forward(self, where: str, x: Nodes) -> Nodes:
        """Write the forward pass of a layer; return what makes its output."""
        h = self._modulate(where, x)
        h = self._norm(f"norm1.{where}", h)
        h = self.gather(f"gather1.{where}", h)
        h = self._linear(f"qkv.{where}", self.costs.qkv, h)
        h = self.attention(where, h)
        h = self._linear(f"out.{where}", self.costs.out, h)
        h = self.total(f"sum1.{where}", h)
        h = self._norm(f"norm2.{where}", h)
        return self._mixture(where, h) if self.costs.shape.experts else self._dense(where, h)

    def _modulate(self, where: str, x: Nodes) -> Nodes:
        """Write scales, shifts and gates of a layer, which all tensor ranks need whole."""
        return self.columns(f"modulation.{where}", self.costs.modulation, x)

    def columns(self, name: str, layer: Linear, x: Nodes) -> Nodes:
        """Write a layer of the condition that is split by columns, and the gather of its result."""
        costs = self.costs
        if not layer.outputs:
            return x
        h = self._linear(name, layer, x, costs.sequences)
        if costs.plan.tensor == 1:
            return h
        size, kind = costs.sequences * layer.outputs * costs.number, CollectiveType.ALL_GATHER
        return self.tape.collective(f"gather_{name}", kind, "tensor", size, h)

    def columns_back(self, name: str, layer: Linear, dy: Nodes) -> tuple[Nodes, Nodes]:
        """Write the gradients of such a layer: that of the condition is a sum."""
        costs = self.costs
        if not layer.outputs:
            return dy, ()
        dx, dw = self._linear_back(name, layer, dy, costs.sequences)
        if costs.plan.tensor == 1:
            return dx, dw
        size, kind = costs.condition_bytes, CollectiveType.ALL_REDUCE
        return self.tape.collective(f"sum_{name}", kind, "tensor", size, dx), dw

    def attention(self, where: str, h: Nodes) -> Nodes:
        """Write the attention core; keys and values come from all context ranks."""
        if self.costs.plan.context > 1:
            size = self.costs.keys_and_values
            kind = CollectiveType.ALL_GATHER
            h = self.tape.collective(f"gather_kv.{where}", kind, "context", size, h)
        return self.tape.compute(f"attention.{where}", self.costs.attention(), h)

    def _dense(self, where: str, h: Nodes) -> Nodes:
        h = self.gather(f"gather2.{where}", h)
        h = self._linear(f"up.{where}", self.costs.up, h)
        h = self._activation(f"act.{where}", h, self.costs.tokens)
        h = self._linear(f"down.{where}", self.costs.down, h)
        return self.total(f"sum2.{where}", h)

    def _mixture(self, where: str, h: Nodes) -> Nodes:
        costs = self.costs
        h = self._linear(f"router.{where}", costs.router, h, costs.own_tokens)
        h = self._exchange(f"dispatch.{where}", h)
        h = self.gather(f"gather2.{where}", h, costs.routed_stream)
        h = self._linear(f"up.{where}", costs.up, h, costs.routed)
        h = self._activation(f"act.{where}", h, costs.routed)
        h = self._linear(f"down.{where}", costs.down, h, costs.routed)
        if self._sharded:
            h = self.total(f"sum2.{where}", h, costs.stream * costs.shape.experts_per_token)
        h = self._exchange(f"combine.{where}", h)
        h = self._mix(f"mix.{where}", h)
        return h if self._sharded else self.total(f"sum2.{where}", h)

    def _mix(self, name: str, after: Nodes) -> Nodes:
        copies = self.costs.own_tokens * self.costs.shape.experts_per_token
        return self.tape.compute(
            name, self.costs.elementwise(copies, self.costs.shape.hidden), after
        )

    def _exchange(self, name: str, after: Nodes) -> Nodes:
        """Write the exchange of token copies between expert ranks."""
        if self.costs.plan.expert == 1:
            return after
        size = self.costs.routed_stream
        return self.tape.collective(name, CollectiveType.ALL_TO_ALL, "expert", size, after)

    def _activation(self, name: str, after: Nodes, tokens: int, tensors: int = 1) -> Nodes:
        shape, tensor = self.costs.shape, self.costs.plan.tensor
        operations, _ = self.costs.elementwise(tokens, shape.feed_forward // tensor)
        width = (shape.up_width + shape.feed_forward) // tensor
        moved = tensors * tokens * width * self.costs.number
        return self.tape.compute(name, (tensors * operations, moved), after)

    # ---- backward ----

    def backward(self, where: str, dy: Nodes) -> Passed:
        """Write the backward pass of a layer; ``dy`` makes the gradient of its output."""
        h, recompute = dy, self.costs.plan.recompute
        if recompute == "full":
            h = self.forward(f"{where}.again", dy)
        block = self._mixture_back if self.costs.shape.experts else self._dense_back
        passed = block(where, h)
        h = self._norm_back(f"norm2.{where}", passed.dx)
        h, out_dw = self._linear_back(
            f"out.{where}", self.costs.out, self.gather(f"gather1.{where}", h)
        )
        if recompute == "selective":
            h = self.tape.compute(f"attention.{where}.again", self.costs.attention(), h)
        h = self._attention_back(where, h)
        h, qkv_dw = self._split_by_columns_back(f"qkv.{where}", self.costs.qkv, h, "1")
        h = self._norm_back(f"norm1.{where}", h)
        h, scale_dw = self.columns_back(f"modulation.{where}", self.costs.modulation, h)
        made = (*passed.dense, *out_dw, *qkv_dw, *scale_dw, *h)
        return Passed(h, made, passed.experts)

    def _linear_back(
        self, name: str, layer: Linear, dy: Nodes, tokens: int = 0
    ) -> tuple[Nodes, Nodes]:
        """Write the gradients of a linear layer's input and weight."""
        tokens = tokens or self.costs.tokens
        dx = self.tape.compute(f"mm.{name}.dx", self.costs.linear_dx(layer, tokens), dy)
        cost = self.costs.linear_dw(layer, tokens)
        write = partial(self.tape.compute, f"mm.{name}.dw", cost, dy)
        return dx, self.gradient(write, self._weights_of(name))

    def _weights_of(self, name: str) -> str:
        of_expert = self.costs.shape.experts and name.startswith(("up.", "down."))
        return "experts" if of_expert else "dense"

    def _split_by_columns_back(
        self, name: str, layer: Linear, dy: Nodes, block: str, routed: int = 0
    ) -> tuple[Nodes, Nodes]:
        """Write the gradients of a layer that is split by columns: that of its input is a sum.

        The sum is under way while the weight's gradient is computed.
        """
        where = name.partition(".")[2]
        tokens, factor = routed or self.costs.tokens, self.costs.shape.experts_per_token
        size = (self.costs.own_stream * factor, self.costs.stream * factor) if routed else (0, 0)
        gather = partial(self.gather, f"gather_again{block}.{where}", dy, size[0])
        x = () if self.costs.plan.splits_backward else gather()
        dx = self.tape.compute(f"mm.{name}.dx", self.costs.linear_dx(layer, tokens), dy)
        if not routed or self._sharded:
            dx = self.total(f"sum_dx{block}.{where}", dx, size[1])
        cost = self.costs.linear_dw(layer, tokens)

        def write() -> Nodes:
            both = tuple(dict.fromkeys((*dy, *(x or gather()))))
            return self.tape.compute(f"mm.{name}.dw", cost, both)

        return dx, self.gradient(write, self._weights_of(name))

    def _dense_back(self, where: str, dy: Nodes) -> Passed:
        costs = self.costs
        h = self.gather(f"gather2.{where}", dy)
        h, down_dw = self._linear_back(f"down.{where}", costs.down, h)
        h = self._activation(f"act.{where}", h, costs.tokens, tensors=2)
        h, up_dw = self._split_by_columns_back(f"up.{where}", costs.up, h, "2")
        return Passed(h, (*down_dw, *up_dw))

    def _mixture_back(self, where: str, dy: Nodes) -> Passed:
        costs = self.costs
        h = self._mix(f"mix.{where}", dy)
        h = self._exchange(f"combine.{where}", h)
        h = self.gather(f"gather2.{where}", h, costs.routed_stream)
        h, down_dw = self._linear_back(f"down.{where}", costs.down, h, costs.routed)
        h = self._activation(f"act.{where}", h, costs.routed, tensors=2)
        h, up_dw = self._split_by_columns_back(f"up.{where}", costs.up, h, "2", costs.routed)
        h = self._exchange(f"dispatch.{where}", h)
        if not self._sharded:
            h = self.total(f"sum_dx2.{where}", h)
        h, router_dw = self._linear_back(f"router.{where}", costs.router, h, costs.own_tokens)
        return Passed(h, router_dw, (*down_dw, *up_dw))

    def _attention_back(self, where: str, dy: Nodes) -> Nodes:
        h = self.tape.compute(f"attention.{where}", self.costs.attention_back(), dy)
        if self.costs.plan.context == 1:
            return h
        size = self.costs.keys_and_values * self.costs.plan.context
        kind = CollectiveType.REDUCE_SCATTER
        return self.tape.collective(f"sum_dkv.{where}", kind, "context", size, h)
