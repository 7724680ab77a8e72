"""What sampling keeps of nodes that are done: keys, values, encodings; nothing is encoded twice."""

from collections.abc import Sequence

import torch
from torch import Tensor

from layerdag.model.fast_trunk import TrunkBlock, segment_mean, slopes

_FIRST_CAPACITY = 64


class Columns:
    """One entry a row and position, shape (rows, positions, ...), that grows with the positions.

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


class TrunkCache:
    """Keys and values of one trunk block; row r * heads + h of a column is head h of row r."""

    def __init__(self, rows: int, heads: int, block: int, like_RD: Tensor) -> None:
        self.heads, self.block = heads, block
        shape = (like_RD.shape[1] // heads,)
        self.key, self.value, self.far_key, self.far_value = (
            Columns(rows * heads, shape, like_RD.dtype, like_RD.device) for _ in range(4)
        )
        self.slope_H = slopes(heads, like_RD.device)

    def attend(self, query_RD: Tensor, position: int) -> Tensor:
        """Return the attention of the newest token over its window and the summaries, (R, D)."""
        low, far = window(position, self.block)
        query_Q1d = query_RD.reshape(-1, 1, query_RD.shape[1] // self.heads)
        query_Q1d = query_Q1d * query_Q1d.shape[2] ** -0.5
        distance_W = position - torch.arange(low, position + 1, device=query_RD.device)
        score_Q1W = torch.bmm(query_Q1d, self.key.data[:, low : position + 1].transpose(1, 2))
        score_Q1W.unflatten(0, (-1, self.heads)).sub_(self.slope_H[:, None, None] * distance_W)
        value_QWd = self.value.data[:, low : position + 1]
        if far == 0:
            return torch.bmm(score_Q1W.softmax(-1), value_QWd).reshape(query_RD.shape)
        score_Q1F = torch.bmm(query_Q1d, self.far_key.data[:, :far].transpose(1, 2))
        weight_Q1C = torch.cat([score_Q1W, score_Q1F], dim=2).softmax(-1)
        near_Q1W, far_Q1F = weight_Q1C.split([value_QWd.shape[1], far], dim=2)
        seen_Q1d = torch.bmm(near_Q1W, value_QWd)
        return torch.baddbmm(seen_Q1d, far_Q1F, self.far_value.data[:, :far]).reshape(
            query_RD.shape
        )

    def write(self, position: int, key_RD: Tensor, value_RD: Tensor) -> None:
        """Append the newest token; a block that is full is summed up."""
        head_width = self.key.data.shape[2]
        self.key.write(position, key_RD.reshape(-1, head_width))
        self.value.write(position, value_RD.reshape(-1, head_width))
        if position % self.block == self.block - 1:
            number, low = position // self.block, position + 1 - self.block
            self.far_key.write(number, self.key.data[:, low : position + 1].mean(1))
            self.far_value.write(number, self.value.data[:, low : position + 1].mean(1))

    def parents_mean(self, parents: "ParentList") -> Tensor:
        """Return the mean value of the parents of each row's newest node, shape (R, D)."""
        rows_PH = self._head_rows(parents.row_P)
        return parents.mean(self.value.data[rows_PH, parents.position_P[:, None]].flatten(1))

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


class EncoderCache:
    """Everything the decisions read of earlier tokens, for every position and row."""

    def __init__(
        self, trunk: Sequence[TrunkBlock], block: int, key_width: int, like_RD: Tensor
    ) -> None:
        rows, width = like_RD.shape
        self.block = block
        self.levels = [(level, TrunkCache(rows, level.heads, block, like_RD)) for level in trunk]
        self.encoded, self.pointer_key, self.block_key = (
            Columns(rows, (size,), like_RD.dtype, like_RD.device)
            for size in (width, key_width, key_width)
        )

    def encode(self, x_RD: Tensor, position: int, parents: "ParentList") -> Tensor:
        """Return the trunk's output for the newest token, from its input and its parents."""
        for level, cache in self.levels:
            query_RD, key_RD, value_RD = level.query_key_value(level.norm(x_RD)).chunk(3, dim=1)
            cache.write(position, key_RD, value_RD)
            seen_RD = cache.attend(query_RD, position)
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
