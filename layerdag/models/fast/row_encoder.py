"""The encoder's step for the newest token of every row.

With the window encoder each row has a position of its own, and nothing waits for the host. Encoders
of users take one step at a time for all rows, which then wait for each other.

Shape letters: A node attributes, B graphs, D width of a state, F feature columns, J position
buckets, K codes, P pairs (of a row and a parent), R rows, T tokens, Z attention blocks, b tokens of
a block, d width of a head or key, p parents of a node.
"""

from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerdag.errors import UsageError
from layerdag.models.fast.encoder import Encoder, NewestTokens, ParentList, has_own_positions
from layerdag.models.fast.sampling_inputs import Extent, RowNumbers, SamplingTask
from layerdag.models.fast.sampling_rows import GraphRows, TokenRows
from layerdag.models.fast.tokens import Feature
from layerdag.models.layers import LinearMap


@dataclass(eq=False)
class EncoderMemory:
    """An encoder with what it keeps of the tokens of each row.

    With a window encoder rows have positions of their own. With any other, all rows whose graphs
    are not finished have the same position.
    """

    encoder: Encoder
    memory: Any
    rows: int

    @classmethod
    def empty(cls, encoder: Encoder, like_RD: Float[Tensor, "R D"], tokens: int) -> "EncoderMemory":
        """Return a memory of R rows without tokens, and with room for so many."""
        if has_own_positions(encoder):
            return cls(encoder, encoder.memory(like_RD, tokens), len(like_RD))
        return cls(encoder, encoder.start(like_RD), len(like_RD))

    def step(
        self,
        x_RD: Float[Tensor, "R D"],
        position_R: Int[Tensor, " R"],
        parent_Rp: Int[Tensor, "R p"],
    ) -> Float[Tensor, "R D"]:
        """Return the states of newest tokens; parents end with zeros.

        Raises:
            UsageError: If the encoder returns another shape.
        """
        encoder = self.encoder
        if has_own_positions(encoder):
            x_RD = encoder.step_rows(x_RD, position_R, parent_Rp, self.memory)
            self.memory.pool(position_R)
            return x_RD
        row_P, column_P = parent_Rp.nonzero().unbind(1)
        parents = ParentList(row_P, parent_Rp[row_P, column_P], (parent_Rp > 0).sum(1))
        # Finished rows are behind.
        newest = NewestTokens(int(position_R.max()), parents)
        found_RD, self.memory = encoder.step(x_RD, newest, self.memory)
        if found_RD.shape != x_RD.shape:
            raise UsageError(
                f"step() of the encoder {type(encoder).__name__} must return one state for each "
                f"row, shape {tuple(x_RD.shape)}; it returned {tuple(found_RD.shape)}."
            )
        return found_RD.to(x_RD.dtype).contiguous()

    def copy_rows(self, target_R: Int[Tensor, " R"], source_R: Int[Tensor, " R"]) -> None:
        """Replace the rows ``target_R`` by the rows ``source_R``."""
        if has_own_positions(self.encoder):
            self.memory.copy_rows(target_R, source_R)
            return
        row_R = torch.arange(self.rows, device=source_R.device)
        row_R[target_R] = source_R
        self.memory = self.encoder.select(self.memory, row_R)

    def moved(self, row_R: Int[Tensor, " R"], tokens: int) -> "EncoderMemory":
        """Return the rows ``row_R`` with room for so many tokens, not fewer."""
        if has_own_positions(self.encoder):
            memory = self.memory.moved(row_R, tokens)
        else:
            memory = self.encoder.select(self.memory, row_R)
        return EncoderMemory(self.encoder, memory, len(row_R))


@final
class RowEncoder:
    """Encodes newest tokens."""

    def __init__(
        self,
        task: SamplingTask,
        extent: Extent,
        numbers: RowNumbers,
        graphs: GraphRows,
        memory: EncoderMemory,
    ) -> None:
        modules, heads = task.modules, task.modules.heads
        self.task, self.extent, self.graphs, self.memory = task, extent, graphs, memory
        self.guidance, self.block, self._row_R = task.guidance, modules.block, numbers.row_R
        of_parents = [heads.first_parent, heads.last_parent, heads.all_parents]
        of_parents += [] if heads.chosen_parents is None else [heads.chosen_parents]
        self._of_tokens = LinearMap.of(heads.pointer.key, *of_parents)
        width, rows = heads.context.out_features, numbers.row_R.shape[0]
        self.tokens = TokenRows.empty(modules, extent, rows, len(of_parents) * width)
        samples = task.vectors.before_BJD.shape[0] // task.guidance.passes
        self._offset_R = samples * (numbers.row_R // extent.rows)

    def encode(self) -> Float[Tensor, "R D"]:
        """Encode the newest token of every row and remember it."""
        graphs, modules, tokens = self.graphs, self.task.modules, self.tokens
        duplicate = self.guidance.duplicate
        position_B = graphs.feature_BF[:, Feature.POSITION].contiguous()
        before_RD, after_RD = self._conditions(position_B)
        embedded_BD = modules.tokens(graphs.code_BA, graphs.feature_BF)
        position_R, parent_Rp = duplicate(position_B), duplicate(graphs.parent_Bp)
        x_RD = self.memory.step(duplicate(embedded_BD) + before_RD, position_R, parent_Rp)
        encoded_RD: Tensor = modules.last_norm(x_RD) + after_RD
        key_width = tokens.key_RTd.shape[2]
        key_Rd, projection_RK = self._of_tokens(encoded_RD).split(
            (key_width, tokens.projection_RTK.shape[2]), dim=1
        )
        place_R = self._row_R * self.extent.tokens + position_R
        tokens.key_RTd.flatten(0, 1).index_copy_(0, place_R, key_Rd)
        tokens.projection_RTK.flatten(0, 1).index_copy_(0, place_R, projection_RK)
        if self.extent.pooled:
            number_R, blocks = position_R // self.block, tokens.block_key_RZd.shape[1]
            key_RZbd = tokens.key_RTd.unflatten(1, (blocks, -1))
            mean_Rd = key_RZbd[self._row_R, number_R].mean(1)
            place_R = self._row_R * blocks + number_R
            tokens.block_key_RZd.flatten(0, 1).index_copy_(0, place_R, mean_Rd)
        return encoded_RD

    def _conditions(self, position_B: Tensor) -> tuple[Tensor, Tensor]:
        vectors, modules, graphs = self.task.vectors, self.task.modules, self.graphs
        duplicate = self.guidance.duplicate
        sample_R = duplicate(graphs.sample_B) + self._offset_R
        bucket_R = duplicate(
            torch.bucketize(position_B, modules.conditions.first_position_J, right=True)
        )
        place_R = sample_R * vectors.before_BJD.shape[1] + bucket_R
        before_RD = vectors.before_BJD.flatten(0, 1)[place_R]
        after_RD = vectors.after_BJD.flatten(0, 1)[place_R]
        if modules.remaining is None:
            return before_RD, after_RD
        layer_R = duplicate(graphs.feature_BF[:, Feature.LAYER])
        remaining_RD = modules.remaining(duplicate(position_B), layer_R, vectors.sizes_B2[sample_R])
        return before_RD + remaining_RD[0], after_RD + remaining_RD[1]
