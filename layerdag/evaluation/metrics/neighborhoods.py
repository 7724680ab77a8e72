"""Is local structure like that of real graphs? Neighborhoods, paths and type hashes of operators.

**Neighborhoods.** A node's color is its first attribute, the operator of a trace. Each
Weisfeiler-Lehman round hashes the color of a node with the sorted multisets of its parents' and of
its children's colors, so that after r rounds two nodes have one color if their neighborhoods of
radius r look alike. Real jobs repeat blocks and share most of them with other jobs; samples can
have the right sizes, degrees and frequencies of operators and do neither.

**Paths.** The n-grams of a graph are the sequences of operators along its paths of n nodes. There
are exponentially many paths, most of them through a few hubs, so a sequence counts once for each
node at which such a path ends, and the work grows with distinct sequences.

**Type hashes** of WfChef (Coleman, Casanova and Ferreira da Silva, eScience 2021): the top-down
hash of a node is that of its type and the set of its parents' top-down hashes, the bottom-up hash
that of its type and the set of its children's; the type hash is both. WfChef compares two workflows
of one size by the root mean squared difference of their counts. Here sets are compared, by the
total variation of frequencies pooled over graphs: squares suit frequencies badly of which most are
those of a single node. WfChef's error is in the breakdown, as "rmse".
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import final

import numpy as np
from scipy import sparse

from layerdag.dag.graph_set import GraphSet
from layerdag.evaluation.metrics.base import (
    Comparison,
    Draws,
    Goal,
    GraphMean,
    Metric,
    SimilarityRow,
    aligned_histograms,
    fraction_by_graph,
)
from layerdag.evaluation.metrics.descriptor_metrics import Items, require_items
from layerdag.graph.topology import (
    expand_ranges,
    group_by,
    longest_path_layers,
    neighborhood_colors,
)
from layerdag.runtime.rng import GOLDEN_GAMMA, scrambled

RADII = (1, 2, 3)


@final
@dataclass(frozen=True)
class NeighborhoodNovelty(Metric):
    """Fraction of the nodes of a graph whose color occurs in no training graph, mean over graphs.

    Beside it stands the fraction of the real test graphs. The training set is not resampled.
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
            _new(generated, known, comparison.generated),
            _new(test, known, comparison.test),
        )


@final
@dataclass(frozen=True)
class NeighborhoodRepetition(GraphMean):
    """Fraction of the nodes of a graph whose color another node of it has, mean over graphs."""

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
        return fraction_by_graph(repeated_N, graphs.graph_N, graphs)


def _new(color_N: np.ndarray, known: np.ndarray, graphs: GraphSet) -> np.ndarray:
    return fraction_by_graph(~np.isin(color_N, known), graphs.graph_N, graphs)


def _colors(graphs: GraphSet, radius: int) -> np.ndarray:
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


_KINDS_AT_ONCE = 2048


def frequency_distances(items: Sequence[Items], comparison: Comparison) -> tuple[Draws, Draws]:
    """Return the distances of generated and of training graphs from the test graphs.

    They are total variations, half the summed absolute differences of the pooled frequencies. The
    breakdown has "rmse", the root of the mean squared difference over the kinds that occur.

    Raises:
        DataError: If a set has no items.
    """
    require_items(items)
    pooled = [
        _Pooled(histograms.counts_BK.tocsc(), weights_RB)
        for histograms, weights_RB in zip(
            aligned_histograms(
                [part.value for part in items],
                [part.graph for part in items],
                [graphs.num_graphs for graphs in comparison.sets],
            ),
            comparison.weights,
            strict=True,
        )
    ]
    return _between(pooled[2], pooled[1]), _between(pooled[0], pooled[1])


