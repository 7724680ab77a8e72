from ._base import (
    NORMAL_95 as NORMAL_95,
    Goal as Goal,
    Interval as Interval,
    Metric as Metric,
    MetricResult as MetricResult,
)
from ._classifier import (
    CLASSIFIER_METRIC as CLASSIFIER_METRIC,
    classifier_bound as classifier_bound,
)
from ._descriptors import (
    AttributeView as AttributeView,
    Descriptor as Descriptor,
    Items as Items,
    descriptors as descriptors,
)
from ._embedding import random_embeddings as random_embeddings
from ._histograms import (
    Histograms as Histograms,
    aligned_histograms as aligned_histograms,
    bootstrap_weights as bootstrap_weights,
    kolmogorov_smirnov as kolmogorov_smirnov,
    total_variation as total_variation,
    wasserstein_1 as wasserstein_1,
)
from ._manifold import MANIFOLD_METRICS as MANIFOLD_METRICS, manifold_scores as manifold_scores
from ._mmd import (
    KERNEL_METRICS as KERNEL_METRICS,
    KernelMetric as KernelMetric,
    discrepancy as discrepancy,
)
