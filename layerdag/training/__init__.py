"""The training run: its loop, checkpoints and warm starts."""

from layerdag.training.run import LearningRateSchedule, OptimizerConfig

__all__ = [
    "LearningRateSchedule",
    "OptimizerConfig",
]
