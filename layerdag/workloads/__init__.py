"""Traces made from a model's description, and traces made larger."""

from layerdag.workloads.dlrm import RECOMMENDERS, RecommenderJob, RecommenderShape, recommender_job
from layerdag.workloads.exploration import Exploration, PlanOutcome, explore
from layerdag.workloads.llm_corpus import read_space, write_corpus

__all__ = [
    "RECOMMENDERS",
    "Exploration",
    "PlanOutcome",
    "RecommenderJob",
    "RecommenderShape",
    "explore",
    "read_space",
    "recommender_job",
    "write_corpus",
]
