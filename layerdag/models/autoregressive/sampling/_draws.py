"""Random draws that depend on the sample's own seed and the place of the decision alone.

A counter-based generator (SplitMix64 over seed, position and slot) gives the uniform of any
decision without a state, so that a graph does not change with its batch mates, and a whole batch is
drawn at once.
"""

import numpy as np
import torch
from torch import Tensor

from layerdag._runtime import GOLDEN_GAMMA, scrambled, shifted_right


def uniforms(seed_B: np.ndarray, position_B: np.ndarray, slots: range) -> Tensor:
    """Return float64 uniforms in [0, 1), shape (B, slots).

    Args:
        seed_B: uint64 seed of each sample.
        position_B: Position of the node in its graph.
        slots: Numbers of the decisions of that node.
    """
    step_B = (position_B.astype(np.int64) + 1) * GOLDEN_GAMMA
    word_B1 = scrambled(seed_B.astype(np.int64) + step_B)[:, None]
    slot_S = np.arange(slots.start, slots.stop, dtype=np.int64)
    word_BS = scrambled(word_B1 ^ scrambled((slot_S + 1) * GOLDEN_GAMMA))
    return torch.from_numpy(shifted_right(word_BS, 11).astype(np.float64) * 2.0**-53)


def pick(logits_BK: Tensor, u_B: Tensor) -> Tensor:
    """Return one category a row by inverting the distribution function at ``u_B``, shape (B,).

    Categories with a logit of -inf are never drawn. Sums run in float64.
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
