"""Traces made from a model's description."""

from layerdag.workloads.dlrm import RecommenderShape

__all__ = [
    "RecommenderShape",
]
