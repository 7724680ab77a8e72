"""One node of every graph per step, each encoded once; particles of a graph, of which one is kept.

All graphs of a request are at the same position, so that caches are sliced and never padded. The
row of a finished graph is assigned to the padding sample, which is dropped, until enough rows are
inactive that compacting the caches pays off. Nodes of a prefix stand in place of drawn ones, the
same in every graph of a request.

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

Shape letters: A node attributes, B graphs, C numeric conditions, D width of a state, F feature
columns, G groups of rows, J position buckets, K codes, M categorical conditions, N nodes, O
options, P pairs, Q decisions, R rows, T tokens, U uniforms, X selected graphs.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt64
from torch import Tensor, nn

from layerdag.dag.partial import Prefix
from layerdag.models.base import Conditions, PartialCheck, SampleRequest, SampleResult
from layerdag.models.draws import sample_from_logits, slot_uniforms
from layerdag.models.fast.candidates import CandidateSampler, EdgesToParents, NodeCandidates
from layerdag.models.fast.constraints import (
    NATS_PER_VIOLATION,
    UNSEEN,
    AllowedCodes,
    DegreeConstraints,
    EdgeTypeSets,
    NeighborKinds,
)
from layerdag.models.fast.decisions import Heads
from layerdag.models.fast.encoder import Encoder, ParentList, PositionBuffer
from layerdag.models.fast.layout import NEVER
from layerdag.models.fast.sampler_state import (
    CodeMasks,
    EncoderCache,
    Guidance,
    OutputBuffer,
    RandomSlot,
    SamplerState,
)
from layerdag.models.fast.tokens import (
    ConditionEncoder,
    ConditionVectors,
    RemainingSizes,
    TokenEmbedding,
)
from layerdag.runtime.rng import scrambled

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


def surviving_particles(weight_O: Float[np.ndarray, " O"], uniform: float) -> Int[np.ndarray, " O"]:
    """Return which particle each of P places goes on with: itself, or one of larger weight.

    Systematic resampling: the number of copies of a particle differs from P times its share of the
    weight by less than 1, and is that in expectation. A particle with a copy stays in its place.

    Args:
        weight_O: Non-negative, not all 0.
        uniform: In [0, 1).
    """
    count = weight_O.shape[0]
    reach_O = np.cumsum(weight_O) / weight_O.sum() * count
    reach_O[-1] = count
    copies_O = np.diff(np.floor(reach_O + uniform), prepend=np.floor(uniform)).astype(np.int64)
    source_O = np.arange(count)
    source_O[copies_O == 0] = np.repeat(np.arange(count), np.maximum(copies_O - 1, 0))
    return source_O


def resampled_rows(
    sample_B: Int[np.ndarray, " B"],
    log_weight_B: Float[np.ndarray, " B"],
    particles: int,
    first_seed_G: np.ndarray,
    position: int,
) -> Int[np.ndarray, " B"]:
    """Return the row that each row goes on with.

    Args:
        sample_B: Index of each row's sample; consecutive ``particles`` ones belong together.
        log_weight_B: Of each row, nats.
        particles: Per graph.
        first_seed_G: Seed of the first particle of each graph.
        position: Of the newest node.
    """
    source_B = np.arange(sample_B.shape[0])
    graph_B = sample_B // particles
    slot = int(RandomSlot.RESAMPLING)
    for graph in np.unique(graph_B):
        row_O = np.flatnonzero(graph_B == graph)
        most = log_weight_B[row_O].max()
        if most == log_weight_B[row_O].min():
            continue
        weight_O = np.exp(log_weight_B[row_O] - most)
        uniform = slot_uniforms(
            first_seed_G[graph : graph + 1], np.array([position]), range(slot, slot + 1)
        )
        source_B[row_O] = row_O[surviving_particles(weight_O, float(uniform))]
    return source_B


@dataclass(frozen=True, eq=False)
class GivenNodes:
    """The nodes of a prefix by their positions, which count from 1.

    Attributes:
        prefix: First layers of every graph.
        device: Of the sampler.
    """

    prefix: Prefix
    device: torch.device

    def covers(self, position: int) -> bool:
        """Return whether the node at ``position`` is given."""
        return position <= self.prefix.num_nodes

    def layer_size(self, position: int) -> int:
        """Return the number of nodes of the layer of the node at ``position``."""
        return self.prefix.layer_sizes[int(self.prefix.dag.layer_N[position - 1])]

    def codes(self, position: int, rows: int) -> Int[Tensor, "B A"]:
        """Return the attribute codes of the node at ``position``, once for each graph."""
        return self.prefix.dag.x_NA[position - 1].to(self.device).expand(rows, -1)

    def reserved(self, position: int) -> int:
        """Return the number of given children after the drawn nodes of the node at ``position``."""
        return self.prefix.reserved[position - 1] if self.prefix.reserved else 0

    def node(self, position: int, rows: int) -> NodeCandidates:
        """Return the node at ``position`` as the one candidate of each graph, without states."""
        graph_B = torch.arange(rows, device=self.device)
        parents = self.prefix.parents[position - 1]
        edges = tuple(
            EdgesToParents(
                graph_B, torch.full_like(graph_B, parent + 1), torch.full_like(graph_B, edge_type)
            )
            for parent, edge_type in parents
        )
        first_B = edges[0].parent_X if edges else torch.zeros_like(graph_B)
        kind_B = self.codes(position, rows)[:, 0]
        nothing = torch.zeros((0, 0), device=self.device)
        degree_B = torch.full_like(graph_B, len(parents))
        return NodeCandidates(graph_B, first_B, kind_B, degree_B, edges, nothing, nothing)

    def kept_in(self, result: SampleResult) -> SampleResult:
        """Return completed graphs whose given nodes have their own positions inside bins."""
        return replace(result, dags=tuple(self.prefix.kept_in(dag) for dag in result.dags))


_ACTIVE_FRACTION = 0.8


@dataclass(frozen=True, eq=False)
class SamplerModules:
    """The modules of a model that sampling needs.

    Attributes:
        tokens: Token embedding.
        conditions: Encoder of the conditions.
        remaining: Encoder of the nodes and layers still to come; None in a model without.
        encoder: The causal encoder.
        last_norm: Normalization of the encoder's output.
        heads: Readouts.
        constraints: Constraints taken from the training graphs.
        neighbors: The parents and children that training graphs have.
        allowed: The attributes that go together in training graphs.
        type_sets: The edge types that do.
        block: Number of tokens per attention block.
    """

    tokens: TokenEmbedding
    conditions: ConditionEncoder
    remaining: RemainingSizes | None
    encoder: Encoder
    last_norm: nn.Module
    heads: Heads
    constraints: DegreeConstraints
    neighbors: NeighborKinds
    allowed: AllowedCodes
    type_sets: EdgeTypeSets
    block: int


class Sampler:
    """Sampler of the graphs of one request.

    Consecutive ``request.best_of`` graphs are the particles of one graph.
    """

    def __init__(self, modules: SamplerModules, request: SampleRequest) -> None:
        self.modules, self.request = modules, request
        device = modules.tokens.embedding.weight.device
        self.rows = len(request.seeds)
        self.guidance = Guidance(request.guidance, request.temperature)
        self.padding_sample = self.rows
        seeds = [*(seed % (1 << 64) for seed in request.seeds), 0]
        self.seed_B = np.array(seeds, dtype=np.uint64)
        self.vectors = self._conditions(device)
        self.state = SamplerState.start(self.rows, device)
        self.masks = CodeMasks.from_allowed(modules.allowed, request.possible, self.rows)
        key_width = modules.heads.pointer.key.out_features
        self.cache = EncoderCache(
            modules.encoder, modules.block, key_width, self.vectors.after_BJD[:, 0]
        )
        self.weights: ParticleWeights | None = None
        if request.best_of > 1 and modules.neighbors.any_listed:
            self.weights = ParticleWeights.start(modules.neighbors, self.rows, device)
        self.x_BA = modules.tokens.start_A.expand(self.rows, -1)
        self.u_BU = torch.zeros(0)
        self.newest_edges: tuple[EdgesToParents, ...] = ()
        self.output = OutputBuffer(self.seed_B, device)
        self.check, self.valid_B = request.check, torch.ones(self.rows, dtype=torch.bool)
        if self.check is not None:
            self.check.start(self.rows)
        self.given = None if request.prefix is None else GivenNodes(request.prefix, device)

    def run(self) -> SampleResult:
        """Sample every graph to its end and return them in the order of the request."""
        position = 0
        while self.rows:
            encoded_RD = self._encode(position)
            if position and self._must_resample(position):
                encoded_RD = self._resample(position, encoded_RD)
            position += 1
            encoded_RD = self._start_nodes(position, encoded_RD)
            if self.given is not None and self.given.covers(position):
                self._add_given_nodes(position, self.given)
            elif self.rows:
                self._add_nodes(position, encoded_RD)
        result = self.output.result()
        return result if self.given is None else self.given.kept_in(result)

    def _conditions(self, device: torch.device) -> ConditionVectors:
        """Return the condition vectors of each encoder row."""
        request = self.request
        conditions = Conditions(
            request.numeric_BC.to(device),
            request.category_BM.to(device),
            request.sizes_B2.to(device),
        )
        if self.guidance.has_pairs:
            conditions = conditions.followed_by(conditions.unknown())
        vectors: ConditionVectors = self.modules.conditions(conditions)
        return vectors

    def _encode(self, position: int) -> Float[Tensor, "R D"]:
        """Encode the newest token of every graph and append it to the cache."""
        modules, structure = self.modules, self.state.structure
        bucket = bisect_right(modules.conditions.position_buckets, position)
        before_RD, after_RD = self.vectors.before_BJD[:, bucket], self.vectors.after_BJD[:, bucket]
        if modules.remaining is not None:
            remaining_RD = modules.remaining(
                self.guidance.duplicate(structure.position_T),
                self.guidance.duplicate(structure.layer_T),
                self.vectors.sizes_B2,
            )
            before_RD, after_RD = before_RD + remaining_RD[0], after_RD + remaining_RD[1]
        x_RD = self.guidance.duplicate(modules.tokens(self.x_BA, structure)) + before_RD
        x_RD = self.cache.encode(x_RD, position, self._parents())
        encoded_RD: Tensor = modules.last_norm(x_RD) + after_RD
        self.cache.append(position, encoded_RD, modules.heads.pointer.key(encoded_RD))
        return encoded_RD

    def _must_resample(self, position: int) -> bool:
        """Return whether particles are to be replaced before the next node."""
        if self.request.best_of == 1:
            return False
        if not self.valid_B.all():
            return True
        return self.weights is not None and position % INTERVAL == 0

    def _log_weights(self) -> Float[np.ndarray, " B"]:
        """Return the log weight of each row since the last resampling, nats."""
        log_weight_B = np.zeros(self.rows)
        if self.weights is not None:
            log_weight_B += self.weights.log_weight_B.cpu().numpy()
        log_weight_B[~self.valid_B.numpy()] = -np.inf
        return log_weight_B

    def _resample(self, position: int, encoded_RD: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """Replace particles of little weight by copies of others of the same graph."""
        particles, weights = self.request.best_of, self.weights
        row_X = self._due_rows(position)
        source_X = resampled_rows(
            self.state.sample_B[row_X].cpu().numpy(),
            self._log_weights()[row_X.cpu().numpy()],
            particles,
            self.seed_B[:-1:particles],
            position,
        )
        if weights is not None:
            weights.log_weight_B = weights.log_weight_B.index_fill(0, row_X, 0.0)
        source_B = torch.arange(self.rows, device=row_X.device)
        source_B[row_X] = row_X[torch.from_numpy(source_X).to(row_X.device)]
        if bool((source_B == torch.arange(self.rows, device=row_X.device)).all()):
            return encoded_RD
        sample_B = self.state.sample_B
        self.output.branch(sample_B[row_X], sample_B[source_B[row_X]])
        encoder_R = self._encoder_rows(source_B)
        self.state.select(source_B)
        self.state.sample_B = sample_B
        self.cache.select(encoder_R)
        self._select_checked(source_B)
        return encoded_RD[encoder_R]

    def _due_rows(self, position: int) -> Int[Tensor, " X"]:
        """Return the rows of the graphs that are resampled now.

        Between the intervals, these are the graphs of which a particle became invalid: a graph does
        not depend on those that are drawn beside it.
        """
        active_B = self.state.sample_B < self.padding_sample
        if self.weights is None or position % INTERVAL:
            graph_B = self.state.sample_B // self.request.best_of
            invalid_B = ~self.valid_B.to(graph_B.device)
            active_B &= torch.isin(graph_B, graph_B[invalid_B])
        return active_B.nonzero()[:, 0]

    def _select_checked(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R`` of what weighs graphs and of what checks them."""
        self.valid_B = self.valid_B[row_R.cpu()]
        if self.weights is not None:
            self.weights.select(row_R)
        if self.check is not None:
            self.check.select(row_R)

    def _parents(self) -> ParentList:
        """Return the parents of the newest nodes, for every encoder row."""
        empty = torch.zeros(0, dtype=torch.int64, device=self.x_BA.device)
        row_P = torch.cat([empty, *(edges.candidate_X for edges in self.newest_edges)])
        parent_P = torch.cat([empty, *(edges.parent_X for edges in self.newest_edges)])
        degree_R = self.guidance.duplicate(self.state.structure.degree_T)
        return ParentList(self._encoder_rows(row_P), self.guidance.duplicate(parent_P), degree_R)

    def _encoder_rows(self, row_X: Int[Tensor, " X"]) -> Int[Tensor, " R"]:
        """Return the encoder rows of the graphs ``row_X``."""
        return self.guidance.rows(row_X, self.rows)

    def _seeds(self) -> UInt64[np.ndarray, " B"]:
        """Return the seed of the graph in each row."""
        return self.seed_B[self.state.sample_B.cpu().numpy()]

    def _uniforms(self, position: int, slots: range) -> Float[Tensor, "B U"]:
        """Return uniforms for decisions at ``position``, shape (rows, slots)."""
        seed_B = self._seeds()
        uniform_BU = slot_uniforms(seed_B, np.full(seed_B.shape, position), slots)
        return uniform_BU.to(self.x_BA.device)

    def _start_nodes(self, position: int, encoded_RD: Float[Tensor, "R D"]) -> Float[Tensor, "_ D"]:
        """Sample the sizes of new layers, retire finished graphs, and start the next node."""
        heads, structure = self.modules.heads, self.state.structure
        self.u_BU = self._uniforms(
            position, range(RandomSlot.ATTRIBUTE + len(heads.other_readouts))
        )
        logits_BK = self.guidance.merge(
            heads.size_logits(encoded_RD, self.guidance.duplicate(structure.position_T == 0))
        )
        full_B = structure.left_T == 0
        layers_B = structure.layer_T + int(position > 1)
        # Code 0 is a size of 0, which ends the graph.
        logits_BK[layers_B < self.request.min_layers, 0] = -torch.inf
        code_B = sample_from_logits(logits_BK, self.u_BU[:, RandomSlot.LAYER_SIZE])
        size_B = heads.size.decode(code_B, self.u_BU[:, RandomSlot.LAYER_SIZE + 1])
        if self.given is not None and self.given.covers(position):
            size_B = torch.full_like(size_B, self.given.layer_size(position))
        ended_B = full_B & (size_B == 0)
        too_deep_B = full_B & (layers_B >= self.request.max_layers)
        truncated_B = (
            too_deep_B | torch.full_like(full_B, position > self.request.max_nodes)
        ) & ~ended_B
        if self.check is not None:
            valid_B = self.valid_B.to(size_B.device)
            truncated_B |= ~valid_B | (ended_B & ~self.check.may_end().to(size_B.device))
        self.output.truncate(self.state.sample_B[truncated_B])
        done_B = ended_B | truncated_B
        self.state.sample_B = self.state.sample_B.masked_fill(done_B, self.padding_sample)
        size_B = size_B.clamp(min=1)
        active = int((self.state.sample_B < self.padding_sample).sum())
        if active <= _ACTIVE_FRACTION * self.rows:
            keep_X = (self.state.sample_B < self.padding_sample).nonzero()[:, 0]
            encoder_R = self._encoder_rows(keep_X)
            encoded_RD, size_B = encoded_RD[encoder_R], size_B[keep_X]
            self._select(keep_X, encoder_R)
        self.state.start_node(position, size_B)
        return encoded_RD

    def _select(self, keep_X: Int[Tensor, " X"], encoder_R: Int[Tensor, " R"]) -> None:
        """Keep the graphs ``keep_X``."""
        self.state.select(keep_X)
        self.cache.select(encoder_R)
        self._select_checked(keep_X)
        self.vectors = self.vectors.select(encoder_R)
        self.u_BU = self.u_BU[keep_X]
        self.rows = keep_X.shape[0]

    def _add_nodes(self, position: int, encoded_RD: Float[Tensor, "R D"]) -> None:
        """Sample the next node of every graph, decision by decision."""
        heads, state = self.modules.heads, self.state
        slot_codes_B3 = heads.count_codes.slots(state.structure.size_T, state.structure.index_T)
        context_RD = heads.context_state(encoded_RD, self.guidance.duplicate(slot_codes_B3))
        node = self._sample_nodes(position, context_RD)
        self._connect(position, node)
        degree_code_B = heads.in_degree.encode(node.degree_P)
        state_RD = heads.other_state(
            node.state_QD, self.guidance.duplicate(degree_code_B), node.parents_QD
        )
        codes, masks = [node.kind_P], self.masks
        allowed_BF = masks.graph_BF[state.sample_B] & masks.given(0, node.kind_P)
        for index, readout in enumerate(heads.other_readouts):
            logits_BK = self.modules.constraints.limit_attributes(
                self.guidance.merge(readout(state_RD)), index
            )
            logits_BK = masks.limit(logits_BK, allowed_BF, index + 1)
            code_B = sample_from_logits(logits_BK, self.u_BU[:, RandomSlot.ATTRIBUTE + index])
            state_RD = heads.after_other(state_RD, index, self.guidance.duplicate(code_B))
            allowed_BF = allowed_BF & masks.given(index + 1, code_B)
            codes.append(code_B)
        self._finish_nodes(
            position, torch.stack(codes, dim=1), self._out_degrees(state_RD, node.kind_P)
        )

    def _add_given_nodes(self, position: int, given: GivenNodes) -> None:
        """Add the next node of the prefix to every graph."""
        node = given.node(position, self.rows)
        self._connect(position, node)
        if self.weights is not None:
            self.weights.add_nodes(position, node, torch.zeros_like(self.weights.log_weight_B))
        out_degree_B = torch.zeros_like(node.kind_P)
        if self.modules.heads.out_degree is not None:
            out_degree_B = out_degree_B + given.prefix.out_degrees[position - 1]
        self._finish_nodes(
            position, given.codes(position, self.rows), out_degree_B, given.reserved(position)
        )

    def _connect(self, position: int, node: NodeCandidates) -> None:
        """Connect the newest node of every graph with its parents."""
        state = self.state
        state.sibling_B = node.first_P.masked_fill(node.first_P == 0, NEVER)
        self.newest_edges = node.edges
        for edges in node.edges:
            state.connect(edges.candidate_X, edges.parent_X)
            child_X = torch.full_like(edges.parent_X, position)
            sample_X = state.sample_B[edges.candidate_X]
            self.output.add_edges(sample_X, edges.parent_X, child_X, edges.type_X)

    def _finish_nodes(
        self,
        position: int,
        x_BA: Int[Tensor, "B A"],
        out_degree_B: Int[Tensor, " B"],
        reserved: int = 0,
    ) -> None:
        """Set attributes and children of the newest node of every graph.

        Args:
            position: Of the node.
            x_BA: Codes of its attributes.
            out_degree_B: Number of children, if it is predicted.
            reserved: Number of children that are not drawn.
        """
        predicted = self.modules.heads.out_degree is not None
        capacity_B = self.modules.constraints.capacity(
            x_BA[:, 0], out_degree_B if predicted else None
        )
        self.state.set_out_degree(position, out_degree_B, capacity_B - reserved)
        self.x_BA = x_BA
        if self.check is not None:
            ended_B = (self.state.sample_B == self.padding_sample).cpu()
            self.valid_B = (self.valid_B & self._checked(self.check, x_BA)) | ended_B
        self.output.add_nodes(self.state.sample_B, x_BA, self.state.structure.layer_T)

    def _checked(self, check: PartialCheck, x_BA: Int[Tensor, "B A"]) -> Bool[Tensor, " B"]:
        """Return which graphs can still become valid with their newest node."""
        empty = torch.zeros(0, dtype=torch.int64)
        columns = [
            torch.cat([empty, *(getattr(edges, name).cpu() for edges in self.newest_edges)])
            for name in ("candidate_X", "parent_X", "type_X")
        ]
        return check.add(x_BA.cpu(), columns[0], columns[1] - 1, columns[2])

    def _sample_nodes(self, position: int, context_RD: Float[Tensor, "R D"]) -> NodeCandidates:
        """Draw candidates for the next node of every graph, and keep one of each."""
        modules, weights = self.modules, self.weights
        sampler = CandidateSampler(
            modules.heads,
            modules.constraints,
            modules.type_sets,
            self.masks,
            self.cache,
            self.state,
            self.guidance,
            self._seeds(),
            position,
        )
        if weights is None:
            return sampler.draw(context_RD, 1)
        candidates = sampler.draw(context_RD, NODE_CANDIDATES)
        weight_BO = weights.of_candidates(candidates).unflatten(0, (-1, NODE_CANDIDATES))
        first_BO = ~weights.ancestries.occurred(candidates).view_as(weight_BO)
        slot = int(RandomSlot.CHOICE)
        option_B = sample_from_logits(
            weight_BO - NATS_PER_FIRST * first_BO,
            self._uniforms(position, range(slot, slot + 1))[:, 0],
        )
        first_B = torch.arange(self.rows, device=option_B.device) * NODE_CANDIDATES
        node = candidates.select(first_B + option_B, self.guidance)
        weights.add_nodes(position, node, weight_BO.logsumexp(1) - math.log(NODE_CANDIDATES))
        return node

    def _out_degrees(
        self, state_RD: Float[Tensor, "R D"], kind_B: Int[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        """Sample the out-degree of each node; 0 in a model without out-degree prediction."""
        heads = self.modules.heads
        if heads.out_degree is None or heads.plan_readout is None:
            return torch.zeros_like(kind_B)
        code_B = sample_from_logits(
            self.guidance.merge(heads.plan_readout(state_RD)), self.u_BU[:, RandomSlot.OUT_DEGREE]
        )
        return heads.out_degree.decode(code_B, self.u_BU[:, RandomSlot.OUT_DEGREE + 1])
