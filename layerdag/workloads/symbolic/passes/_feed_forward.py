"""Feed-forward blocks of one rank: dense, or a mixture of experts (Lepikhin et al. 2020).

Shared experts, which every token passes, are one block beside the routed ones and split over the
tensor ranks as a dense one is; their output joins the sum of the routed ones (DeepSeek-AI 2024).
"""

from dataclasses import dataclass
from typing import final

from layerdag.traces import CollectiveType
from layerdag.workloads.symbolic.costs import Costs
from layerdag.workloads.symbolic.passes._blocks import BlockWriter, Input
from layerdag.workloads.symbolic.passes._tape import Nodes


@dataclass(frozen=True)
class Passed:
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

    def backward(self, where: str, dy: Nodes) -> Passed:
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
        h = write.gather(f"gather2.{where}", h, costs.routed_stream)
        h = write.linear(f"up.{where}", costs.up, h, costs.routed)
        h = self._activation(f"act.{where}", h, costs.routed)
        h = write.linear(f"down.{where}", costs.down, h, costs.routed)
        if write.sharded:
            h = write.total(f"sum2.{where}", h, costs.stream * costs.shape.experts_per_token)
        h = self._exchange(f"combine.{where}", h)
        h = self._mix(f"mix.{where}", (*h, *shared))
        return h if write.sharded else write.total(f"sum2.{where}", h)

    def _shared(self, where: str, h: Nodes) -> Nodes:
        """Write the shared experts, whose tokens need no exchange."""
        costs, write = self._costs, self.write
        if not costs.shape.shared_experts:
            return ()
        h = write.gather(f"gather_shared.{where}", h)
        h = write.linear(f"shared_up.{where}", costs.shared_up, h)
        h = self._activation(f"shared_act.{where}", h, costs.tokens * costs.shape.shared_experts)
        h = write.linear(f"shared_down.{where}", costs.shared_down, h)
        return write.total(f"sum_shared.{where}", h) if write.sharded else h

    def _mix(self, name: str, after: Nodes) -> Nodes:
        shape = self._costs.shape
        copies = shape.experts_per_token + (shape.shared_experts > 0)
        cost = self._costs.elementwise(self._costs.own_tokens * copies, shape.hidden)
        return self.write.tape.compute(name, cost, after)

    def _exchange(self, name: str, after: Nodes) -> Nodes:
        """Write the exchange of token copies between expert ranks."""
        if self._costs.plan.expert == 1:
            return after
        size, kind = self._costs.routed_stream, CollectiveType.ALL_TO_ALL
        return self.write.tape.collective(name, kind, "expert", size, after)

    def _activation(self, name: str, after: Nodes, tokens: int, tensors: int = 1) -> Nodes:
        shape, tensor = self._costs.shape, self._costs.plan.tensor
        operations, _ = self._costs.elementwise(tokens, shape.feed_forward // tensor)
        width = (shape.up_width + shape.feed_forward) // tensor
        moved = tensors * tokens * width * self._costs.number
        return self.write.tape.compute(name, (tensors * operations, moved), after)

    # ---- backward ----

    def _dense_back(self, where: str, dy: Nodes) -> Passed:
        costs, write = self._costs, self.write
        h = write.gather(f"gather2.{where}", dy)
        h, down_dw = write.linear_back(f"down.{where}", costs.down, h)
        h = self._activation(f"act.{where}", h, costs.tokens, tensors=2)
        h, up_dw = write.split_by_columns_back(f"up.{where}", costs.up, h, "2", write.stream)
        return Passed(h, (*down_dw, *up_dw))

    def _mixture_back(self, where: str, dy: Nodes) -> Passed:
        costs, write = self._costs, self.write
        dy = self._mix(f"mix.{where}", dy)
        shared = self._shared_back(where, dy)
        h = self._exchange(f"combine.{where}", dy)
        h = write.gather(f"gather2.{where}", h, costs.routed_stream)
        h, down_dw = write.linear_back(f"down.{where}", costs.down, h, costs.routed)
        h = self._activation(f"act.{where}", h, costs.routed, tensors=2)
        copies = costs.shape.experts_per_token
        read = Input(costs.routed, costs.routed_stream, costs.stream * copies, write.sharded)
        h, up_dw = write.split_by_columns_back(f"up.{where}", costs.up, h, "2", read)
        h = self._exchange(f"dispatch.{where}", h)
        h = (*h, *shared.dx)
        if not write.sharded:
            h = write.total(f"sum_dx2.{where}", h)
        h, router_dw = write.linear_back(f"router.{where}", costs.router, h, costs.own_tokens)
        return Passed(h, (*router_dw, *shared.dense), (*down_dw, *up_dw))

    def _shared_back(self, where: str, dy: Nodes) -> Passed:
        """Write the backward pass of the shared experts; its sum may be the routed ones', too."""
        costs, write = self._costs, self.write
        if not costs.shape.shared_experts:
            return Passed((), ())
        h = write.gather(f"gather_shared.{where}", dy)
        h, down_dw = write.linear_back(f"shared_down.{where}", costs.shared_down, h)
        count = costs.tokens * costs.shape.shared_experts
        h = self._activation(f"shared_act.{where}", h, count, tensors=2)
        read = Input(costs.tokens, costs.own_stream, costs.stream, write.sharded)
        h, up_dw = write.split_by_columns_back(
            f"shared_up.{where}", costs.shared_up, h, "_shared", read
        )
        return Passed(h, (*down_dw, *up_dw))
