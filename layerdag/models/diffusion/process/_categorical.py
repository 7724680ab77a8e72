"""Categorical diffusion toward a marginal: noising, reversing, drawing.

D3PM (Austin et al., arXiv 2107.03006) with the transition of DiGress (arXiv 2209.14734):
``Q_t = a_t I + (1 - a_t) 1 m^T``. Products of such matrices have the same form, so with the kept
share ``keep_t = a_1 ... a_t`` every needed distribution is closed form, for any pair of times.

Codes have any leading shape ``...``; probabilities carry one more dimension K.
"""

import torch
from torch import Tensor


def draw(probability_K: Tensor, uniform: Tensor) -> Tensor:
    """Draw codes by the inverse of the cumulative distribution.

    Args:
        probability_K: Non-negative weights of shape (..., K); need not sum to 1.
        uniform: In (0, 1), shape (...).

    Returns:
        int64 codes of shape (...); a code of weight 0 is never drawn.
    """
    reach_K = probability_K.double().cumsum(-1)
    aim = uniform.double().unsqueeze(-1) * reach_K[..., -1:]
    return (reach_K <= aim).sum(-1).clamp(max=probability_K.shape[-1] - 1)


def add_noise(clean: Tensor, keep: Tensor, marginal_K: Tensor, uniform_2: Tensor) -> Tensor:
    """Draw the noisy code at a time from q(x_t | x_0).

    Args:
        clean: int64 codes of shape (...).
        keep: Kept share at that time, broadcastable to (...).
        marginal_K: Distribution of the noise, broadcastable to (..., K).
        uniform_2: In (0, 1), shape (..., 2): one decides on keeping, one draws the noise.
    """
    noise = draw(marginal_K.expand(*clean.shape, marginal_K.shape[-1]), uniform_2[..., 1])
    return torch.where(uniform_2[..., 0] < keep, clean, noise)


def noisy_distribution(clean: Tensor, keep: Tensor, marginal_K: Tensor) -> Tensor:
    """Return q(x_t | x_0) as probabilities of shape (..., K)."""
    keep = keep.unsqueeze(-1)
    return keep * _one_hot(clean, marginal_K) + (1 - keep) * marginal_K


def reverse_distribution(
    predicted_K: Tensor,
    noisy: Tensor,
    marginal_K: Tensor,
    keep_now: Tensor,
    keep_next: Tensor,
) -> Tensor:
    """Return p(x_s | x_t) for s < t, given the predicted p(x_0 | x_t).

    This is the mean over x_0 of q(x_s | x_t, x_0), in time linear in K: the posterior of each x_0
    has the same numerator but for its normalizer q(x_t | x_0). At s = 0 it returns ``predicted_K``:
    no noise remains.

    Args:
        predicted_K: Probabilities of the clean code, shape (..., K).
        noisy: int64 code at time t, shape (...).
        marginal_K: Distribution of the noise, broadcastable to (..., K).
        keep_now: Kept share at t, broadcastable to (...).
        keep_next: Kept share at s, larger.

    Returns:
        Unnormalized probabilities of shape (..., K).
    """
    keep_now, keep_next = keep_now.unsqueeze(-1), keep_next.unsqueeze(-1)
    marginal_K = marginal_K.expand_as(predicted_K)
    seen_K = _one_hot(noisy, predicted_K)
    seen_mass = marginal_K.gather(-1, noisy.unsqueeze(-1))
    # q(x_t | x_0) and q(x_t | x_s), each as a function of its condition.
    given_clean_K = keep_now * seen_K + (1 - keep_now) * seen_mass
    step = keep_now / keep_next
    given_next_K = step * seen_K + (1 - step) * seen_mass
    weight_K = torch.where(given_clean_K > 0, predicted_K / given_clean_K, 0.0)
    next_K = keep_next * weight_K + (1 - keep_next) * marginal_K * weight_K.sum(-1, keepdim=True)
    return given_next_K * next_K


def _one_hot(code: Tensor, like_K: Tensor) -> Tensor:
    """Return ``code`` as 0 and 1 of shape (..., K)."""
    classes_K = torch.arange(like_K.shape[-1], device=code.device)
    return (code.unsqueeze(-1) == classes_K).to(like_K.dtype)
