"""How much of the clean value is left at each time step."""

import math

import torch
from torch import Tensor

_OFFSET = 0.008


def cosine_keep(steps: int) -> Tensor:
    """Return the share of values kept until time t, for t = 0..steps.

    The cosine schedule of Nichol and Dhariwal (arXiv 2102.09672, eq. 17): 1 at t = 0 and exactly 0
    at t = ``steps``, so that the last noisy value carries no information.

    Returns:
        float64 of shape (steps + 1,), strictly decreasing.
    """
    time_T = torch.arange(steps + 1, dtype=torch.float64) / steps
    keep_T = torch.cos((time_T + _OFFSET) / (1 + _OFFSET) * math.pi / 2) ** 2
    keep_T = keep_T / keep_T[0]
    keep_T[-1] = 0.0
    return keep_T


def strided_times(steps: int, stride_steps: int | None) -> list[int]:
    """Return the times a sampler visits, from ``steps`` down to 0.

    Args:
        steps: Steps the model was trained with.
        stride_steps: Denoising steps wanted; None or more than ``steps`` takes all.
    """
    wanted = steps if stride_steps is None else max(1, min(stride_steps, steps))
    return [round(steps * (wanted - i) / wanted) for i in range(wanted + 1)]
