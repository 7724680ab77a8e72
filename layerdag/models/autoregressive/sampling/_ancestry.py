"""Which nodes stand in a place of the program that has been there before.

A node's ancestry is its kind with the kinds of its parents and theirs: two rounds of
Weisfeiler-Lehman refinement along the edges' direction, as far as a graph is known while it is
drawn. Programs repeat (layers, micro-batches, one optimizer step per tensor): of the nodes of
training jobs half have an ancestry that an earlier node of their job has.

Shape letters: B graphs (the active ones), N nodes, O options, P pairs (of graph and candidate), R
rows, X selected graphs (or candidates).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from layerdag._runtime import scrambled
from layerdag.models.autoregressive.sampling._cache import PositionBuffer
from layerdag.models.autoregressive.sampling._candidates import NodeCandidates

_OWN = 0x9E3779B97F4A7C15 - 2**64
"""Odd factor that tells a node's own color from those of its parents."""


@dataclass(eq=False)
class Ancestries:
    """Hashes of the ancestries of all nodes so far.

    Attributes:
        radius_0: Hash of the kind of each position.
        radius_1: Hash of it and of those of its parents.
        radius_2: Hash of both and of the parents' at radius 1.
        positions: Number of positions that are known; the first one is no node.
    """

    radius_0: PositionBuffer
    radius_1: PositionBuffer
    radius_2: PositionBuffer
    positions: int = 1

    @classmethod
    def start(cls, rows: int, device: torch.device) -> "Ancestries":
        """Return the state before the first node."""
        first, second, third = (PositionBuffer(rows, (), torch.int64, device) for _ in range(3))
        return cls(first, second, third)

    def occurred(self, candidates: NodeCandidates) -> Bool[Tensor, " P"]:
        """Return whether an earlier node of the graph has the ancestry of each candidate."""
        *_, color_P = self._colors(candidates)
        known_BN = self.radius_2.data[:, 1 : self.positions]
        color_BO = color_P.unflatten(0, (known_BN.shape[0], -1))
        return (color_BO[:, :, None] == known_BN[:, None]).any(2).flatten()

    def add_nodes(self, position: int, nodes: NodeCandidates) -> None:
        """Add the newest node of every graph."""
        colors = self._colors(nodes)
        for buffer, color_B in zip(self._buffers, colors, strict=True):
            buffer.write(position, color_B)
        self.positions = position + 1

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``."""
        for buffer in self._buffers:
            buffer.select(row_R)

    @property
    def _buffers(self) -> tuple[PositionBuffer, PositionBuffer, PositionBuffer]:
        """Hashes by radius."""
        return self.radius_0, self.radius_1, self.radius_2

    def _colors(self, candidates: NodeCandidates) -> tuple[Int[Tensor, " P"], ...]:
        """Return the hashes of each candidate at radius 0, 1 and 2."""
        color_P = scrambled(candidates.kind_P + 1)
        colors = [color_P]
        for parents in (self.radius_0, self.radius_1):
            color_P = color_P * _OWN
            for edges in candidates.edges:
                graph_X = candidates.graph_P[edges.candidate_X]
                parent_X = scrambled(parents.at(graph_X, edges.parent_X))
                color_P = color_P.index_add(0, edges.candidate_X, parent_X)
            color_P = scrambled(color_P)
            colors.append(color_P)
        return tuple(colors)
