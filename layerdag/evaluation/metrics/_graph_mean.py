"""A number for each graph, and its mean over graphs."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics._base import Metric, SimilarityRow
from layerdag.evaluation.metrics._comparison import Comparison


@dataclass(frozen=True)
class GraphMean(Metric):
    """The mean over graphs of a number that each graph has alone.

    Beside the mean of the generated graphs stands that of the real test set, both with bootstrap
    intervals over graphs. A subclass defines ``values``.
    """

    @abstractmethod
    def values(self, graphs: GraphSet) -> np.ndarray:
        """Return one number for each graph, shape (B,); NaN leaves the graph out."""

    @final
    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the mean of the generated graphs beside that of the test set."""
        generated_B = np.asarray(self.values(comparison.generated), dtype=np.float64)
        real_B = np.asarray(self.values(comparison.test), dtype=np.float64)
        return SimilarityRow.of_graph_means(self, comparison, generated_B, real_B)


def fraction_of_nodes(flag_N: np.ndarray, graphs: GraphSet) -> np.ndarray:
    """Return the fraction of the nodes of each graph that have a flag; NaN without nodes."""
    count_B = np.bincount(graphs.graph_N, weights=flag_N, minlength=graphs.num_graphs)
    with np.errstate(invalid="ignore"):
        fraction_B: np.ndarray = count_B / graphs.nodes_B
    return fraction_B
