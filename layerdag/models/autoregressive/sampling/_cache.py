"""Caches of sampling: keys, values and encodings of earlier tokens, each computed once.

Shape letters: D width of a state, H heads, P pairs, R rows (of the encoder), Y heads of all rows (R
H), b tokens of a block, d width of a head or key, w window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from layerdag.models.autoregressive import EncoderBlock, alibi_slopes
from layerdag.models.layers import segment_mean

_INITIAL_POSITIONS = 64


class PositionBuffer:
    """One entry per row and position, shape (rows, positions, ...), growing with the positions.

    Rows come first, so that the window of a row is contiguous.
    """

    def __init__(
        self, rows: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> None:
        self.data = torch.zeros((rows, _INITIAL_POSITIONS, *shape), dtype=dtype, device=device)

    def write(self, position: int, value: Shaped[Tensor, "R ..."] | int) -> None:
        """Set the entry of every row at ``position``."""
        if position >= self.data.shape[1]:
            self.data = torch.cat([self.data, torch.zeros_like(self.data)], dim=1)
        self.data[:, position] = value

    def at(
        self, row_P: Int[Tensor, " P"], position_P: Int[Tensor, " P"]
    ) -> Shaped[Tensor, "P ..."]:
        """Return the entries of pairs of row and position; faster than by two index tensors."""
        index_P = row_P * self.data.shape[1] + position_P
        return self.data.flatten(0, 1).index_select(0, index_P)

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``."""
        self.data = self.data.index_select(0, row_R)


