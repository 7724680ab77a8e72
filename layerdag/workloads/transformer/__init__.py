"""Steps of a transformer, from its sizes and a parallelism plan."""

from layerdag.workloads.transformer.job import SymbolicJob
from layerdag.workloads.transformer.shapes import ModelShape

__all__ = [
    "ModelShape",
    "SymbolicJob",
]
