"""Similarity of graphs, validity, and agreement of rankings."""

from layerdag.evaluation.side_by_side import score_generators
from layerdag.evaluation.similarity import LOCAL_METRICS, compare_by_depth

__all__ = [
    "LOCAL_METRICS",
    "compare_by_depth",
    "score_generators",
]
