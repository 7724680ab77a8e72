"""Which nodes stand in a place of the program that has been there before.

A node's ancestry is its kind with the kinds of its parents and theirs, and the kinds of the
children that each parent had before it: two rounds of Weisfeiler-Lehman refinement along the edges'
direction, as far as a graph is known while it is drawn. Programs repeat (layers, micro-batches, one
optimizer step per tensor): of the nodes of training jobs half have an ancestry that an earlier node
of their job has. Without the elder siblings a second copy of a node, where the program has one,
would be in a place that has been there before.

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

_PARENT = 0xD1B54A32D192ED03 - 2**64
"""Odd factor that tells a parent's color from those of its children."""


@dataclass(frozen=True, eq=False)
class _Colors:
    """Hashes of nodes.

    Attributes:
        kind_P: Of the kind.
        parents_P: Of the kind and those of the parents.
        ancestry_P: Of the ancestry.
    """

    kind_P: Int[Tensor, " P"]
    parents_P: Int[Tensor, " P"]
    ancestry_P: Int[Tensor, " P"]


@dataclass(eq=False)
class Ancestries:
    """Hashes of the ancestries of all nodes so far.

    Attributes:
        kind: Hash of the kind of each position.
        parents: Hash of it and of those of its parents.
        children: Sum of the hashes of the kinds of its children.
        ancestry: Hash of its ancestry.
        positions: Number of positions that are known; the first one is no node.
    """

    kind: PositionBuffer
    parents: PositionBuffer
    children: PositionBuffer
    ancestry: PositionBuffer
    positions: int = 1

    @classmethod
    def start(cls, rows: int, device: torch.device) -> "Ancestries":
        """Return the state before the first node."""
        first, second, third, last = (
            PositionBuffer(rows, (), torch.int64, device) for _ in range(4)
        )
        return cls(first, second, third, last)

    def occurred(self, candidates: NodeCandidates) -> Bool[Tensor, " P"]:
        """Return whether an earlier node of the graph has the ancestry of each candidate."""
        known_BN = self.ancestry.data[:, 1 : self.positions]
        color_BO = self._colors(candidates).ancestry_P.unflatten(0, (known_BN.shape[0], -1))
        return (color_BO[:, :, None] == known_BN[:, None]).any(2).flatten()

    def add_nodes(self, position: int, nodes: NodeCandidates) -> None:
        """Add the newest node of every graph."""
        colors = self._colors(nodes)
        self.kind.write(position, colors.kind_P)
        self.parents.write(position, colors.parents_P)
        self.children.write(position, 0)
        self.ancestry.write(position, colors.ancestry_P)
        for edges in nodes.edges:
            row_X = edges.candidate_X
            self.children.data[row_X, edges.parent_X] += colors.kind_P[row_X]
        self.positions = position + 1

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``."""
        for buffer in (self.kind, self.parents, self.children, self.ancestry):
            buffer.select(row_R)

    def _colors(self, candidates: NodeCandidates) -> _Colors:
        """Return the hashes of each candidate."""
        kind_P = scrambled(candidates.kind_P + 1)
        parents_P, ancestry_P = kind_P * _OWN, kind_P
        for edges in candidates.edges:
            graph_X = candidates.graph_P[edges.candidate_X]
            color_X = self.kind.at(graph_X, edges.parent_X)
            parents_P = parents_P.index_add(0, edges.candidate_X, scrambled(color_X))
            color_X = self.parents.at(graph_X, edges.parent_X) * _PARENT
            color_X = scrambled(color_X + self.children.at(graph_X, edges.parent_X))
            ancestry_P = ancestry_P.index_add(0, edges.candidate_X, color_X)
        parents_P = scrambled(parents_P)
        return _Colors(kind_P, parents_P, scrambled(parents_P * _OWN + ancestry_P))
