"""What sampling keeps of nodes that are done: keys, values, encodings; nothing is encoded twice."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerdag.models.autoregressive import TrunkBlock, segment_mean, slopes

_FIRST_CAPACITY = 64


class Columns:
    """One entry per row and position, shape (rows, positions, ...), that grows with the positions.

    Rows come first: what one row reads of a window of positions lies together.
    """

    def __init__(
        self, rows: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> None:
        self.data = torch.zeros((rows, _FIRST_CAPACITY, *shape), dtype=dtype, device=device)

    def write(self, position: int, value: Tensor | int) -> None:
        """Set the entry of every row at ``position``."""
        if position >= self.data.shape[1]:
            self.data = torch.cat([self.data, torch.zeros_like(self.data)], dim=1)
        self.data[:, position] = value

    def at(self, row_P: Tensor, position_P: Tensor) -> Tensor:
        """Return the entries of pairs of row and position; faster than an index of two tensors."""
        index_P = row_P * self.data.shape[1] + position_P
        return self.data.flatten(0, 1).index_select(0, index_P)

    def select(self, row_R: Tensor) -> None:
        """Keep the rows ``row_R``."""
        self.data = self.data.index_select(0, row_R)


class Pages:
    """One vector a row and position, kept as pages of one attention block each.

    Shape (pages, rows, block, width): a page is contiguous over all rows, and products with all of
    it run three times as fast as with a slice of the positions of (rows, positions, width).
    """

    def __init__(self, rows: int, block: int, like_RD: Tensor) -> None:
        self.block = block
        self.data = like_RD.new_zeros((1, rows, block, like_RD.shape[1]))

    def write(self, position: int, value_RD: Tensor) -> None:
        """Set the vector of every row at ``position``."""
        page, index = divmod(position, self.block)
        if page == self.data.shape[0]:
            self.data = torch.cat([self.data, torch.zeros_like(self.data)])
        self.data[page, :, index] = value_RD

    def at(self, row_P: Tensor, position_P: Tensor) -> Tensor:
        """Return the vectors of pairs of row and position, shape (P, D)."""
        page_P, place_P = position_P // self.block, position_P % self.block
        index_P = (page_P * self.data.shape[1] + row_P) * self.block + place_P
        return self.data.flatten(0, 2).index_select(0, index_P)

    def select(self, row_R: Tensor) -> None:
        """Keep the rows ``row_R``."""
        self.data = self.data.index_select(1, row_R)


class TrunkCache:
    """Keys and values of one trunk block; row r * heads + h of a page is head h of row r."""

    def __init__(self, rows: int, heads: int, block: int, like_RD: Tensor) -> None:
        self.heads, self.block = heads, block
        like_Qd = like_RD.new_zeros((rows * heads, like_RD.shape[1] // heads))
        self.key, self.value = (Pages(rows * heads, block, like_Qd) for _ in range(2))
        self.far_key, self.far_value = (
            Columns(rows * heads, (like_Qd.shape[1],), like_RD.dtype, like_RD.device)
            for _ in range(2)
        )

    def attend(self, query_RD: Tensor, sight: "Sight") -> Tensor:
        """Return the attention of the newest token over its window and the summaries, (R, D)."""
        query_Q1d = query_RD.reshape(-1, 1, query_RD.shape[1] // self.heads)
        query_Q1d = query_Q1d * query_Q1d.shape[2] ** -0.5
        scores = [torch.bmm(query_Q1d, self.key.data[i].transpose(1, 2)) for i in sight.pages]
        if sight.far:
            scores.append(torch.bmm(query_Q1d, self.far_key.data[:, : sight.far].transpose(1, 2)))
        score_Q1C = torch.cat(scores, dim=2)
        score_Q1C.unflatten(0, (-1, self.heads)).add_(sight.bias_H1C)
        widths = [self.block] * len(sight.pages) + [sight.far] * (sight.far > 0)
        weights = score_Q1C.softmax(-1).split(widths, dim=2)
        seen_Q1d = torch.bmm(weights[0], self.value.data[sight.pages[0]])
        for weight_Q1b, i in zip(weights[1:], sight.pages[1:], strict=False):
            seen_Q1d = torch.baddbmm(seen_Q1d, weight_Q1b, self.value.data[i])
        if sight.far:
            seen_Q1d = torch.baddbmm(seen_Q1d, weights[-1], self.far_value.data[:, : sight.far])
        return seen_Q1d.reshape(query_RD.shape)

    def write(self, position: int, key_RD: Tensor, value_RD: Tensor) -> None:
        """Append the newest token; a block that is full is summed up."""
        head_width = self.key.data.shape[-1]
        self.key.write(position, key_RD.reshape(-1, head_width))
        self.value.write(position, value_RD.reshape(-1, head_width))
        if position % self.block == self.block - 1:
            page = position // self.block
            self.far_key.write(page, self.key.data[page].mean(1))
            self.far_value.write(page, self.value.data[page].mean(1))

    def parents_mean(self, parents: "ParentList") -> Tensor:
        """Return the mean value of the parents of each row's newest node, shape (R, D)."""
        row_PH = self._head_rows(parents.row_P)
        position_PH = parents.position_P[:, None].expand_as(row_PH)
        value_PHd = self.value.at(row_PH.flatten(), position_PH.flatten())
        return parents.mean(value_PHd.unflatten(0, row_PH.shape).flatten(1))

    def select(self, row_R: Tensor) -> None:
        """Keep the rows ``row_R``."""
        for part in (self.key, self.value, self.far_key, self.far_value):
            part.select(self._head_rows(row_R).flatten())

    def _head_rows(self, row_R: Tensor) -> Tensor:
        """Return the rows of each head, shape (R, H)."""
        return row_R[:, None] * self.heads + torch.arange(self.heads, device=row_R.device)


