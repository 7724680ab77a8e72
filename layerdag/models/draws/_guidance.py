"""Classifier-free guidance (Ho and Salimans, arXiv 2207.12598, equation 6)."""

import torch
from jaxtyping import Float
from torch import Tensor


def guided(
    conditional: Float[Tensor, "*shape"], unconditional: Float[Tensor, "*shape"], weight: float
) -> Float[Tensor, "*shape"]:
    """Return logits pushed away from the unconditional ones; a weight of 1 changes nothing.

    A code that is impossible under the conditions stays so: there both logits may be minus
    infinity, and their difference is undefined.
    """
    pushed = unconditional + weight * (conditional - unconditional)
    return torch.where(conditional.isinf(), conditional, pushed)
