"""Metrics of generated graphs beside real ones."""

from layerdag.evaluation.metrics.base import Goal, GraphMean
from layerdag.evaluation.metrics.descriptor_metrics import DescriptorMetric, Items

__all__ = [
    "DescriptorMetric",
    "Goal",
    "GraphMean",
    "Items",
]
