"""Particles of a graph: their weights while they are drawn, and which of them go on.

Sequential Monte Carlo: the graphs drawn for one that is kept are the particles of a filter. While
they are drawn, they are weighed by the neighbors of their nodes (``NeighborKinds``), and now and
then particles of little weight are replaced by copies of others, which then go on by random numbers
of their own (Doucet and Johansen, A tutorial on particle filtering and smoothing, 2009; for
language models Lew et al., Sequential Monte Carlo steering, arXiv 2306.03081). An error is so
corrected soon after it was made, where best-of-n can only throw the whole graph away.

A node's ancestry is its kind with the kinds of its parents and theirs: two rounds of
Weisfeiler-Lehman refinement along the edges' direction, as far as a graph is known while it is
drawn. Programs repeat (layers, micro-batches, one optimizer step per tensor): of the nodes of
training jobs half have an ancestry that an earlier node of their job has.

Shape letters: B graphs, G groups of rows, K codes, N nodes, O options, P pairs, R rows, X selected
graphs.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerdag.models.draws import slot_uniforms
from layerdag.models.fast.candidates import NodeCandidates
from layerdag.models.fast.constraints import NATS_PER_VIOLATION, UNSEEN, NeighborKinds
from layerdag.models.fast.encoder import PositionBuffer
from layerdag.models.fast.sampler_state import RandomSlot
from layerdag.runtime.rng import scrambled

OWN_COLOR = 0x9E3779B97F4A7C15 - 2**64
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
            color_P = color_P * OWN_COLOR
            for edges in candidates.edges:
                graph_X = candidates.graph_P[edges.candidate_X]
                parent_X = scrambled(parents.at(graph_X, edges.parent_X))
                color_P = color_P.index_add(0, edges.candidate_X, parent_X)
            color_P = scrambled(color_P)
            colors.append(color_P)
        return tuple(colors)


NODE_CANDIDATES = 8
"""Candidates for each node of a particle, of which one is kept."""

NATS_PER_FIRST = 1.0
"""What a candidate costs whose ancestry no earlier node of the graph has, when one is chosen. It is
part of no graph's weight: graphs that repeat one layer for ever would have the largest."""

INTERVAL = 8
"""Nodes between two resamplings. Copying a particle costs about as much as drawing a node."""


