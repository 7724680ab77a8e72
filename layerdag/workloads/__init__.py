"""Traces made from a model's description, and traces made larger."""

from layerdag.workloads.dlrm import RecommenderShape

__all__ = [
    "RecommenderShape",
]
