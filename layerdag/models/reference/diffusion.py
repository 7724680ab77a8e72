"""Categorical diffusion toward a marginal: noise, its schedule, and the way back.

D3PM (Austin et al., arXiv 2107.03006) with the transition of DiGress (arXiv 2209.14734):
``Q_t = a_t I + (1 - a_t) 1 m^T``. Products of such matrices have the same form, so with
``alpha_bar_t = a_1 ... a_t`` every distribution is closed form, for any pair of times.

Codes have any leading shape ``...``; probabilities have one more dimension K (codes).

Shape letters: K codes, S diffusion steps.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerdag.models.draws import sample_categorical

_OFFSET = 0.008


def cosine_alpha_bar(steps: int) -> Float[Tensor, " S"]:
    """Return alpha_bar, the probability that a value is kept until time t, for t = 0..steps.

    The cosine schedule of Nichol and Dhariwal (arXiv 2102.09672, eq. 17), float64: it falls from 1
    to exactly 0 at t = ``steps``, so that the last noisy value carries no information.
    """
    time_S = torch.arange(steps + 1, dtype=torch.float64) / steps
    alpha_bar_S = torch.cos((time_S + _OFFSET) / (1 + _OFFSET) * math.pi / 2) ** 2
    alpha_bar_S = alpha_bar_S / alpha_bar_S[0]
    alpha_bar_S[-1] = 0.0
    return alpha_bar_S


def strided_timesteps(steps: int, stride_steps: int | None) -> list[int]:
    """Return the times that a sampler visits, from ``steps`` down to 0.

    It makes ``stride_steps`` denoising steps; None or more than ``steps`` makes all.
    """
    wanted = steps if stride_steps is None else max(1, min(stride_steps, steps))
    return [round(steps * (wanted - i) / wanted) for i in range(wanted + 1)]


def add_noise(
    x_0: Int[Tensor, "*shape"],
    alpha_bar: Float[Tensor, " *#shape"],
    marginal_K: Float[Tensor, "*#shape K"],
    uniform_2: Float[Tensor, "*shape 2"],
) -> Int[Tensor, "*shape"]:
    """Sample x_t from q(x_t | x_0): the code with probability ``alpha_bar``, else noise.

    One uniform decides on keeping the code, one samples the noise.
    """
    noise = sample_categorical(
        marginal_K.expand(*x_0.shape, marginal_K.shape[-1]), uniform_2[..., 1]
    )
    return torch.where(uniform_2[..., 0] < alpha_bar, x_0, noise)


def reverse_distribution(
    predicted_K: Float[Tensor, "*shape K"],
    x_t: Int[Tensor, "*shape"],
    marginal_K: Float[Tensor, "*#shape K"],
    alpha_bar_t: Float[Tensor, " *#shape"],
    alpha_bar_s: Float[Tensor, " *#shape"],
) -> Float[Tensor, "*shape K"]:
    """Return p(x_s | x_t) for s < t, not normalized, given the predicted p(x_0 | x_t).

    This is the mean over x_0 of q(x_s | x_t, x_0), in time linear in K: the posterior of each x_0
    has the same numerator but for its normalizer q(x_t | x_0). At s = 0 it returns ``predicted_K``:
    no noise remains.
    """
    alpha_bar_t, alpha_bar_s = alpha_bar_t.unsqueeze(-1), alpha_bar_s.unsqueeze(-1)
    marginal_K = marginal_K.expand_as(predicted_K)
    classes_K = torch.arange(predicted_K.shape[-1], device=x_t.device)
    observed_K = (x_t.unsqueeze(-1) == classes_K).to(predicted_K.dtype)
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
