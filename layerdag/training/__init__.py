"""The training run: its loop, checkpoints and warm starts."""

from layerdag.training.settings import LearningRateSchedule, OptimizerConfig

__all__ = ["LearningRateSchedule", "OptimizerConfig"]
