"""What ``compare`` computes unless told otherwise."""

from layerdag.evaluation.metrics._base import AttributeMetrics, Metric
from layerdag.evaluation.metrics._classifier import CLASSIFIER_METRIC
from layerdag.evaluation.metrics._descriptors import DESCRIPTORS
from layerdag.evaluation.metrics._manifold import MANIFOLD_METRICS
from layerdag.evaluation.metrics._mmd import KERNEL_METRICS

DEFAULT_METRICS: tuple[Metric | AttributeMetrics, ...] = (
    *DESCRIPTORS,
    *KERNEL_METRICS,
    CLASSIFIER_METRIC,
    *MANIFOLD_METRICS,
)
