"""The encoder's step for the newest tokens of all rows, which have the same position.

Of the window encoder all but the matrix products is C; other encoders take their own step.

Under guidance a graph has two rows of the encoder, its passes, which follow each other.

Shape letters: B graphs, D width of a state, K codes, R rows, X selected graphs.
"""

import ctypes
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import cast, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.models.fast.encoder import (
    Encoder,
    EncoderBlock,
    EncoderSteps,
    NewestTokens,
    ParentList,
    WindowEncoder,
)
from layerdag.models.fast.sampling_kernels import RowMemory
from layerdag.models.layers import LinearMap


@dataclass(frozen=True, eq=False)
class EdgesToParents:
    """Edges to the newest nodes."""

    row_X: Int[Tensor, " X"]
    parent_X: Int[Tensor, " X"]  # position of the parent
    type_X: Int[Tensor, " X"]  # type of the edge


class RowEncoding(ABC):
    """An encoder with what it keeps of the tokens of each row."""

    @abstractmethod
    def step(
        self,
        x_RD: Float[Tensor, "R D"],
        position: int,
        sample_B: Int[np.ndarray, " B"],
        newest: EdgesToParents,
    ) -> Float[Tensor, "R D"]:
        """Return the states of newest tokens, before the last normalization; contiguous.

        The tokens are written over.
        """

    @abstractmethod
    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R`` of the encoder."""


@dataclass(frozen=True, eq=False)
class EncoderLayer:
    """The maps of an encoder block."""

    scale_D: Float[Tensor, " D"]  # of the normalization before attention
    query_key_value: LinearMap  # of attention
    mix: LinearMap  # of what attention and messages bring
    feed_scale_D: Float[Tensor, " D"]  # of the normalization before the feed-forward network
    widen: LinearMap  # its first map
    narrow: LinearMap  # its second one

    @classmethod
    def of(cls, block: EncoderBlock) -> "EncoderLayer":
        """Return the maps of a module."""
        norm, widen, _, narrow = block.feed
        return cls(
            block.norm.weight.detach(),
            LinearMap.of(block.query_key_value),
            LinearMap.of(block.mix),
            cast(nn.LayerNorm, norm).weight.detach(),
            LinearMap.of(cast(nn.Linear, widen)),
            LinearMap.of(cast(nn.Linear, narrow)),
        )


@final
class KernelLayers(RowEncoding):
    """The window encoder, whose memory is that of the kernels."""

    def __init__(self, encoder: WindowEncoder, memory: RowMemory) -> None:
        self.memory = memory
        self.layers = [EncoderLayer.of(block) for block in encoder.encoder_blocks]

    def step(
        self,
        x_RD: Float[Tensor, "R D"],
        position: int,
        sample_B: Int[np.ndarray, " B"],
        newest: EdgesToParents,
    ) -> Float[Tensor, "R D"]:
        """Return the states of newest tokens, before the last normalization."""
        call, rows = self.memory.call, x_RD.shape[0]
        read_RD = torch.empty(rows, 2 * x_RD.shape[1])  # attended, and from the parents
        normed_RD = torch.empty_like(x_RD)
        for layer, memory in zip(self.layers, self.memory.layers, strict=True):
            call("normalize", sample_B, rows, x_RD, layer.scale_D, normed_RD)
            call(
                "attend",
                sample_B,
                ctypes.addressof(memory),
                layer.query_key_value(normed_RD),
                newest.row_X.shape[0],
                newest.row_X,
                newest.parent_X,
                read_RD,
            )
            x_RD = x_RD.addmm_(read_RD, layer.mix.weight_DK)
            call("normalize", sample_B, rows, x_RD, layer.feed_scale_D, normed_RD)
            wide_RK = layer.widen(normed_RD)
            call("gelu", sample_B, wide_RK.numel(), wide_RK)
            x_RD = x_RD.addmm_(wide_RK, layer.narrow.weight_DK).add_(layer.narrow.bias_K)
        return x_RD

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``, which ``RowMemory.select`` does."""


@final
class OwnSteps(RowEncoding):
    """An encoder that takes its own steps."""

    def __init__(self, encoder: Encoder, like_RD: Float[Tensor, "R D"], passes: int) -> None:
        self.steps, self.passes = EncoderSteps(encoder, like_RD), passes

    def step(
        self,
        x_RD: Float[Tensor, "R D"],
        position: int,
        sample_B: Int[np.ndarray, " B"],
        newest: EdgesToParents,
    ) -> Float[Tensor, "R D"]:
        """Return the states of newest tokens, before the last normalization."""
        pass_X = torch.arange(self.passes).repeat(newest.row_X.shape[0])
        row_X = newest.row_X.repeat_interleave(self.passes) * self.passes + pass_X
        parent_X = newest.parent_X.repeat_interleave(self.passes)
        degree_R = torch.bincount(row_X, minlength=x_RD.shape[0])
        return self.steps.step(x_RD, NewestTokens(position, ParentList(row_X, parent_X, degree_R)))

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R`` of the encoder."""
        self.steps.select(row_R)
