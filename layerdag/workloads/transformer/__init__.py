"""Steps of a transformer, from its sizes and a parallelism plan."""

from layerdag.workloads.transformer.job import SymbolicJob, transformer_workload
from layerdag.workloads.transformer.plan import Plan, Step
from layerdag.workloads.transformer.shapes import ModelShape

__all__ = [
    "ModelShape",
    "Plan",
    "Step",
    "SymbolicJob",
    "transformer_workload",
]
