"""The learning rate over a run, as a factor of its peak."""

import math

from layerdag.training import LearningRateSchedule

FLOOR = 0.1


def learning_rate_factor(schedule: LearningRateSchedule, step: int, progress: float) -> float:
    """Return the factor of the peak rate at ``step``.

    Args:
        schedule: "constant", or "cosine" from 1 down to a tenth; the factor rises linearly to 1
            over the warmup.
        step: Optimizer steps done.
        progress: Fraction of the budget (steps or seconds, whichever is further) that is used.
    """
    warm = min(1.0, (step + 1) / (schedule.warmup_steps + 1))
    if schedule.shape == "constant":
        return warm
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return warm * (FLOOR + (1 - FLOOR) * cosine)
