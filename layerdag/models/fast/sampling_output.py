"""Nodes and edges that a sampler has drawn, and graphs made of them.

Shape letters: A node attributes, B graphs, E edges, N nodes, X selected graphs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from layerdag.graph.topology import expand_ranges
from layerdag.models.base import SampleResult
from layerdag.models.draws import assemble_dags, bin_positions, slot_uniforms
from layerdag.models.fast.sampling_inputs import RandomSlot

Columns = tuple[Tensor, ...]
"""Rows of nodes or edges by columns; the first is the sample of each."""


@dataclass(frozen=True, eq=False)
class _Generation:
    """What was drawn before a branching."""

    nodes: Columns  # sample, attribute codes and layer of each node
    edges: Columns  # sample, parent, child and type of each edge
    source_B: Int[Tensor, " B"]  # the sample that each sample descends from


class OutputBuffer:
    """Nodes and edges of all samples, in the order of sampling, on the host.

    The last sample is the *padding sample*: rows of finished graphs write to it, and it is dropped.
    """

    def __init__(self, seed_B: np.ndarray) -> None:
        self.seed_B = seed_B
        self.truncated_B = np.zeros(seed_B.shape[0], dtype=bool)
        empty = torch.zeros(0, dtype=torch.int64)
        self.nodes: list[tuple[Tensor, ...]] = []
        self.edges: list[tuple[Tensor, ...]] = [(empty, empty, empty, empty)]
        self.generations: list[_Generation] = []

    def add_nodes(
        self, sample_B: Int[Tensor, " B"], x_BA: Int[Tensor, "B A"], layer_B: Int[Tensor, " B"]
    ) -> None:
        """Append the newest node of the samples ``sample_B``."""
        self.nodes.append((sample_B, x_BA, layer_B))

    def add_edges(
        self,
        sample_X: Int[Tensor, " X"],
        parent_X: Int[Tensor, " X"],
        child_X: Int[Tensor, " X"],
        type_X: Int[Tensor, " X"],
    ) -> None:
        """Append one edge for each of the samples ``sample_X``; positions count from 1."""
        self.edges.append((sample_X, parent_X - 1, child_X - 1, type_X))

    def branch(self, sample_X: Int[np.ndarray, " X"], source_X: Int[np.ndarray, " X"]) -> None:
        """Replace all of the samples ``sample_X`` by what the samples ``source_X`` have so far."""
        if not self.nodes:
            return
        source_B = torch.arange(self.seed_B.shape[0])
        source_B.numpy()[sample_X] = source_X
        nodes, edges = _joined(self.nodes), _joined(self.edges)
        self.generations.append(_Generation(nodes, edges, source_B))
        self.nodes, self.edges = [], [tuple(column[:0] for column in self.edges[0])]

    def truncate(self, sample_X: Int[np.ndarray, " X"]) -> None:
        """Mark the samples ``sample_X`` as truncated by a limit of the request."""
        self.truncated_B[sample_X] = True

    def result(self) -> SampleResult:
        """Return the graphs without the padding sample; positions inside bins are uniform.

        Raises:
            ValueError: If a graph has no node, as when weights overflow.
        """
        count = self.seed_B.shape[0] - 1
        if not (self.nodes or self.generations):
            raise ValueError("no graph has a node, as where every probability is NaN")
        nodes, edges = self._histories()
        sample_N = nodes[0]
        layer_N = nodes[2]
        order_N = torch.argsort(sample_N, stable=True)
        nodes_B = torch.bincount(sample_N, minlength=count)[:count]
        if not nodes_B.all():
            raise ValueError("a graph has no node, as where every probability is NaN")
        order_N = order_N[: int(nodes_B.sum())]
        x_NA = nodes[1][order_N]
        start_B = nodes_B.cumsum(0) - nodes_B
        position_N = torch.arange(order_N.shape[0]) - torch.repeat_interleave(start_B, nodes_B)
        slots = range(RandomSlot.POSITION_IN_BIN, RandomSlot.POSITION_IN_BIN + x_NA.shape[1])
        u_NA = slot_uniforms(self.seed_B[sample_N[order_N].numpy()], position_N.numpy() + 1, slots)
        columns = torch.stack(edges)
        sample_E, parent_E, child_E, type_E = columns[:, columns[0] < count]
        edge_index_2E = torch.stack([parent_E, child_E]) + start_B[sample_E]
        dags = assemble_dags(
            x_NA, bin_positions(u_NA), nodes_B, edge_index_2E, type_E, layer_N[order_N]
        )
        return SampleResult(dags, tuple(self.truncated_B[:count].tolist()))

    def _histories(self) -> tuple[Columns, Columns]:
        nodes = [_joined(self.nodes)] if self.nodes else []
        edges = [_joined(self.edges)]
        source_B = torch.arange(self.seed_B.shape[0])
        for generation in reversed(self.generations):
            source_B = generation.source_B[source_B]
            nodes.append(_copies(generation.nodes, source_B))
            edges.append(_copies(generation.edges, source_B))
        return _joined(nodes[::-1]), _joined(edges[::-1])


def _joined(parts: Sequence[Columns]) -> Columns:
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def _copies(columns: Columns, source_B: Int[Tensor, " B"]) -> Columns:
    order_N = torch.argsort(columns[0], stable=True)
    end_B = torch.bincount(columns[0], minlength=source_B.shape[0]).cumsum(0)
    start_B = torch.cat([end_B.new_zeros(1), end_B[:-1]])
    start_B, end_B = start_B[source_B], end_B[source_B]
    row_N = order_N[torch.from_numpy(expand_ranges(start_B.numpy(), end_B.numpy()))]
    sample_N = torch.repeat_interleave(torch.arange(source_B.shape[0]), end_B - start_B)
    return (sample_N, *(column[row_N] for column in columns[1:]))
