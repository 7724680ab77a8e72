"""STAGE's workloads, row by row."""

from layerdag.workloads.stage.flags import MODELS, StageFlags, StageLayout
from layerdag.workloads.stage.job import StageJob

__all__ = [
    "MODELS",
    "StageFlags",
    "StageJob",
    "StageLayout",
]