def window(position: int, block: int) -> tuple[int, int]:
    """Return the first position in sight of a token, and how many blocks it sees as summaries."""
    return max(position // block - 1, 0) * block, max(position // block - 1, 0)


@dataclass(frozen=True, eq=False)
class Sight:
    """What the newest token may see, the same in every trunk block.

    Attributes:
        pages: Of the positions that it sees one by one.
        far: Number of earlier blocks that it sees as summaries.
        bias_H1C: What is added to the scores: the distance penalty, nothing for summaries. The rest
            of the newest page, not yet written, is ruled out.
    """

    pages: range
    far: int
    bias_H1C: Tensor

    @classmethod
    def of(cls, position: int, block: int, slope_H: Tensor) -> "Sight":
        """Return what a token at ``position`` may see; ``slope_H`` is the penalty of each head."""
        low, far = window(position, block)
        pages = range(low // block, position // block + 1)
        distance_W = position - torch.arange(low, pages.stop * block, device=slope_H.device)
        bias_HW = -slope_H[:, None] * distance_W
        bias_HW = bias_HW.masked_fill(distance_W < 0, -torch.inf)
        return cls(pages, far, torch.nn.functional.pad(bias_HW, (0, far))[:, None])


class EncoderCache:
    """Everything the decisions read of earlier tokens, for every position and row."""

    def __init__(
        self, trunk: Sequence[TrunkBlock], block: int, key_width: int, like_RD: Tensor
    ) -> None:
        rows, width = like_RD.shape
        self.block = block
        self.levels = [(level, TrunkCache(rows, level.heads, block, like_RD)) for level in trunk]
        self.slope_H = slopes(trunk[0].heads, like_RD.device)
        self.encoded, self.pointer_key, self.block_key = (
            Columns(rows, (size,), like_RD.dtype, like_RD.device)
            for size in (width, key_width, key_width)
        )

    def encode(self, x_RD: Tensor, position: int, parents: "ParentList") -> Tensor:
        """Return the trunk's output for the newest token, from its input and its parents."""
        sight = Sight.of(position, self.block, self.slope_H)
        for level, cache in self.levels:
            query_RD, key_RD, value_RD = level.query_key_value(level.norm(x_RD)).chunk(3, dim=1)
            cache.write(position, key_RD, value_RD)
            seen_RD = cache.attend(query_RD, sight)
            x_RD = level.finish(x_RD, seen_RD, cache.parents_mean(parents))
        return x_RD

    def remember(self, position: int, encoded_RD: Tensor, key_RK: Tensor) -> None:
        """Store the encoding and the pointer key of the newest token."""
        self.encoded.write(position, encoded_RD)
        self.pointer_key.write(position, key_RK)
        if position % self.block == self.block - 1:
            key_RbK = self.pointer_key.data[:, position + 1 - self.block : position + 1]
            self.block_key.write(position // self.block, key_RbK.mean(1))

    def select(self, row_R: Tensor) -> None:
        """Keep the rows ``row_R``."""
        for _, cache in self.levels:
            cache.select(row_R)
        for part in (self.encoded, self.pointer_key, self.block_key):
            part.select(row_R)


class ParentList:
    """The parents of the newest node of every row, as pairs of row and position."""

    def __init__(self, row_P: Tensor, position_P: Tensor, degree_R: Tensor) -> None:
        self.row_P, self.position_P, self.degree_R = row_P, position_P, degree_R

    def mean(self, value_PD: Tensor) -> Tensor:
        """Return the mean of the parents' values, zero without parents, shape (R, D)."""
        return segment_mean(value_PD, self.row_P, self.degree_R)
