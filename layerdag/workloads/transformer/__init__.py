"""Steps of a transformer, from its sizes and a parallelism plan."""

from layerdag.workloads.transformer.costs import ADAM, ELEMENTWISE, RankMemory, rank_memory
from layerdag.workloads.transformer.hugging_face import model
from layerdag.workloads.transformer.job import (
    DisaggregatedJob,
    SymbolicJob,
    disaggregated_job,
    job_figures,
    transformer_job,
    transformer_workload,
)
from layerdag.workloads.transformer.layers import Nodes, ProgramBuilder
from layerdag.workloads.transformer.plan import Plan, Recompute, Step
from layerdag.workloads.transformer.shapes import PRESETS, ModelShape

__all__ = [
    "ADAM",
    "ELEMENTWISE",
    "PRESETS",
    "DisaggregatedJob",
    "ModelShape",
    "Nodes",
    "Plan",
    "ProgramBuilder",
    "RankMemory",
    "Recompute",
    "Step",
    "SymbolicJob",
    "disaggregated_job",
    "job_figures",
    "model",
    "rank_memory",
    "transformer_job",
    "transformer_workload",
]
