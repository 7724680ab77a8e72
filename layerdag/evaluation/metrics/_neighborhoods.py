"""Is local structure like that of real graphs? Neighborhoods that are new, and that repeat.

A node's color is its first attribute, the operator of a trace. Each Weisfeiler-Lehman round hashes
the color of a node with the sorted multisets of its parents' and of its children's colors, edges of
all types together, so that after r rounds two nodes have one color if their neighborhoods of radius
r look alike. Programs repeat blocks, and real jobs share most blocks with other jobs; samples can
have the right sizes, degrees and frequencies of operators and yet neither.
"""

from dataclasses import dataclass, field
from typing import final

import numpy as np

from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics._base import Goal, Metric, SimilarityRow
from layerdag.evaluation.metrics._comparison import Comparison
from layerdag.evaluation.metrics._graph_mean import GraphMean, fraction_of_nodes
from layerdag.graph import neighborhood_colors

RADII = (1, 2, 3)


@final
@dataclass(frozen=True)
class NeighborhoodNovelty(Metric):
    """Fraction of the nodes of a graph whose color occurs in no training graph, mean over graphs.

    Beside it stands the same of the real test graphs. The training set is not resampled.

    Attributes:
        radius: Of the neighborhood, at least 1.
    """

    radius: int = field(default=1, kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the mean fraction of generated and of real test graphs."""
        known, test, generated = (
            _colors(graphs, self.radius)
            for graphs in (comparison.train, comparison.test, comparison.generated)
        )
        known = np.unique(known)
        return SimilarityRow.of_graph_means(
            self,
            comparison,
            fraction_of_nodes(~np.isin(generated, known), comparison.generated),
            fraction_of_nodes(~np.isin(test, known), comparison.test),
        )


@final
@dataclass(frozen=True)
class NeighborhoodRepetition(GraphMean):
    """Fraction of the nodes of a graph whose color another node of it has, mean over graphs.

    Attributes:
        radius: Of the neighborhood, at least 1.
    """

    radius: int = field(default=1, kw_only=True)

    def values(self, graphs: GraphSet) -> np.ndarray:
        """Return the fraction of each graph."""
        color_N = _colors(graphs, self.radius)
        order_N = np.lexsort((color_N, graphs.graph_N))
        key_2N = np.stack([graphs.graph_N.astype(np.uint64), color_N])[:, order_N]
        same_M = (key_2N[:, 1:] == key_2N[:, :-1]).all(axis=0)
        repeated_N = np.zeros(graphs.num_nodes, dtype=bool)
        repeated_N[order_N[1:]] = same_M
        repeated_N[order_N[:-1]] |= same_M
        return fraction_of_nodes(repeated_N, graphs)


def _colors(graphs: GraphSet, radius: int) -> np.ndarray:
    """Return the color of each node after ``radius`` rounds."""
    return neighborhood_colors(graphs.x_NA[:, 0], graphs.edge_index_2E, radius)[-1]


def _novelty(radius: int) -> NeighborhoodNovelty:
    what = f"nodes whose neighborhood of radius {radius} occurs in no training graph"
    name = f"neighborhood_novelty:{radius}"
    return NeighborhoodNovelty(name, what, Goal.MATCH_REAL, upper=1.0, radius=radius)


def _repetition(radius: int) -> NeighborhoodRepetition:
    what = f"nodes whose neighborhood of radius {radius} occurs again in their graph"
    name = f"neighborhood_repetition:{radius}"
    return NeighborhoodRepetition(name, what, Goal.MATCH_REAL, upper=1.0, radius=radius)


NEIGHBORHOOD_METRICS: tuple[Metric, ...] = (
    *(_novelty(radius) for radius in RADII),
    *(_repetition(radius) for radius in RADII),
)
