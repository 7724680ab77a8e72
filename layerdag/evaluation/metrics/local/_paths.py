"""Sequences of operators along paths: do operators follow one another as in real graphs?

The n-grams of a graph are the sequences of operators of its paths of n nodes. There are
exponentially many paths, and most of them lead through a few hubs, so paths are not counted: a
sequence counts once at each node at which such a path ends, however many paths lead there. The
sequences that end at a node are those that end at its parents, each one longer; equal ones become
one at every step, so that the work grows with distinct sequences and not with paths.
"""

from dataclasses import dataclass, field
from typing import final

import numpy as np

from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics import Comparison, Items, Metric, SimilarityRow
from layerdag.evaluation.metrics.local._frequencies import frequency_distances
from layerdag.evaluation.metrics.local._hashes import MIX, distinct_pairs, mixed, operator_hashes
from layerdag.graph import expand_ranges, group_by


@final
@dataclass(frozen=True)
class PathNovelty(Metric):
    """Fraction of a graph's n-grams that no training graph has, mean over graphs.

    Beside it stands the same of the real test graphs. The training set is not resampled.

    Attributes:
        length: Nodes of a path (n), at least 1.
    """

    length: int = field(default=2, kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the mean fraction of generated and of real test graphs.

        Raises:
            DataError: If no generated or no test graph has such a path.
        """
        known, test, generated = comparison.once(_PathsOf(self.length))
        known_words = np.unique(known.word)
        return SimilarityRow.of_graph_means(
            self,
            comparison,
            _fraction_new(generated, known_words, comparison.generated),
            _fraction_new(test, known_words, comparison.test),
        )


@final
@dataclass(frozen=True)
class PathDistance(Metric):
    """Total variation of the frequencies of n-grams, pooled over the graphs of a set.

    Attributes:
        length: Nodes of a path (n), at least 1.
    """

    length: int = field(default=2, kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the distance of generated and of training graphs from the test graphs.

        Raises:
            DataError: If no graph of a set has such a path.
        """
        items = [
            Items("", paths.word, graphs.graph_N[paths.node])
            for paths, graphs in zip(
                comparison.once(_PathsOf(self.length)), comparison.sets, strict=True
            )
        ]
        generated, reference = frequency_distances(items, comparison)
        return SimilarityRow.of_draws(
            self, (generated.total_variation_R, {}), (reference.total_variation_R, {})
        )


@dataclass(frozen=True, eq=False)
class OperatorPaths:
    """Sequences of operators, each once for each node at which a path with them ends.

    Attributes:
        word: 64-bit hash of each sequence.
        node: The node at which it ends.
    """

    word: np.ndarray
    node: np.ndarray


def operator_paths(graphs: GraphSet, length: int) -> OperatorPaths:
    """Return the sequences of ``length`` operators; the first attribute is the operator."""
    paths = OperatorPaths(operator_hashes(graphs), np.arange(graphs.num_nodes))
    for _ in range(length - 1):
        paths = _one_longer(paths, graphs)
    return paths


@dataclass(frozen=True)
class _PathsOf:
    """The paths of all sets, from those that are one shorter; equal for equal lengths."""

    length: int

    def __call__(self, comparison: Comparison) -> tuple[OperatorPaths, ...]:
        """Return those of training, test and generated graphs."""
        if self.length <= 1:
            return tuple(operator_paths(graphs, 1) for graphs in comparison.sets)
        shorter = comparison.once(_PathsOf(self.length - 1))
        return tuple(map(_one_longer, shorter, comparison.sets))


def _one_longer(paths: OperatorPaths, graphs: GraphSet) -> OperatorPaths:
    """Return the sequences that end one edge further down."""
    ptr, order = group_by(paths.node, graphs.num_nodes)
    source_E, target_E = graphs.edge_index_2E
    low_E, high_E = ptr[source_E], ptr[source_E + 1]
    ending = order[expand_ranges(low_E, high_E)]
    node = np.repeat(target_E, high_E - low_E)
    word = mixed(paths.word[ending] * MIX + operator_hashes(graphs)[node])
    node, word = distinct_pairs(node, word)
    return OperatorPaths(word, node)


def _fraction_new(paths: OperatorPaths, known: np.ndarray, graphs: GraphSet) -> np.ndarray:
    """Return the fraction of each graph's sequences that are not known; NaN without any."""
    graph = graphs.graph_N[paths.node]
    new = np.bincount(graph, weights=~np.isin(paths.word, known), minlength=graphs.num_graphs)
    with np.errstate(invalid="ignore"):
        fraction_B: np.ndarray = new / np.bincount(graph, minlength=graphs.num_graphs)
    return fraction_B
