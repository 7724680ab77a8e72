"""Sampling of categories from one uniform each.

Shape letters: K codes, O options (draws from the same weights).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def sample_categorical(
    weight_K: Float[Tensor, "*shape K"], uniform: Float[Tensor, "*drawn"]
) -> Int[Tensor, "*drawn"]:
    """Sample codes by inverting the cumulative distribution; sums run in float64.

    Args:
        weight_K: Non-negative weights; need not sum to 1.
        uniform: In [0, 1); one for each row of weights, or several of shape (*shape, O).

    Returns:
        int64 codes; a code of weight 0 is never sampled.
    """
    several = uniform.ndim == weight_K.ndim
    reach_K = weight_K.double().cumsum(-1)
    total = reach_K[..., -1:].contiguous()
    uniform_O = uniform.double() if several else uniform.double().unsqueeze(-1)
    code_O = torch.searchsorted(reach_K, uniform_O * total, right=True)
    # A product that rounds up to the total belongs to the last code with a positive weight.
    code_O = torch.minimum(code_O, torch.searchsorted(reach_K, total))
    return code_O if several else code_O.squeeze(-1)


def sample_from_logits(
    logits_K: Float[Tensor, "*shape K"], uniform: Float[Tensor, "*drawn"]
) -> Int[Tensor, "*drawn"]:
    """Sample codes as ``sample_categorical``; a code with a logit of -inf is never sampled."""
    return sample_categorical(torch.softmax(logits_K.double(), dim=-1), uniform)
