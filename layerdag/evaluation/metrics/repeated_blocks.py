"""Blocks that repeat along the depth: the layers of a network, micro-batches, steps.

The color of a layer (of the longest path) is the multiset of the operators of its nodes, which is
row 0 of the Weisfeiler-Lehman colors: wiring does not enter, so that the first and last copy of a
block, which have other neighbors, count as well. A repetition is a run of consecutive layers of
which each has the color of the one p layers further up, at least 2 p layers long and as long as
possible, with p as small as possible (a maximal repetition of strings; Kolpakov and Kucherov, FOCS
1999). Its block is p layers long and has floor(length / p) copies.

Repetitions nest and overlap. The longest is taken first, then the longest of what is left of the
others outside it, and so on. Those of a single layer (p = 1), one operator after another
like it, do not count as blocks: they occur by chance.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import final

import numpy as np

from layerdag.dag.graph_set import GraphSet
from layerdag.evaluation.metrics.base import (
    Comparison,
    Metric,
    SimilarityRow,
)
from layerdag.evaluation.metrics.neighborhoods import mix_hashes, operator_hashes

MIN_LENGTH = 2
"""Layers of a block, at least."""


@dataclass(frozen=True)
class RepeatedBlock:
    """Layers that repeat one after the other in a graph.

    Attributes:
        end: Layer after its last; the last copy may be cut off.
        length: Layers of one copy.
    """

    graph: int
    first: int
    end: int
    length: int

    @property
    def count(self) -> int:
        """Number of whole copies, at least 2."""
        return (self.end - self.first) // self.length


class BlockFigure(Enum):
    """Figures of the repeated blocks of a graph."""

    NUMBER = "number"
    LENGTH = "length"
    COUNT = "count"
    NODES = "nodes"


@final
@dataclass(frozen=True)
class RepeatedBlocks(Metric):
    """A figure of the repeated blocks of a graph, mean over graphs.

    Attributes:
        figure: Their number; mean length or count of copies, which leave out graphs without
            blocks; or the fraction of the nodes inside them.
    """

    figure: BlockFigure = field(kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the mean of the generated graphs beside that of the test set."""
        return SimilarityRow.of_graph_means(
            self,
            comparison,
            _figures(comparison.once(_blocks_of_generated), self.figure, comparison.generated),
            _figures(comparison.once(_blocks_of_test), self.figure, comparison.test),
        )


def _blocks_of_generated(comparison: Comparison) -> list[RepeatedBlock]:
    return repeated_blocks(comparison.generated)


def _blocks_of_test(comparison: Comparison) -> list[RepeatedBlock]:
    return repeated_blocks(comparison.test)


def _figures(blocks: list[RepeatedBlock], figure: BlockFigure, graphs: GraphSet) -> np.ndarray:
    """Return the figure of each graph, NaN where it has none."""
    graph = np.array([block.graph for block in blocks], dtype=np.int64)
    number_B = np.bincount(graph, minlength=graphs.num_graphs)
    if figure is BlockFigure.NUMBER:
        return np.where(graphs.nodes_B > 0, number_B, np.nan)
    if figure is BlockFigure.LENGTH:
        amount = [block.length for block in blocks]
    elif figure is BlockFigure.COUNT:
        amount = [block.count for block in blocks]
    else:
        starts = [int(graphs.layer_ptr[block.graph]) for block in blocks]
        amount = [
            int(graphs.width_L[start + block.first : start + block.end].sum())
            for start, block in zip(starts, blocks, strict=True)
        ]
    total_B = np.bincount(graph, weights=amount, minlength=graphs.num_graphs)
    of_B = graphs.nodes_B if figure is BlockFigure.NODES else number_B
    with np.errstate(invalid="ignore"):
        mean_B: np.ndarray = total_B / of_B
    return mean_B


def repeated_blocks(graphs: GraphSet) -> list[RepeatedBlock]:
    """Return the repeated blocks of all graphs, none overlapping another.

    Raises:
        GraphError: If there is a cycle.
    """
    # A hash of the multiset of operators of each layer, uint64 (L,).
    color_L = np.zeros(graphs.width_L.size, dtype=np.uint64)
    layer_N = graphs.layer_ptr[graphs.graph_N] + graphs.layer_N
    np.add.at(color_L, layer_N, operator_hashes(graphs))
    runs = sorted(
        _repetitions(mix_hashes(color_L), graphs),
        key=lambda run: (run.graph, run.first - run.end, run.length, run.first),
    )
    taken_L = np.zeros(graphs.width_L.size, dtype=bool)
    found = []
    for run in runs:
        start = int(graphs.layer_ptr[run.graph])
        first, end = _longest_free(taken_L, start + run.first, start + run.end)
        if end - first >= 2 * run.length:
            taken_L[first:end] = True
            found.append(RepeatedBlock(run.graph, first - start, end - start, run.length))
    return [block for block in found if block.length >= MIN_LENGTH]


def _longest_free(taken_L: np.ndarray, first: int, end: int) -> tuple[int, int]:
    taken = np.flatnonzero(taken_L[first:end]) + first
    if not taken.size:
        return first, end
    starts = np.concatenate(([first], taken + 1))
    ends = np.concatenate((taken, [end]))
    best = int(np.argmax(ends - starts))
    return int(starts[best]), int(ends[best])


def _repetitions(color_L: np.ndarray, graphs: GraphSet) -> Iterator[RepeatedBlock]:
    graph_L = graphs.graph_L
    for period in range(1, int(graphs.layers_B.max(initial=0)) // 2 + 1):
        same = (color_L[period:] == color_L[:-period]) & (graph_L[period:] == graph_L[:-period])
        edge = np.diff(np.concatenate(([0], same.astype(np.int8), [0])))
        starts, ends = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1)
        long = ends - starts >= period
        for start, end in zip(starts[long].tolist(), ends[long].tolist(), strict=True):
            graph = int(graph_L[start])
            offset = int(graphs.layer_ptr[graph])
            yield RepeatedBlock(graph, start - offset, end + period - offset, period)
