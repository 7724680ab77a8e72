"""STAGE's workloads, row by row."""

from layerdag.workloads.stage.job import StageJob

__all__ = [
    "StageJob",
]
