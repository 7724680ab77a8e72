"""Similarity of graphs, validity, and agreement of rankings."""

from layerdag.evaluation.rankings import (
    RankedJob,
    RankingReport,
    RankingRow,
    compare_rankings,
    negative_controls,
    ranked_job,
    simulate_jobs,
)
from layerdag.evaluation.side_by_side import SideBySide, fitted_generator, score_generators
from layerdag.evaluation.similarity import (
    DEFAULT_METRICS,
    LOCAL_METRICS,
    DepthSimilarity,
    QualityReport,
    compare,
    compare_by_depth,
    histograms_of,
)
from layerdag.evaluation.validity import (
    GRAPH_RULES,
    StructureReport,
    StructureTally,
    check_structure,
)

__all__ = [
    "DEFAULT_METRICS",
    "GRAPH_RULES",
    "LOCAL_METRICS",
    "DepthSimilarity",
    "QualityReport",
    "RankedJob",
    "RankingReport",
    "RankingRow",
    "SideBySide",
    "StructureReport",
    "StructureTally",
    "check_structure",
    "compare",
    "compare_by_depth",
    "compare_rankings",
    "fitted_generator",
    "histograms_of",
    "negative_controls",
    "ranked_job",
    "score_generators",
    "simulate_jobs",
]
