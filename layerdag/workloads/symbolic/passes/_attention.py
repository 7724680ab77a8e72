"""Attention blocks of one rank: with keys and values of their own heads, or with latent ones.

Context parallelism gathers keys and values over the context ranks, as for Llama 3.
"""

from dataclasses import dataclass
from typing import final

from layerdag.traces import CollectiveType
from layerdag.workloads.symbolic.costs import Costs
from layerdag.workloads.symbolic.passes._blocks import BlockWriter
from layerdag.workloads.symbolic.passes._latent_attention import LatentWriter
from layerdag.workloads.symbolic.passes._tape import Nodes


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
            h = write.tape.compute(f"attention.{where}.again", costs.attention(), h)
        h = self._core_back(where, h)
        if costs.latent:
            h, dw = LatentWriter(write, costs.latent).expand_back(where, h)
        else:
            read = write.stream
            h, dw = write.split_by_columns_back(f"qkv.{where}", costs.qkv, h, "1", read)
        return h, (*out_dw, *dw)

    def _core(self, where: str, h: Nodes) -> Nodes:
        """Write the attention core; keys and values come from all context ranks."""
        costs, tape = self._costs, self.write.tape
        if costs.plan.context > 1:
            size, kind = costs.keys_and_values, CollectiveType.ALL_GATHER
            h = tape.collective(f"gather_kv.{where}", kind, "context", size, h)
        return tape.compute(f"attention.{where}", costs.attention(), h)

    def _core_back(self, where: str, dy: Nodes) -> Nodes:
        costs, tape = self._costs, self.write.tape
        h = tape.compute(f"attention.{where}", costs.attention_back(), dy)
        if costs.plan.context == 1:
            return h
        size, kind = costs.keys_and_values * costs.plan.context, CollectiveType.REDUCE_SCATTER
        return tape.collective(f"sum_dkv.{where}", kind, "context", size, h)
