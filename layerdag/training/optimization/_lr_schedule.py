"""The learning rate over a run, as a factor of its peak."""

import math

FLOOR = 0.1


def rate_factor(schedule: str, step: int, warmup_steps: int, progress: float) -> float:
    """Return the factor of the peak rate at ``step``.

    Args:
        schedule: "constant", or "cosine" from 1 down to a tenth.
        step: Optimizer steps done.
        warmup_steps: The factor rises linearly to 1 over this many steps.
        progress: Share of the budget (steps or seconds, whichever is further) that is used.
    """
    warm = min(1.0, (step + 1) / (warmup_steps + 1))
    if schedule == "constant":
        return warm
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return warm * (FLOOR + (1 - FLOOR) * cosine)
