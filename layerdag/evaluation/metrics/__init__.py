"""Metrics of generated graphs beside real ones."""

from layerdag.evaluation.metrics.base import (
    METRICS,
    NORMAL_95,
    AttributeMetrics,
    AttributeView,
    Comparison,
    Declaration,
    Goal,
    GraphMean,
    Histograms,
    Interval,
    Metric,
    MetricResult,
    SimilarityRow,
    aligned_histograms,
    attribute_views,
    bootstrap_weights,
    metrics_for,
)
from layerdag.evaluation.metrics.classifiers import CLASSIFIER_METRIC, NodeClassifier
from layerdag.evaluation.metrics.descriptor_metrics import (
    DESCRIPTORS,
    DescriptorMetric,
    Items,
    descriptors,
)
from layerdag.evaluation.metrics.kernels import KERNEL_METRICS, MANIFOLD_METRICS
from layerdag.evaluation.metrics.neighborhoods import (
    NEIGHBORHOOD_METRICS,
    PathDistance,
    PathNovelty,
    TypeHashDistance,
)
from layerdag.evaluation.metrics.programs import (
    BlockFigure,
    JointTails,
    OperatorInputs,
    RepeatedBlocks,
    ShapeViolations,
)

__all__ = [
    "CLASSIFIER_METRIC",
    "DESCRIPTORS",
    "KERNEL_METRICS",
    "MANIFOLD_METRICS",
    "METRICS",
    "NEIGHBORHOOD_METRICS",
    "NORMAL_95",
    "AttributeMetrics",
    "AttributeView",
    "BlockFigure",
    "Comparison",
    "Declaration",
    "DescriptorMetric",
    "Goal",
    "GraphMean",
    "Histograms",
    "Interval",
    "Items",
    "JointTails",
    "Metric",
    "MetricResult",
    "NodeClassifier",
    "OperatorInputs",
    "PathDistance",
    "PathNovelty",
    "RepeatedBlocks",
    "ShapeViolations",
    "SimilarityRow",
    "TypeHashDistance",
    "aligned_histograms",
    "attribute_views",
    "bootstrap_weights",
    "descriptors",
    "metrics_for",
]