class PagedBuffer:
    """One vector per row and position, stored as pages of one attention block each.

    Shape (pages, rows, block, width): a page is contiguous over all rows, and products with a page
    run three times as fast as with a slice of positions of (rows, positions, width).
    """

    def __init__(self, rows: int, block: int, like_RD: Float[Tensor, "R d"]) -> None:
        self.block = block
        self.data = like_RD.new_zeros((1, rows, block, like_RD.shape[1]))

    def write(self, position: int, value_RD: Float[Tensor, "R d"]) -> None:
        """Set the vector of every row at ``position``."""
        page, index = divmod(position, self.block)
        if page == self.data.shape[0]:
            self.data = torch.cat([self.data, torch.zeros_like(self.data)])
        self.data[page, :, index] = value_RD

    def at(self, row_P: Int[Tensor, " P"], position_P: Int[Tensor, " P"]) -> Float[Tensor, "P d"]:
        """Return the vectors of pairs of row and position, shape (P, D)."""
        page_P, offset_P = position_P // self.block, position_P % self.block
        index_P = (page_P * self.data.shape[1] + row_P) * self.block + offset_P
        return self.data.flatten(0, 2).index_select(0, index_P)

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``."""
        self.data = self.data.index_select(1, row_R)


class EncoderBlockCache:
    """Keys and values of one encoder block; row r * heads + h of a page is head h of row r."""

    def __init__(self, rows: int, heads: int, block: int, like_RD: Float[Tensor, "R D"]) -> None:
        self.heads, self.block = heads, block
        like_Yd = like_RD.new_zeros((rows * heads, like_RD.shape[1] // heads))
        self.key, self.value = (PagedBuffer(rows * heads, block, like_Yd) for _ in range(2))
        self.pooled_key, self.pooled_value = (
            PositionBuffer(rows * heads, (like_Yd.shape[1],), like_RD.dtype, like_RD.device)
            for _ in range(2)
        )

    def attend(
        self, query_RD: Float[Tensor, "R D"], visible: "VisibleWindow"
    ) -> Float[Tensor, "R D"]:
        """Return the attention of the newest token over window and pooled blocks, (R, D)."""
        query_Y1d = query_RD.reshape(-1, 1, query_RD.shape[1] // self.heads)
        query_Y1d = query_Y1d * query_Y1d.shape[2] ** -0.5
        scores = [torch.bmm(query_Y1d, self.key.data[i].transpose(1, 2)) for i in visible.pages]
        if visible.num_pooled:
            scores.append(
                torch.bmm(query_Y1d, self.pooled_key.data[:, : visible.num_pooled].transpose(1, 2))
            )
        score_Y1w = torch.cat(scores, dim=2)
        score_Y1w.unflatten(0, (-1, self.heads)).add_(visible.bias_H1w)
        widths = [self.block] * len(visible.pages) + [visible.num_pooled] * (visible.num_pooled > 0)
        weights = score_Y1w.softmax(-1).split(widths, dim=2)
        attended_Y1d = torch.bmm(weights[0], self.value.data[visible.pages[0]])
        for weight_Y1b, i in zip(weights[1:], visible.pages[1:], strict=False):
            attended_Y1d = torch.baddbmm(attended_Y1d, weight_Y1b, self.value.data[i])
        if visible.num_pooled:
            attended_Y1d = torch.baddbmm(
                attended_Y1d, weights[-1], self.pooled_value.data[:, : visible.num_pooled]
            )
        return attended_Y1d.reshape(query_RD.shape)

    def write(
        self, position: int, key_RD: Float[Tensor, "R D"], value_RD: Float[Tensor, "R D"]
    ) -> None:
        """Append the newest token; a complete block is pooled."""
        head_width = self.key.data.shape[-1]
        self.key.write(position, key_RD.reshape(-1, head_width))
        self.value.write(position, value_RD.reshape(-1, head_width))
        if position % self.block == self.block - 1:
            page = position // self.block
            self.pooled_key.write(page, self.key.data[page].mean(1))
            self.pooled_value.write(page, self.value.data[page].mean(1))

    def parents_mean(self, parents: "ParentList") -> Float[Tensor, "R D"]:
        """Return the mean value of the parents of each row's newest node, shape (R, D)."""
        row_PH = self._head_rows(parents.row_P)
        position_PH = parents.position_P[:, None].expand_as(row_PH)
        value_PHd = self.value.at(row_PH.flatten(), position_PH.flatten())
        return parents.mean(value_PHd.unflatten(0, row_PH.shape).flatten(1))

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``."""
        for part in (self.key, self.value, self.pooled_key, self.pooled_value):
            part.select(self._head_rows(row_R).flatten())

    def _head_rows(self, row_R: Int[Tensor, " R"]) -> Int[Tensor, "R H"]:
        """Return the rows of each head, shape (R, H)."""
        return row_R[:, None] * self.heads + torch.arange(self.heads, device=row_R.device)


def visible_range(position: int, block: int) -> tuple[int, int]:
    """Return the first position of a token's window, and the number of earlier (pooled) blocks."""
    return max(position // block - 1, 0) * block, max(position // block - 1, 0)


@dataclass(frozen=True, eq=False)
class VisibleWindow:
    """The attention window of the newest token, the same in every encoder block.

    Attributes:
        pages: Pages of the positions in the window.
        num_pooled: Number of earlier blocks, each visible as one mean.
        bias_H1w: Added to the scores: the distance penalty, 0 for pooled blocks, -inf for the
            positions of the newest page that are not yet written.
    """

    pages: range
    num_pooled: int
    bias_H1w: Float[Tensor, "H 1 w"]

    @classmethod
    def of(cls, position: int, block: int, slope_H: Float[Tensor, " H"]) -> "VisibleWindow":
        """Return the window of a token at ``position``; ``slope_H`` is the penalty of each head."""
        low, num_pooled = visible_range(position, block)
        pages = range(low // block, position // block + 1)
        distance_w = position - torch.arange(low, pages.stop * block, device=slope_H.device)
        bias_Hw = -slope_H[:, None] * distance_w
        bias_Hw = bias_Hw.masked_fill(distance_w < 0, -torch.inf)
        return cls(pages, num_pooled, torch.nn.functional.pad(bias_Hw, (0, num_pooled))[:, None])


class EncoderCache:
    """Encodings, keys and values of earlier tokens, for every position and row."""

    def __init__(
        self,
        encoder: Sequence[EncoderBlock],
        block: int,
        key_width: int,
        like_RD: Float[Tensor, "R D"],
    ) -> None:
        rows, width = like_RD.shape
        self.block = block
        self.blocks = [
            (encoder_block, EncoderBlockCache(rows, encoder_block.heads, block, like_RD))
            for encoder_block in encoder
        ]
        self.slope_H = alibi_slopes(encoder[0].heads, like_RD.device)
        self.encoded, self.pointer_key, self.block_key = (
            PositionBuffer(rows, (size,), like_RD.dtype, like_RD.device)
            for size in (width, key_width, key_width)
        )

    def encode(
        self, x_RD: Float[Tensor, "R D"], position: int, parents: "ParentList"
    ) -> Float[Tensor, "R D"]:
        """Return the encoder's output for the newest token, from its input and its parents."""
        visible = VisibleWindow.of(position, self.block, self.slope_H)
        for encoder_block, cache in self.blocks:
            query_RD, key_RD, value_RD = encoder_block.query_key_value(
                encoder_block.norm(x_RD)
            ).chunk(3, dim=1)
            cache.write(position, key_RD, value_RD)
            attended_RD = encoder_block.attention(
                query_RD, partial(cache.attend, query_RD, visible)
            )
            message_RD = encoder_block.messages(value_RD, partial(cache.parents_mean, parents))
            x_RD = encoder_block.finish(x_RD, attended_RD, message_RD)
        return x_RD

    def append(
        self, position: int, encoded_RD: Float[Tensor, "R D"], key_Rd: Float[Tensor, "R d"]
    ) -> None:
        """Store the encoding and the pointer key of the newest token."""
        self.encoded.write(position, encoded_RD)
        self.pointer_key.write(position, key_Rd)
        if position % self.block == self.block - 1:
            key_Rbd = self.pointer_key.data[:, position + 1 - self.block : position + 1]
            self.block_key.write(position // self.block, key_Rbd.mean(1))

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``."""
        for _, cache in self.blocks:
            cache.select(row_R)
        for part in (self.encoded, self.pointer_key, self.block_key):
            part.select(row_R)


class ParentList:
    """The parents of the newest node of every row, as pairs of row and position."""

    def __init__(
        self, row_P: Int[Tensor, " P"], position_P: Int[Tensor, " P"], degree_R: Int[Tensor, " R"]
    ) -> None:
        self.row_P, self.position_P, self.degree_R = row_P, position_P, degree_R

    def mean(self, value_PD: Float[Tensor, "P D"]) -> Float[Tensor, "R D"]:
        """Return the mean of the parents' values, zero without parents, shape (R, D)."""
        return segment_mean(value_PD, self.row_P, self.degree_R)
