"""What sampling keeps of nodes that are done: keys, values, encodings; nothing is encoded twice."""

from collections.abc import Sequence

import torch
from torch import Tensor

from layerdag.model.fast_trunk import TrunkBlock, slopes

_FIRST_CAPACITY = 128


class Rows:
    """A matrix of one row a sample and one column a position that grows to the right."""

    def __init__(
        self, rows: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> None:
        self.data = torch.zeros((rows, _FIRST_CAPACITY, *shape), dtype=dtype, device=device)

    def reserve(self, position: int) -> None:
        """Make room for column ``position``."""
        capacity = self.data.shape[1]
        if position >= capacity:
            self.data = torch.cat([self.data, torch.zeros_like(self.data)], dim=1)

    def write(self, position: int, value: Tensor) -> None:
        """Set column ``position``."""
        self.reserve(position)
        self.data[:, position] = value

    def select(self, row_R: Tensor) -> None:
        """Keep the rows ``row_R``."""
        self.data = self.data[row_R]


class TrunkCache:
    """Keys and values of one trunk block for every sample and position."""

    def __init__(self, rows: int, heads: int, width: int, block: int, like: Tensor) -> None:
        shape = (heads, width // heads)
        self.block = block
        self.key, self.value, self.far_key, self.far_value = (
            Rows(rows, shape, like.dtype, like.device) for _ in range(4)
        )
        self.slope_H = slopes(heads, like.device)

    def attend(self, query_RHd: Tensor, position: int) -> Tensor:
        """Return the attention of the newest token over its window and the summaries, (R, D)."""
        low, far = window(position, self.block)
        near_key = self.key.data[:, low : position + 1]
        score_RwH = (near_key * query_RHd[:, None]).sum(-1)
        distance_w = position - torch.arange(low, position + 1, device=query_RHd.device)
        score_RwH = score_RwH * query_RHd.shape[-1] ** -0.5 - distance_w[:, None] * self.slope_H
        if far == 0:
            weight_RwH = torch.softmax(score_RwH, dim=1)
            near = self.value.data[:, low : position + 1]
            return (near * weight_RwH[..., None]).sum(1).flatten(1)
        far_RFH = (self.far_key.data[:, :far] * query_RHd[:, None]).sum(-1)
        far_RFH = far_RFH * query_RHd.shape[-1] ** -0.5
        weight = torch.softmax(torch.cat([score_RwH, far_RFH], dim=1), dim=1)[..., None]
        split = score_RwH.shape[1]
        seen = (self.value.data[:, low : position + 1] * weight[:, :split]).sum(1)
        return (seen + (self.far_value.data[:, :far] * weight[:, split:]).sum(1)).flatten(1)

    def write(self, position: int, key_RHd: Tensor, value_RHd: Tensor) -> None:
        """Append the newest token; a block that is full is summed up."""
        self.key.write(position, key_RHd)
        self.value.write(position, value_RHd)
        if position % self.block == self.block - 1:
            number, low = position // self.block, position + 1 - self.block
            self.far_key.write(number, self.key.data[:, low : position + 1].mean(1))
            self.far_value.write(number, self.value.data[:, low : position + 1].mean(1))

    def select(self, row_R: Tensor) -> None:
        """Keep the rows ``row_R``."""
        for part in (self.key, self.value, self.far_key, self.far_value):
            part.select(row_R)


def window(position: int, block: int) -> tuple[int, int]:
    """Return the first position in sight of a token, and how many blocks it sees as summaries."""
    return max(position // block - 1, 0) * block, max(position // block - 1, 0)


class EncoderCache:
    """Everything the decisions read of earlier tokens, for every sample and position."""

    def __init__(
        self, trunk: Sequence[TrunkBlock], rows: int, block: int, pointer_width: int, like: Tensor
    ) -> None:
        width = like.shape[-1]
        self.block = block
        self.levels = [
            (level, TrunkCache(rows, level.heads, width, block, like)) for level in trunk
        ]
        self.encoded = Rows(rows, (width,), like.dtype, like.device)
        self.pointer_key = Rows(rows, (pointer_width,), like.dtype, like.device)
        self.block_key = Rows(rows, (pointer_width,), like.dtype, like.device)

    def encode(self, x_RD: Tensor, position: int, parents: "ParentList") -> Tensor:
        """Return the trunk's output for the newest token, from its input and its parents."""
        for level, cache in self.levels:
            qkv_RD3 = level.query_key_value(level.norm(x_RD)).unflatten(-1, (3, level.heads, -1))
            query_RHd, key_RHd, value_RHd = qkv_RD3.unbind(1)
            cache.write(position, key_RHd, value_RHd)
            seen_RD = cache.attend(query_RHd, position)
            x_RD = level.finish(x_RD, seen_RD, parents.mean(cache.value.data))
        return x_RD

    def remember(self, position: int, encoded_RD: Tensor, key_RK: Tensor) -> None:
        """Store the encoding and the pointer key of the newest token."""
        self.encoded.write(position, encoded_RD)
        self.pointer_key.write(position, key_RK)
        if position % self.block == self.block - 1:
            low = position + 1 - self.block
            key_RbK = self.pointer_key.data[:, low : position + 1]
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

    def mean(self, data_RN: Tensor) -> Tensor:
        """Return the mean over the parents of what is stored of them, shape (R, D)."""
        value_PD = data_RN[self.row_P, self.position_P].flatten(1)
        total_RD = value_PD.new_zeros(self.degree_R.shape[0], value_PD.shape[1])
        total_RD = total_RD.index_add(0, self.row_P, value_PD)
        return total_RD / self.degree_R.clamp(min=1)[:, None]
