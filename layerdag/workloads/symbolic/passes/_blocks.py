"""What the layers of a transformer consist of: products, norms, sums and gathers of one rank.

Tensor parallelism is Megatron-LM's: the first linear layer of a block is split by columns, the
second by rows, so that each block needs one sum over the tensor ranks in the forward and one in the
backward pass (Shoeybi et al. 2019). With sequence parallelism each sum becomes a reduce-scatter
with an all-gather before the block, and the backward pass gathers the input once more, because only
a shard of it is kept (Korthikanti et al. 2022).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import final

from layerdag.traces import CollectiveType
from layerdag.workloads.symbolic.costs import Costs, Linear
from layerdag.workloads.symbolic.passes._tape import Nodes, Tape


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
    """Writes parts of layers onto a tape.

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
        if not self.sharded:
            return after
        size = size or self.costs.own_stream
        return self.tape.collective(name, CollectiveType.ALL_GATHER, "tensor", size, after)

    def total(self, name: str, after: Nodes, size: int = 0) -> Nodes:
        """Sum over the tensor ranks, scattered over them under sequence parallelism."""
        if self.costs.plan.tensor == 1:
            return after
        kind = CollectiveType.REDUCE_SCATTER if self.sharded else CollectiveType.ALL_REDUCE
        return self.tape.collective(name, kind, "tensor", size or self.costs.stream, after)

    @property
    def sharded(self) -> bool:
        """Whether each tensor rank holds the stream of tokens of its own."""
        return self.costs.plan.tensor > 1 and self.costs.plan.sequence_parallel

    # ---- forward ----

    def linear(self, name: str, layer: Linear, after: Nodes, tokens: int = 0) -> Nodes:
        """Write a linear layer; by default of all tokens of the micro-batch."""
        cost = self.costs.linear(layer, tokens or self.costs.tokens)
        return self.tape.compute(f"mm.{name}", cost, after)

    def norm(self, name: str, after: Nodes, width: int = 0) -> Nodes:
        """Write a norm of this rank's tokens; by default of the stream."""
        cost = self.costs.elementwise(self.costs.own_tokens, width or self.costs.shape.hidden)
        return self.tape.compute(name, cost, after)

    def norm_back(self, name: str, after: Nodes, width: int = 0) -> Nodes:
        """Write the backward pass of a norm."""
        tensors = 4  # gradient and input read, gradient of the residual read and written
        width = width or self.costs.shape.hidden
        cost = self.costs.elementwise(self.costs.own_tokens, width, tensors)
        return self.tape.compute(name, cost, after)

    def columns(self, name: str, layer: Linear, x: Nodes) -> Nodes:
        """Write a layer of the condition that is split by columns, and the gather of its result."""
        costs = self.costs
        if not layer.outputs:
            return x
        h = self.linear(name, layer, x, costs.sequences)
        if costs.plan.tensor == 1:
            return h
        size, kind = costs.sequences * layer.outputs * costs.number, CollectiveType.ALL_GATHER
        return self.tape.collective(f"gather_{name}", kind, "tensor", size, h)

    # ---- backward ----

    def linear_back(
        self, name: str, layer: Linear, dy: Nodes, tokens: int = 0
    ) -> tuple[Nodes, Nodes]:
        """Write the gradients of a linear layer's input and weight."""
        tokens = tokens or self.costs.tokens
        dx = self.tape.compute(f"mm.{name}.dx", self.costs.linear_dx(layer, tokens), dy)
        cost = self.costs.linear_dw(layer, tokens)
        write = partial(self.tape.compute, f"mm.{name}.dw", cost, dy)
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
        return self.tape.collective(f"sum_{name}", kind, "tensor", size, dx), dw

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
        cost = self.costs.linear_dx(layer, read.tokens)
        dx = self.tape.compute(f"mm.{name}.dx", cost, dy)
        if read.summed:
            dx = self.total(f"sum_dx{block}.{where}", dx, read.whole)
        cost = self.costs.linear_dw(layer, read.tokens)

        def write() -> Nodes:
            both = tuple(dict.fromkeys((*dy, *(x or gather()))))
            return self.tape.compute(f"mm.{name}.dw", cost, both)

        return dx, self.gradient(write, self._weights_of(name))

    def _weights_of(self, name: str) -> str:
        of_expert = self.costs.shape.experts and name.startswith(("up.", "down."))
        return "experts" if of_expert else "dense"
