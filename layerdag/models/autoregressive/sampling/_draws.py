"""Counter-based random numbers: a function of the sample's seed, the position and the decision.

SplitMix64 over seed, position and slot gives the uniform of any decision without a generator state.
So a graph does not depend on the other graphs of its batch, and a whole batch is sampled at once.

Shape letters: B samples, S slots, K categories.
"""

from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from layerdag._runtime import GOLDEN_GAMMA, scrambled, shifted_right


class RandomSlot(IntEnum):
    """Number of the first uniform of each decision about one node.

    Counts and parents use two consecutive slots (bin and position in the bin; block and token),
    attribute number i uses ``ATTRIBUTE + i``.
    """

    LAYER_SIZE = 0
    FIRST_PARENT = 2
    KIND = 4
    IN_DEGREE = 5
    OUT_DEGREE = 7
    ATTRIBUTE = 9
    FURTHER_PARENT = 1 << 16
    """First slot of ``SLOTS_PER_PARENT`` for each parent: its edge type, and the next parent."""

    POSITION_IN_BIN = 1 << 32
    """First slot of the positions of numeric attributes in their bins, one per attribute."""


SLOTS_PER_PARENT = 3


def uniforms(seed_B: np.ndarray, position_B: np.ndarray, slots: range) -> Tensor:
    """Return float64 uniforms in [0, 1), shape (B, slots).

    Args:
        seed_B: uint64 seed of each sample.
        position_B: Position of the node in its graph.
        slots: Slots of the decisions about that node (see ``RandomSlot``).
    """
    step_B = (position_B.astype(np.int64) + 1) * GOLDEN_GAMMA
    word_B1 = scrambled(seed_B.astype(np.int64) + step_B)[:, None]
    slot_S = np.arange(slots.start, slots.stop, dtype=np.int64)
    word_BS = scrambled(word_B1 ^ scrambled((slot_S + 1) * GOLDEN_GAMMA))
    return torch.from_numpy(shifted_right(word_BS, 11).astype(np.float64) * 2.0**-53)


def sample_categorical(logits_BK: Tensor, u_B: Tensor) -> Tensor:
    """Return one category per row by inverting the distribution function at ``u_B``, shape (B,).

    Categories with a logit of -inf are never sampled. Sums run in float64.
    """
    weight_BK = torch.softmax(logits_BK.double(), dim=1)
    cdf_BK = weight_BK.cumsum(dim=1)
    position_B1 = u_B[:, None] * cdf_BK[:, -1:]
    code_B1 = torch.searchsorted(cdf_BK, position_B1, right=True)
    return torch.minimum(code_B1[:, 0], _last_possible(weight_BK))


def _last_possible(weight_BK: Tensor) -> Tensor:
    """Return the last category with a positive weight in each row."""
    number_K = torch.arange(weight_BK.shape[1], device=weight_BK.device)
    return (number_K * (weight_BK > 0)).amax(dim=1)
