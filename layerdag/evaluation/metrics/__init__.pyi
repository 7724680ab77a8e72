from ._base import (
    AttributeMetrics as AttributeMetrics,
    Declaration as Declaration,
    Draws as Draws,
    Goal as Goal,
    Metric as Metric,
    MetricResult as MetricResult,
    SimilarityRow as SimilarityRow,
    metrics_for as metrics_for,
)
from ._classifier import (
    CLASSIFIER_METRIC as CLASSIFIER_METRIC,
    ClassifierBound as ClassifierBound,
    classifier_bound as classifier_bound,
)
from ._comparison import (
    NORMAL_95 as NORMAL_95,
    AttributeView as AttributeView,
    Comparison as Comparison,
    Interval as Interval,
)
from ._defaults import DEFAULT_METRICS as DEFAULT_METRICS
from ._descriptors import (
    DESCRIPTORS as DESCRIPTORS,
    AttributeMarginals as AttributeMarginals,
    AttributePairs as AttributePairs,
    DescriptorMetric as DescriptorMetric,
    Items as Items,
    descriptors as descriptors,
)
from ._embedding import random_embeddings as random_embeddings
from ._graph_mean import GraphMean as GraphMean
from ._histograms import (
    Histograms as Histograms,
    aligned_histograms as aligned_histograms,
    bootstrap_weights as bootstrap_weights,
    kolmogorov_smirnov as kolmogorov_smirnov,
    total_variation as total_variation,
    wasserstein_1 as wasserstein_1,
)
from ._manifold import (
    MANIFOLD_METRICS as MANIFOLD_METRICS,
    ManifoldMetric as ManifoldMetric,
    manifold_scores as manifold_scores,
)
from ._mmd import (
    KERNEL_METRICS as KERNEL_METRICS,
    KernelMetric as KernelMetric,
    discrepancy as discrepancy,
)
from ._neighborhoods import (
    NEIGHBORHOOD_METRICS as NEIGHBORHOOD_METRICS,
    NeighborhoodNovelty as NeighborhoodNovelty,
    NeighborhoodRepetition as NeighborhoodRepetition,
)
from .local import LOCAL_METRICS as LOCAL_METRICS
