"""Noise schedule of the diffusion, and the timesteps that a sampler visits.

Shape letters: S diffusion steps.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

_OFFSET = 0.008


def cosine_alpha_bar(steps: int) -> Float[Tensor, " S"]:
    """Return alpha_bar, the probability that a value is kept until time t, for t = 0..steps.

    The cosine schedule of Nichol and Dhariwal (arXiv 2102.09672, eq. 17): 1 at t = 0 and exactly 0
    at t = ``steps``, so that the last noisy value carries no information.

    Returns:
        float64 of shape (steps + 1,), strictly decreasing.
    """
    time_S = torch.arange(steps + 1, dtype=torch.float64) / steps
    alpha_bar_S = torch.cos((time_S + _OFFSET) / (1 + _OFFSET) * math.pi / 2) ** 2
    alpha_bar_S = alpha_bar_S / alpha_bar_S[0]
    alpha_bar_S[-1] = 0.0
    return alpha_bar_S


def strided_timesteps(steps: int, stride_steps: int | None) -> list[int]:
    """Return the timesteps that a sampler visits, from ``steps`` down to 0.

    Args:
        steps: Number of timesteps in training.
        stride_steps: Number of denoising steps; None or more than ``steps`` takes all.
    """
    wanted = steps if stride_steps is None else max(1, min(stride_steps, steps))
    return [round(steps * (wanted - i) / wanted) for i in range(wanted + 1)]
