"""Forward and backward pass of a transformer layer, as one rank runs them."""

from dataclasses import dataclass
from typing import final

from layerdag.workloads.symbolic.passes._attention import AttentionWriter
from layerdag.workloads.symbolic.passes._blocks import BlockWriter
from layerdag.workloads.symbolic.passes._feed_forward import FeedForwardWriter, Passed
from layerdag.workloads.symbolic.passes._tape import Nodes


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

    def backward(self, where: str, dy: Nodes) -> Passed:
        """Write the backward pass of a layer; ``dy`` makes the gradient of its output."""
        write, h = self.write, dy
        if write.costs.plan.recompute == "full":
            h = self.forward(f"{where}.again", dy)
        passed = FeedForwardWriter(write).backward(where, h)
        h = write.norm_back(f"norm2.{where}", passed.dx)
        h, attention_dw = AttentionWriter(write).backward(where, h)
        h = write.norm_back(f"norm1.{where}", h)
        h, scale_dw = write.columns_back(f"modulation.{where}", write.costs.modulation, h)
        made = (*passed.dense, *attention_dw, *scale_dw, *h)
        return Passed(h, made, passed.experts)
