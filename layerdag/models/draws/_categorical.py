"""Sampling of categories from one uniform each.

Shape letters: K codes.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def sample_categorical(
    weight_K: Float[Tensor, "*shape K"], uniform: Float[Tensor, "*shape"]
) -> Int[Tensor, "*shape"]:
    """Sample codes by inverting the cumulative distribution; sums run in float64.

    Args:
        weight_K: Non-negative weights; need not sum to 1.
        uniform: In [0, 1).

    Returns:
        int64 codes; a code of weight 0 is never sampled.
    """
    reach_K = weight_K.double().cumsum(-1)
    aim = uniform.double().unsqueeze(-1) * reach_K[..., -1:]
    code = torch.searchsorted(reach_K, aim, right=True).squeeze(-1)
    return torch.minimum(code, _last_possible(weight_K))


def sample_from_logits(
    logits_K: Float[Tensor, "*shape K"], uniform: Float[Tensor, "*shape"]
) -> Int[Tensor, "*shape"]:
    """Sample codes as ``sample_categorical``; a code with a logit of -inf is never sampled."""
    return sample_categorical(torch.softmax(logits_K.double(), dim=-1), uniform)


def _last_possible(weight_K: Float[Tensor, "*shape K"]) -> Int[Tensor, "*shape"]:
    """Return the last code with a positive weight."""
    code_K = torch.arange(weight_K.shape[-1], device=weight_K.device)
    return (code_K * (weight_K > 0)).amax(dim=-1)
