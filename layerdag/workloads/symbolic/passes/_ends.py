"""What stands before and after the layers: embeddings, output layer, loss, next token."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from layerdag.traces import CollectiveType
from layerdag.workloads.symbolic.costs import Costs, condition, condition_back
from layerdag.workloads.symbolic.passes._blocks import BlockWriter
from layerdag.workloads.symbolic.passes._tape import Nodes

_LOSS_BYTES = 4  # the loss is computed in single precision


@dataclass(frozen=True)
class EndsWriter:
    """Writes the passes of the first and the last stage that are not layers.

    Attributes:
        write: Writer of what layers consist of, on the same tape.
        costs: Costs of the rank.
    """

    write: BlockWriter
    costs: Costs

    # ---- before the layers ----

    def enter(self, where: str, after: Nodes) -> Nodes:
        """Write the embedding of tokens, or of patches, time step and label."""
        tape, costs = self.write.tape, self.costs
        if costs.shape.image is None:
            x = tape.compute(f"embedding.{where}", costs.embedding(), after)
            return self.write.total(f"sum.embedding.{where}", x)
        if costs.condition_bytes:
            after = tape.compute(f"mm.condition.{where}", condition(costs), after)
        cost = costs.linear(costs.patches, costs.own_patches)
        return tape.compute(f"mm.patches.{where}", cost, after)

    def enter_back(self, where: str, dy: Nodes) -> Nodes:
        """Write the gradients of embeddings; nobody needs those of tokens and pixels."""
        return self.write.gradient(partial(self._embedding_back, where, dy))

    def _embedding_back(self, where: str, dy: Nodes) -> Nodes:
        tape, costs = self.write.tape, self.costs
        if costs.shape.image is None:
            dy = self.write.gather(f"gather.embedding.{where}", dy)
            return tape.compute(f"embedding.{where}", costs.embedding(), dy)
        cost = costs.linear_dw(costs.patches, costs.own_patches)
        made = tape.compute(f"mm.patches.{where}.dw", cost, dy)
        if costs.condition_bytes:
            made = tape.compute(f"mm.condition.{where}.dw", condition_back(costs), made)
        return made

    # ---- after the layers ----

    def head(self, where: str, x: Nodes) -> Nodes:
        """Write the last norm, the output layer, and the loss or what inference makes of it."""
        costs, write = self.costs, self.write
        x = write.columns(f"modulation.head.{where}", costs.last_modulation, x)
        cost = costs.elementwise(costs.own_tokens, costs.shape.hidden)
        h = write.tape.compute(f"norm.{where}", cost, x)
        h = write.gather(f"gather.head.{where}", h)
        cost = costs.linear(costs.logits, costs.head_tokens)
        h = write.tape.compute(f"mm.logits.{where}", cost, h)
        return self._loss(where, h) if costs.step.training else self._result(where, h)

    def _loss(self, where: str, h: Nodes) -> Nodes:
        costs, tape = self.costs, self.write.tape
        cost = costs.elementwise(costs.head_tokens, costs.logits.outputs)
        if costs.plan.tensor == 1:
            return tape.compute(f"loss.{where}", cost, h)
        # The softmax over a split vocabulary: its maximum, the target's logit, its sum. A squared
        # error (diffusion) has the sum only.
        for name in ("sum",) if costs.condition_bytes else ("max", "target", "sum"):
            if name == "sum":
                h = tape.compute(f"loss.{where}", cost, h)
            size = costs.head_tokens * _LOSS_BYTES
            kind = CollectiveType.ALL_REDUCE
            h = tape.collective(f"loss_{name}.{where}", kind, "tensor", size, h)
        return h

    def _result(self, where: str, logits: Nodes) -> Nodes:
        """Write the gather of outputs, and the choice of the next token where words are made."""
        costs, tape = self.costs, self.write.tape
        if costs.plan.tensor > 1:
            size = costs.head_tokens * costs.logits.outputs * costs.number
            kind = CollectiveType.ALL_GATHER
            logits = tape.collective(f"gather_logits.{where}", kind, "tensor", size, logits)
        if costs.shape.image:
            return logits
        width = costs.logits.outputs * costs.plan.tensor
        cost = costs.elementwise(costs.sequences, width, 1)
        return tape.compute(f"sample.{where}", cost, logits)

    def head_back(self, where: str, loss: Nodes) -> tuple[Nodes, Nodes]:
        """Write the backward pass; return what makes dx, and gradients of weights."""
        costs, tape = self.costs, self.write.tape
        cost = costs.elementwise(costs.head_tokens, costs.logits.outputs)
        dy = tape.compute(f"loss.{where}", cost, loss)
        gather = partial(self.write.gather, f"gather_again.head.{where}", dy)
        x = () if costs.plan.splits_backward else gather()
        cost = costs.linear_dx(costs.logits, costs.head_tokens)
        dx = tape.compute(f"mm.logits.{where}.dx", cost, dy)
        dx = self.write.total(f"sum_dx.head.{where}", dx)
        dw = self.write.gradient(self._logits_back(where, dy, x, gather))
        cost = costs.elementwise(costs.own_tokens, costs.shape.hidden, 3)
        dx = tape.compute(f"norm.{where}", cost, dx)
        dx, scale_dw = self.write.columns_back(
            f"modulation.head.{where}", costs.last_modulation, dx
        )
        return dx, (*dw, *scale_dw, *dx)

    def _logits_back(
        self, where: str, dy: Nodes, x: Nodes, gather: Callable[[], Nodes]
    ) -> Callable[[], Nodes]:
        cost = self.costs.linear_dw(self.costs.logits, self.costs.head_tokens)

        def write() -> Nodes:
            both = tuple(dict.fromkeys((*dy, *(x or gather()))))
            return self.write.tape.compute(f"mm.logits.{where}.dw", cost, both)

        return write
