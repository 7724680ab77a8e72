"""A graph with its repeated blocks drawn once: a job of 126 layers as one layer, times 126.

Blocks are found along the order of the nodes, by the names of operators without their numbers. Of
each run of equal blocks the first copy is kept, and the others are laid over it, node by node;
blocks inside a block, such as the layers of a micro-batch, are found in the kept copy.
"""

import re
from dataclasses import dataclass

import numpy as np

from layerdag.graph import longest_path_layers, repeated_runs
from layerdag.viz import GraphView

LEAST_PERIOD, LEAST_SAVED = 2, 4
"""Nodes of a block, and nodes that rolling a run saves: less is not worth a frame."""

_COPY_NUMBER = re.compile(r"(?<![^\W_])([A-Za-z]|layer|block|stage)?\d+(?![^\W_])")


@dataclass(frozen=True)
class RolledBlock:
    """A block that is drawn once.

    Attributes:
        row_K: Its nodes as rows of the whole graph, nested copies left out.
        count: How often it occurs in a row.
        period: Nodes of one copy, nested copies included.
    """

    row_K: tuple[int, ...]
    count: int
    period: int


@dataclass(frozen=True, eq=False)
class RolledGraph:
    """The nodes that are drawn, M of N.

    Attributes:
        row_M: Rows of the whole graph.
        of_N: Which of the M nodes stands for each node.
        copies_M: How many nodes each stands for.
        layer_M: Layers of what is drawn.
        edge_index_2E: Edges between drawn nodes, in M.
        dashed_E: Which are dashed.
        back_2B: Edges from a copy to the next one that would close a cycle, in M.
        blocks: The blocks, outer ones first.
    """

    row_M: np.ndarray
    of_N: np.ndarray
    copies_M: np.ndarray
    layer_M: np.ndarray
    edge_index_2E: np.ndarray
    dashed_E: np.ndarray
    back_2B: np.ndarray
    blocks: tuple[RolledBlock, ...]


def rolled_graph(view: GraphView) -> RolledGraph:
    """Return the graph with the copies of each block laid over the first one."""
    stands_N, runs = _representatives(_colors(view))
    row_M, of_N = np.unique(stands_N, return_inverse=True)
    layer_N = (
        longest_path_layers(view.num_nodes, view.edge_index_2E)
        if view.layer_N is None
        else view.layer_N
    )
    edges_2E = of_N[view.edge_index_2E]
    deep_M = layer_N[row_M]
    between_E = edges_2E[0] != edges_2E[1]
    down_E = deep_M[edges_2E[0]] < deep_M[edges_2E[1]]
    kept_2E, first_E = np.unique(edges_2E[:, between_E & down_E], axis=1, return_index=True)
    back_2B = np.unique(edges_2E[:, between_E & ~down_E], axis=1)
    blocks = tuple(
        RolledBlock(_kept(row_M, start, period), count, period) for start, period, count in runs
    )
    return RolledGraph(
        row_M=row_M,
        of_N=of_N,
        copies_M=np.bincount(of_N, minlength=row_M.size),
        layer_M=longest_path_layers(row_M.size, kept_2E),
        edge_index_2E=kept_2E,
        dashed_E=view.dashed_E[between_E & down_E][first_E],
        back_2B=back_2B,
        blocks=blocks,
    )


def _kept(row_M: np.ndarray, start: int, period: int) -> tuple[int, ...]:
    """Return the drawn rows of the first copy of a block."""
    return tuple(row_M[(row_M >= start) & (row_M < start + period)].tolist())


def _colors(view: GraphView) -> np.ndarray:
    """Return a number for each node, equal for nodes of equal kind and name but for numbers."""
    names = [_COPY_NUMBER.sub(r"\1#", name) for name in view.labels]
    labels = [f"{kind} {name}" for kind, name in zip(view.kind_N.tolist(), names, strict=True)]
    return np.unique(labels, return_inverse=True)[1]


def _representatives(color_N: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Return the row that stands for each, and (start, period, count) of each run."""
    stands_N = np.arange(color_N.size)
    runs: list[tuple[int, int, int]] = []
    todo = [(0, color_N.size)]
    while todo:
        low, high = todo.pop(0)
        for run in repeated_runs(color_N[low:high]):
            if run.period < LEAST_PERIOD or run.period * (run.count - 1) < LEAST_SAVED:
                continue
            start = low + run.start
            size = run.period * run.count
            stands_N[start : start + size] = start + np.arange(size) % run.period
            runs.append((start, run.period, run.count))
            todo.append((start, start + run.period))
    # A copy stands for its first one, whose nodes may stand for others in turn.
    while (stands_N[stands_N] != stands_N).any():
        stands_N = stands_N[stands_N]
    return stands_N, runs
