"""Categorical diffusion toward a marginal: forward process, reverse process.

D3PM (Austin et al., arXiv 2107.03006) with the transition of DiGress (arXiv 2209.14734):
``Q_t = a_t I + (1 - a_t) 1 m^T``. Products of such matrices have the same form, so with
``alpha_bar_t = a_1 ... a_t`` every distribution is closed form, for any pair of times.

Codes have any leading shape ``...``; probabilities have one more dimension K (codes).

Shape letters: K codes.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerdag.models.draws import sample_categorical


def add_noise(
    x_0: Int[Tensor, "*shape"],
    alpha_bar: Float[Tensor, " *#shape"],
    marginal_K: Float[Tensor, "*#shape K"],
    uniform_2: Float[Tensor, "*shape 2"],
) -> Int[Tensor, "*shape"]:
    """Sample the noisy code x_t from q(x_t | x_0).

    Args:
        x_0: int64 clean codes of shape (...).
        alpha_bar: Probability that the code is kept until t, broadcastable to (...).
        marginal_K: Distribution of the noise, broadcastable to (..., K).
        uniform_2: In (0, 1), shape (..., 2): one decides on keeping, one samples the noise.
    """
    noise = sample_categorical(
        marginal_K.expand(*x_0.shape, marginal_K.shape[-1]), uniform_2[..., 1]
    )
    return torch.where(uniform_2[..., 0] < alpha_bar, x_0, noise)


def forward_distribution(
    x_0: Int[Tensor, "*shape"],
    alpha_bar: Float[Tensor, " *#shape"],
    marginal_K: Float[Tensor, "*#shape K"],
) -> Float[Tensor, "*shape K"]:
    """Return q(x_t | x_0) as probabilities of shape (..., K)."""
    alpha_bar = alpha_bar.unsqueeze(-1)
    return alpha_bar * _one_hot(x_0, marginal_K) + (1 - alpha_bar) * marginal_K


def reverse_distribution(
    predicted_K: Float[Tensor, "*shape K"],
    x_t: Int[Tensor, "*shape"],
    marginal_K: Float[Tensor, "*#shape K"],
    alpha_bar_t: Float[Tensor, " *#shape"],
    alpha_bar_s: Float[Tensor, " *#shape"],
) -> Float[Tensor, "*shape K"]:
    """Return p(x_s | x_t) for s < t, given the predicted p(x_0 | x_t).

    This is the mean over x_0 of q(x_s | x_t, x_0), in time linear in K: the posterior of each x_0
    has the same numerator but for its normalizer q(x_t | x_0). At s = 0 it returns ``predicted_K``:
    no noise remains.

    Args:
        predicted_K: Probabilities of the clean code, shape (..., K).
        x_t: int64 code at time t, shape (...).
        marginal_K: Distribution of the noise, broadcastable to (..., K).
        alpha_bar_t: ``alpha_bar`` at t, broadcastable to (...).
        alpha_bar_s: ``alpha_bar`` at s, larger.

    Returns:
        Unnormalized probabilities of shape (..., K).
    """
    alpha_bar_t, alpha_bar_s = alpha_bar_t.unsqueeze(-1), alpha_bar_s.unsqueeze(-1)
    marginal_K = marginal_K.expand_as(predicted_K)
    observed_K = _one_hot(x_t, predicted_K)
    observed_mass = marginal_K.gather(-1, x_t.unsqueeze(-1))
    # q(x_t | x_0) and q(x_t | x_s), each as a function of its condition.
    likelihood_x0_K = alpha_bar_t * observed_K + (1 - alpha_bar_t) * observed_mass
    step = alpha_bar_t / alpha_bar_s
    likelihood_xs_K = step * observed_K + (1 - step) * observed_mass
    weight_K = torch.where(likelihood_x0_K > 0, predicted_K / likelihood_x0_K, 0.0)
    next_K = alpha_bar_s * weight_K + (1 - alpha_bar_s) * marginal_K * weight_K.sum(
        -1, keepdim=True
    )
    return likelihood_xs_K * next_K


def _one_hot(
    code: Int[Tensor, "*shape"], like_K: Float[Tensor, "... K"]
) -> Float[Tensor, "*shape K"]:
    """Return ``code`` as 0 and 1 of shape (..., K)."""
    classes_K = torch.arange(like_K.shape[-1], device=code.device)
    return (code.unsqueeze(-1) == classes_K).to(like_K.dtype)
