"""From a checkpoint to graphs, in memory and on disk."""

from layerdag.sampling.costs import NumberAssigner
from layerdag.sampling.folder import (
    volume_of,
    why_not_sampled_jobs,
    why_not_samples,
    write_sample_list,
    write_samples,
)
from layerdag.sampling.generated import GeneratedGraph, as_workload
from layerdag.sampling.generation import generate
from layerdag.sampling.parts import PartSettings, volume_of_parts, write_parts
from layerdag.sampling.settings import GenerationSettings

__all__ = [
    "GeneratedGraph",
    "GenerationSettings",
    "NumberAssigner",
    "PartSettings",
    "as_workload",
    "generate",
    "volume_of",
    "volume_of_parts",
    "why_not_sampled_jobs",
    "why_not_samples",
    "write_parts",
    "write_sample_list",
    "write_samples",
]
