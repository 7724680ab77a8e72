"""What a matrix product takes and moves: FLOPs and bytes from the sizes of its matrices.

The product of B pairs of (M, K) and (K, N) matrices takes 2 B M K N operations and moves
B (MK + KN + MN) elements; ``addmm`` adds a bias of N, ``baddbmm`` a third batch of (M, N).
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

_SLACK = 1e-9
_LARGEST_ELEMENT = 8


class Addend(Enum):
    """What a product reads besides its two factors."""

    NONE = "none"
    ROW = "row"
    MATRIX = "matrix"


@dataclass(frozen=True)
class ProductForm:
    """The cost rule of an operator that multiplies matrices.

    Attributes:
        batched: Whether there are several pairs of matrices.
        addend: What is added.
    """

    batched: bool
    addend: Addend

    def cost(
        self, b_S: np.ndarray, m_S: np.ndarray, k_S: np.ndarray, n_S: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the operations and the elements moved for some shapes."""
        added_S = {Addend.NONE: 0 * n_S, Addend.ROW: n_S, Addend.MATRIX: m_S * n_S}[self.addend]
        return 2 * b_S * m_S * k_S * n_S, b_S * (m_S * k_S + k_S * n_S + m_S * n_S + added_S)


PRODUCTS = {
    "aten::mm": ProductForm(False, Addend.NONE),
    "aten::addmm": ProductForm(False, Addend.ROW),
    "aten::bmm": ProductForm(True, Addend.NONE),
    "aten::baddbmm": ProductForm(True, Addend.MATRIX),
}
"""Operators by name, as ``layerdag.traces.pytorch`` counts what they take and move."""


def fits_shapes(flops_N: np.ndarray, bytes_N: np.ndarray) -> np.ndarray:
    """Return which numbers of matrix products some shapes may have, bool (N,).

    Operations are even. Of F, at least 3 (F/2)^(2/3) elements are moved, for that is the least
    that MK + KN + MN can be (inequality of means), and at most 4 F/2, of at most 8 bytes.
    """
    pairs_N = flops_N / 2
    least_N, most_N = 3 * pairs_N ** (2 / 3) * (1 - _SLACK), 4 * pairs_N * _LARGEST_ELEMENT
    fits_N: np.ndarray = (flops_N % 2 == 0) & (bytes_N >= least_N) & (bytes_N <= most_N)
    return fits_N
