from ._depth import DepthSimilarity as DepthSimilarity, compare_by_depth as compare_by_depth
from ._graph_set import GraphSet as GraphSet
from ._pair_distances import (
    inside_balls as inside_balls,
    neighbor_distances as neighbor_distances,
    squared_distances as squared_distances,
)
from ._similarity import (
    SimilarityReport as SimilarityReport,
    compare as compare,
    histograms_of as histograms_of,
)
from .metrics import SimilarityRow as SimilarityRow