@dataclass(frozen=True, eq=False)
class _Pooled:
    """Counts (B, K) of the kinds in the graphs of a set, and weights (R, B) of these."""

    counts_BK: sparse.csc_array
    weights_RB: np.ndarray

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the frequencies of some kinds after others, each block of shape (K', R)."""
        total_R = np.maximum(self.weights_RB @ self.counts_BK.sum(axis=1), 1e-300)
        for first in range(0, self.counts_BK.shape[1], _KINDS_AT_ONCE):
            counts_BK = self.counts_BK[:, first : first + _KINDS_AT_ONCE]
            yield counts_BK.T @ self.weights_RB.T / total_R


def _between(first: _Pooled, second: _Pooled) -> Draws:
    absolute_R, square_R, kinds_R = np.zeros((3, len(first.weights_RB)))
    for p_KR, q_KR in zip(first.blocks(), second.blocks(), strict=True):
        absolute_R += np.abs(p_KR - q_KR).sum(axis=0)
        square_R += ((p_KR - q_KR) ** 2).sum(axis=0)
        kinds_R += ((p_KR > 0) | (q_KR > 0)).sum(axis=0)
    return absolute_R / 2, {"rmse": math.sqrt(square_R[0] / max(kinds_R[0], 1))}


MIX = np.uint64(GOLDEN_GAMMA % 2**64)


def mix_hashes(word: np.ndarray) -> np.ndarray:
    """Scramble unsigned 64-bit words."""
    return scrambled(word.view(np.int64)).view(np.uint64)


def operator_hashes(graphs: GraphSet) -> np.ndarray:
    """Return a hash of the first attribute of each node, the operator of a trace."""
    return mix_hashes(graphs.x_NA[:, 0].astype(np.uint64) + np.uint64(1))


def distinct_pairs(node: np.ndarray, word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each pair of a node and a 64-bit word once, by ascending node."""
    order = np.lexsort((word, node))
    node, word = node[order], word[order]
    first = np.ones(node.size, dtype=bool)
    first[1:] = (node[1:] != node[:-1]) | (word[1:] != word[:-1])
    return node[first], word[first]


def edges_by_layer(
    edge_index_2E: np.ndarray, layer_N: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the sources and targets of the edges into each layer, from layer 1 on."""
    source_E, target_E = edge_index_2E
    ptr, order_E = group_by(layer_N[target_E], int(layer_N.max(initial=0)) + 1)
    for low, high in pairwise(ptr[1:]):
        into = order_E[low:high]
        yield source_E[into], target_E[into]


@final
@dataclass(frozen=True)
class PathNovelty(Metric):
    """Fraction of a graph's n-grams that no training graph has, mean over graphs.

    Beside it stands the fraction of the real test graphs. The training set is not resampled.
    """

    length: int = field(default=2, kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the mean fraction of generated and of real test graphs."""
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
    """Total variation of the frequencies of n-grams, pooled over the graphs of a set."""

    length: int = field(default=2, kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the distance of generated and of training graphs from the test graphs."""
        items = [
            Items("", paths.word, graphs.graph_N[paths.node])
            for paths, graphs in zip(
                comparison.once(_PathsOf(self.length)), comparison.sets, strict=True
            )
        ]
        generated, reference = frequency_distances(items, comparison)
        return SimilarityRow.of_draws(self, (generated[0], {}), (reference[0], {}))


@dataclass(frozen=True, eq=False)
class OperatorPaths:
    """Sequences of operators, each once for each node at which a path with them ends."""

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
    ptr, order = group_by(paths.node, graphs.num_nodes)
    source_E, target_E = graphs.edge_index_2E
    low_E, high_E = ptr[source_E], ptr[source_E + 1]
    ending = order[expand_ranges(low_E, high_E)]
    node = np.repeat(target_E, high_E - low_E)
    word = mix_hashes(paths.word[ending] * MIX + operator_hashes(graphs)[node])
    node, word = distinct_pairs(node, word)
    return OperatorPaths(word, node)


def _fraction_new(paths: OperatorPaths, known: np.ndarray, graphs: GraphSet) -> np.ndarray:
    """Return the fraction of each graph's sequences that are not known; NaN without any."""
    return fraction_by_graph(~np.isin(paths.word, known), graphs.graph_N[paths.node], graphs)


@final
@dataclass(frozen=True)
class TypeHashDistance(Metric):
    """Total variation of the frequencies of type hashes, pooled over the graphs of a set."""

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the distance of generated and of training graphs from the test graphs."""
        items = [Items("", type_hashes(graphs), graphs.graph_N) for graphs in comparison.sets]
        return SimilarityRow.of_draws(self, *frequency_distances(items, comparison))


def type_hashes(graphs: GraphSet) -> np.ndarray:
    """Return the type hash of each node by its first attribute, uint64 (N,).

    Raises:
        GraphError: If there is a cycle.
    """
    operator_N = operator_hashes(graphs)
    flipped_2E = graphs.edge_index_2E[::-1]
    height_N = longest_path_layers(graphs.num_nodes, flipped_2E)
    top_down_N = _hashes_from_above(operator_N, graphs.edge_index_2E, graphs.layer_N)
    bottom_up_N = _hashes_from_above(operator_N, flipped_2E, height_N)
    return mix_hashes(top_down_N * MIX + bottom_up_N)


def _hashes_from_above(
    operator_N: np.ndarray, edge_index_2E: np.ndarray, layer_N: np.ndarray
) -> np.ndarray:
    hash_N = mix_hashes(operator_N)
    for source, target in edges_by_layer(edge_index_2E, layer_N):
        child, parent = distinct_pairs(target, hash_N[source])
        nodes, inverse = np.unique(child, return_inverse=True)
        parents = np.zeros(nodes.size, dtype=np.uint64)
        np.add.at(parents, inverse.ravel(), mix_hashes(parent))
        hash_N[nodes] = mix_hashes(operator_N[nodes] * MIX + mix_hashes(parents))
    return hash_N