@dataclass(eq=False)
class ParticleWeights:
    """The weights of graphs by the neighbors of their nodes, as they are drawn.

    They are those of ``NeighborKinds.log_weight``, except that a node which lacks children costs
    nothing, since later nodes may become its children.

    Attributes:
        neighbors: What training graphs have.
        kind: Kind of each position.
        children: State of each position's children.
        ancestries: Of all nodes so far.
        log_weight_B: Of each graph since the last resampling, nats.
    """

    neighbors: NeighborKinds
    kind: PositionBuffer
    children: PositionBuffer
    ancestries: Ancestries
    log_weight_B: Float[Tensor, " B"]

    @classmethod
    def start(cls, neighbors: NeighborKinds, rows: int, device: torch.device) -> "ParticleWeights":
        """Return the state before the first node."""
        kind, children = (PositionBuffer(rows, (), torch.int64, device) for _ in range(2))
        ancestries = Ancestries.start(rows, device)
        return cls(neighbors, kind, children, ancestries, torch.zeros(rows, device=device))

    def of_candidates(self, candidates: NodeCandidates) -> Float[Tensor, " P"]:
        """Return the log weight of each candidate for the next node of its graph, nats."""
        parents, children = self.neighbors.of_parents, self.neighbors.of_children
        kind_P = candidates.kind_P
        state_P, weight_P = parents.start_K[kind_P], self.neighbors.offset_K[kind_P]
        for edges in candidates.edges:
            index_X, parent_X = edges.candidate_X, edges.parent_X
            graph_X = candidates.graph_P[index_X]
            state_P[index_X] = parents.read(state_P[index_X], self.kind.at(graph_X, parent_X))
            before_X = self.children.at(graph_X, parent_X)
            after_X = children.read(before_X, kind_P[index_X])
            broken_X = (after_X == UNSEEN) & (before_X != UNSEEN)
            weight_P = weight_P.index_add(0, index_X, broken_X.float(), alpha=-NATS_PER_VIOLATION)
        return weight_P - NATS_PER_VIOLATION * ~parents.final_R[state_P]

    def add_nodes(
        self, position: int, nodes: NodeCandidates, log_weight_B: Float[Tensor, " B"]
    ) -> None:
        """Add the newest node of every graph.

        Args:
            position: Of the newest nodes.
            nodes: One per graph.
            log_weight_B: What they add to the weights of the graphs, nats.
        """
        children = self.neighbors.of_children
        self.log_weight_B = self.log_weight_B + log_weight_B
        self.ancestries.add_nodes(position, nodes)
        self.kind.write(position, nodes.kind_P)
        self.children.write(position, children.start_K[nodes.kind_P])
        for edges in nodes.edges:
            row_X, parent_X = edges.candidate_X, edges.parent_X
            before_X = self.children.at(row_X, parent_X)
            self.children.data[row_X, parent_X] = children.read(before_X, nodes.kind_P[row_X])

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``."""
        self.kind.select(row_R)
        self.children.select(row_R)
        self.ancestries.select(row_R)
        self.log_weight_B = self.log_weight_B[row_R]


def surviving_particles(
    weight_GO: Float[np.ndarray, "G O"], uniform_G: Float[np.ndarray, " G"]
) -> Int[np.ndarray, "G O"]:
    """Return which of its particles each place of a graph goes on with: itself, or a heavier one.

    Systematic resampling: the number of copies of a particle differs from O times its share of the
    weight by less than 1, and is that in expectation. A particle with a copy stays in its place.

    Args:
        weight_GO: Non-negative; those of a graph are not all 0.
        uniform_G: In [0, 1).
    """
    count, uniform_G1 = weight_GO.shape[1], uniform_G[:, None]
    reach_GO = np.cumsum(weight_GO, axis=1) / weight_GO.sum(axis=1, keepdims=True) * count
    reach_GO[:, -1] = count
    copies_GO = np.diff(np.floor(reach_GO + uniform_G1), axis=1, prepend=np.floor(uniform_G1))
    # The first place without a copy goes on with the first copy that is one too many, and so on.
    spare_GO = np.cumsum(np.maximum(copies_GO - 1, 0), axis=1)
    lacking_GO = copies_GO == 0
    number_GO = np.cumsum(lacking_GO, axis=1) - 1
    source_GO = (spare_GO[:, None, :] <= number_GO[:, :, None]).sum(axis=2)
    return np.where(lacking_GO, source_GO, np.arange(count))


def resampled_rows(
    sample_B: Int[np.ndarray, " B"],
    log_weight_B: Float[np.ndarray, " B"],
    particles: int,
    first_seed_G: np.ndarray,
    position_B: Int[np.ndarray, " B"],
) -> Int[np.ndarray, " B"]:
    """Return the row that each row goes on with.

    Args:
        sample_B: Index of each row's sample; consecutive ``particles`` ones belong together.
        log_weight_B: Of each row, nats.
        particles: Per graph.
        first_seed_G: Seed of the first particle of each graph.
        position_B: Of each row's newest node, the same for all particles of a graph.
    """
    source_B = np.arange(sample_B.shape[0])
    order_B = np.argsort(sample_B // particles, kind="stable")
    graph_G, start_G, count_G = np.unique(
        sample_B[order_B] // particles, return_index=True, return_counts=True
    )
    for count in np.unique(count_G):  # of a graph, particles may have ended
        of_count = count_G == count
        row_GO = order_B[start_G[of_count, None] + np.arange(count)]
        log_weight_GO = log_weight_B[row_GO]
        most_G = log_weight_GO.max(axis=1)
        unequal_G = most_G > log_weight_GO.min(axis=1)
        row_GO, graph_g = row_GO[unequal_G], graph_G[of_count][unequal_G]
        weight_GO = np.exp(log_weight_GO[unequal_G] - most_G[unequal_G, None])
        slot = int(RandomSlot.RESAMPLING)
        uniform_G1 = slot_uniforms(
            first_seed_G[graph_g], position_B[row_GO[:, 0]], range(slot, slot + 1)
        )
        source_GO = surviving_particles(weight_GO, uniform_G1.numpy()[:, 0])
        source_B[row_GO] = np.take_along_axis(row_GO, source_GO, axis=1)
    return source_B
