"""Growing tensors of sampling: an entry for every row and position.

Shape letters: D width of a state, P pairs, R rows, d width of a head or key.
"""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

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
