"""Cached sampling: one node of every graph per step, each node encoded once.

All graphs of a request are at the same position, so that caches are sliced and never padded. The
row of a finished graph is assigned to the padding sample, which is dropped, until enough rows are
inactive that compacting the caches pays off. Under guidance a graph has a conditional/unconditional
pair of encoder rows, which share the discrete decisions: the first half of the encoder's rows is
conditional, the second half unconditional.

Shape letters: A node attributes, B graphs (the active ones), C numeric conditions, D width of a
state, J position buckets, K codes, M categorical conditions, O options, P pairs, Q decisions (by
encoder row), R rows (of the encoder: B or 2 B), T tokens, U uniforms, X selected graphs.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from layerdag.models import Conditions, SampleRequest, SampleResult
from layerdag.models.autoregressive import (
    NEVER,
    ConditionEncoder,
    ConditionVectors,
    DegreeConstraints,
    EncoderBlock,
    Heads,
    NeighborKinds,
    TokenEmbedding,
    stub_code,
)
from layerdag.models.autoregressive.sampling._cache import EncoderCache, ParentList
from layerdag.models.autoregressive.sampling._output_buffer import OutputBuffer
from layerdag.models.autoregressive.sampling._parent_scorer import ParentDecisions, ParentScorer
from layerdag.models.autoregressive.sampling._particles import (
    INTERVAL,
    ParticleWeights,
    resampled_rows,
)
from layerdag.models.autoregressive.sampling._slots import SLOTS_PER_PARENT, RandomSlot
from layerdag.models.autoregressive.sampling._state import SamplerState
from layerdag.models.draws import guided, sample_from_logits, slot_uniforms

_ACTIVE_FRACTION = 0.8


@dataclass(frozen=True, eq=False)
class SamplerModules:
    """The modules of a model that sampling needs.

    Attributes:
        tokens: Token embedding.
        conditions: Encoder of the conditions.
        encoder: Encoder blocks.
        last_norm: Normalization of the encoder's output.
        heads: Readouts.
        constraints: Constraints taken from the training graphs.
        neighbors: The parents and children that training graphs have.
        block: Number of tokens per attention block.
    """

    tokens: TokenEmbedding
    conditions: ConditionEncoder
    encoder: tuple[EncoderBlock, ...]
    last_norm: nn.Module
    heads: Heads
    constraints: DegreeConstraints
    neighbors: NeighborKinds
    block: int


class Sampler:
    """Sampler of the graphs of one request.

    Consecutive ``request.best_of`` graphs are the particles of one graph.
    """

    def __init__(self, modules: SamplerModules, request: SampleRequest) -> None:
        self.modules, self.request = modules, request
        device = modules.tokens.embedding.weight.device
        self.rows = len(request.seeds)
        self.rows_per_graph = 1 if request.guidance == 1.0 else 2
        self.padding_sample = self.rows
        seeds = [*(seed % (1 << 64) for seed in request.seeds), 0]
        self.seed_B = np.array(seeds, dtype=np.uint64)
        self.vectors = self._conditions(device)
        self.state = SamplerState.start(self.rows, device)
        key_width = modules.heads.pointer.key.out_features
        self.cache = EncoderCache(
            modules.encoder, modules.block, key_width, self.vectors.after_BJD[:, 0]
        )
        self.weights: ParticleWeights | None = None
        if request.best_of > 1 and modules.neighbors.any_listed:
            self.weights = ParticleWeights.start(modules.neighbors, self.rows, device)
        self.x_BA = modules.tokens.start_A.expand(self.rows, -1)
        self.u_BU = torch.zeros(0)
        self.newest_edges: list[tuple[Tensor, Tensor]] = []
        self.output = OutputBuffer(self.seed_B, device)

    def run(self) -> SampleResult:
        """Sample every graph to its end and return them in the order of the request."""
        position = 0
        while self.rows:
            encoded_RD = self._encode(position)
            if position and position % INTERVAL == 0 and self.weights is not None:
                encoded_RD = self._resample(position, self.weights, encoded_RD)
            position += 1
            encoded_RD = self._start_nodes(position, encoded_RD)
            if self.rows:
                self._add_nodes(position, encoded_RD)
        return self.output.result()

    def _conditions(self, device: torch.device) -> ConditionVectors:
        """Return the condition vectors of each encoder row."""
        conditions = Conditions(
            self.request.numeric_BC.to(device), self.request.category_BM.to(device)
        )
        if self.rows_per_graph == 2:
            conditions = conditions.followed_by(conditions.unknown())
        vectors: ConditionVectors = self.modules.conditions(conditions)
        return vectors

    def _encode(self, position: int) -> Float[Tensor, "R D"]:
        """Encode the newest token of every graph and append it to the cache."""
        modules, structure = self.modules, self.state.structure
        bucket = bisect_right(modules.conditions.position_buckets, position)
        x_RD = (
            self._duplicate(modules.tokens(self.x_BA, structure))
            + self.vectors.before_BJD[:, bucket]
        )
        x_RD = self.cache.encode(x_RD, position, self._parents())
        encoded_RD: Tensor = modules.last_norm(x_RD) + self.vectors.after_BJD[:, bucket]
        self.cache.append(position, encoded_RD, modules.heads.pointer.key(encoded_RD))
        return encoded_RD

    def _resample(
        self, position: int, weights: ParticleWeights, encoded_RD: Float[Tensor, "R D"]
    ) -> Float[Tensor, "R D"]:
        """Replace particles of little weight by copies of others of the same graph."""
        particles = self.request.best_of
        active_B = self.state.sample_B < self.padding_sample
        row_X = active_B.nonzero()[:, 0]
        source_X = resampled_rows(
            self.state.sample_B[row_X].cpu().numpy(),
            weights.log_weight_B[row_X].cpu().numpy(),
            particles,
            self.seed_B[:-1:particles],
            position,
        )
        weights.log_weight_B = torch.zeros_like(weights.log_weight_B)
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
        weights.select(source_B)
        return encoded_RD[encoder_R]

    def _parents(self) -> ParentList:
        """Return the parents of the newest nodes, for every encoder row."""
        empty = torch.zeros(0, dtype=torch.int64, device=self.x_BA.device)
        row_P = torch.cat([empty, *(row for row, _ in self.newest_edges)])
        parent_P = torch.cat([empty, *(parent for _, parent in self.newest_edges)])
        degree_R = self._duplicate(self.state.structure.degree_T)
        return ParentList(self._encoder_rows(row_P), self._duplicate(parent_P), degree_R)

    def _duplicate(self, value: Shaped[Tensor, "B ..."]) -> Shaped[Tensor, "R ..."]:
        """Repeat a value per graph for both rows of its conditional/unconditional pair."""
        return torch.cat([value, value]) if self.rows_per_graph == 2 else value

    def _encoder_rows(self, row_X: Int[Tensor, " X"]) -> Int[Tensor, " _"]:
        """Return the encoder rows of the graphs ``row_X``."""
        return torch.cat([row_X, row_X + self.rows]) if self.rows_per_graph == 2 else row_X

    def _guided(self, logits: Float[Tensor, "R K"]) -> Float[Tensor, "B K"]:
        """Merge the logits of both rows of each graph, and divide by the temperature."""
        if self.rows_per_graph == 1:
            return logits / self.request.temperature
        conditional, unconditional = torch.log_softmax(logits, dim=1).chunk(2)
        return guided(conditional, unconditional, self.request.guidance) / self.request.temperature

    def _uniforms(
        self, position: int, slots: range, row_X: Int[Tensor, " X"] | None = None
    ) -> Float[Tensor, "_ U"]:
        """Return uniforms for decisions at ``position``, shape (rows, slots)."""
        sample = self.state.sample_B if row_X is None else self.state.sample_B[row_X]
        seed_B = self.seed_B[sample.cpu().numpy()]
        uniform_BU = slot_uniforms(seed_B, np.full(seed_B.shape, position), slots)
        return uniform_BU.to(self.x_BA.device)

    def _start_nodes(self, position: int, encoded_RD: Float[Tensor, "R D"]) -> Float[Tensor, "_ D"]:
        """Sample the sizes of new layers, retire finished graphs, and start the next node."""
        heads, structure = self.modules.heads, self.state.structure
        self.u_BU = self._uniforms(
            position, range(RandomSlot.ATTRIBUTE + len(heads.other_readouts))
        )
        logits_BK = self._guided(
            heads.size_logits(encoded_RD, self._duplicate(structure.position_T == 0))
        )
        code_B = sample_from_logits(logits_BK, self.u_BU[:, RandomSlot.LAYER_SIZE])
        size_B = heads.size.decode(code_B, self.u_BU[:, RandomSlot.LAYER_SIZE + 1])
        full_B = structure.left_T == 0
        ended_B = full_B & (size_B == 0)
        too_deep_B = full_B & (structure.layer_T + int(position > 1) >= self.request.max_layers)
        truncated_B = (
            too_deep_B | torch.full_like(full_B, position > self.request.max_nodes)
        ) & ~ended_B
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
        if self.weights is not None:
            self.weights.select(keep_X)
        self.vectors = self.vectors.select(encoder_R)
        self.u_BU = self.u_BU[keep_X]
        self.rows = keep_X.shape[0]

    def _add_nodes(self, position: int, encoded_RD: Float[Tensor, "R D"]) -> None:
        """Sample the next node of every graph, decision by decision."""
        heads, structure = self.modules.heads, self.state.structure
        context_RD = heads.context_state(
            encoded_RD, self._duplicate(structure.size_T), self._duplicate(structure.index_T)
        )
        first_B, kind_RD = self._first_parents(position, context_RD)
        kind_logits_BK = self._guided(heads.kind_readout(kind_RD))
        kind_B = sample_from_logits(
            self.modules.constraints.limit_kinds(kind_logits_BK, first_B),
            self.u_BU[:, RandomSlot.KIND],
        )
        state_RD = heads.degree_state(kind_RD, self._duplicate(kind_B))
        degree_B = self._degrees(state_RD, kind_B, first_B)
        parents_RD = self._connect(position, state_RD, first_B, degree_B)
        state_RD = heads.other_state(state_RD, self._duplicate(degree_B), parents_RD)
        codes = [kind_B]
        for index, readout in enumerate(heads.other_readouts):
            logits_BK = self.modules.constraints.limit_attributes(
                self._guided(readout(state_RD)), index
            )
            code_B = sample_from_logits(logits_BK, self.u_BU[:, RandomSlot.ATTRIBUTE + index])
            state_RD = heads.after_other(state_RD, index, self._duplicate(code_B))
            codes.append(code_B)
        out_degree_B = self._out_degrees(state_RD, kind_B)
        capacity_B = self.modules.constraints.capacity(
            kind_B, None if heads.out_degree is None else out_degree_B
        )
        self.state.set_out_degree(position, out_degree_B, capacity_B)
        if self.weights is not None:
            self.weights.add_nodes(position, kind_B, self.newest_edges)
        self.x_BA = torch.stack(codes, dim=1)
        self.output.add_nodes(self.state.sample_B, self.x_BA, self.state.structure.layer_T)

    def _out_degrees(
        self, state_RD: Float[Tensor, "R D"], kind_B: Int[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        """Sample the out-degree of each node; 0 in a model without out-degree prediction."""
        heads = self.modules.heads
        if heads.out_degree is None or heads.plan_readout is None:
            return torch.zeros_like(kind_B)
        code_B = sample_from_logits(
            self._guided(heads.plan_readout(state_RD)), self.u_BU[:, RandomSlot.OUT_DEGREE]
        )
        return heads.out_degree.decode(code_B, self.u_BU[:, RandomSlot.OUT_DEGREE + 1])

    def _first_parents(
        self, position: int, context_RD: Float[Tensor, "R D"]
    ) -> tuple[Int[Tensor, " B"], Float[Tensor, "R D"]]:
        """Sample the first parent of each node (0 in layer 0); return it with the kind's state."""
        state, heads = self.state, self.modules.heads
        row_X = (state.structure.layer_T > 0).nonzero()[:, 0]
        encoder_R = self._encoder_rows(row_X)
        first_B, stub_B = torch.zeros_like(state.sibling_B), torch.zeros_like(state.sibling_B)
        parent_RD = torch.zeros_like(context_RD)
        if row_X.shape[0]:
            span = (state.before_start_B[row_X], state.layer_start_B[row_X])
            decisions = self._parent_decisions(row_X, *span, state.sibling_B[row_X])
            u_X2 = self.u_BU[row_X, RandomSlot.FIRST_PARENT : RandomSlot.FIRST_PARENT + 2]
            parent_X = self._sample_parents(position, context_RD[encoder_R], decisions, u_X2)
            first_B[row_X] = parent_X
            out_degree_X = state.out_degree.data[row_X, parent_X]
            stub_B[row_X] = stub_code(state.used.data[row_X, parent_X], out_degree_X)
            parent_RD[encoder_R] = self.cache.encoded.data[encoder_R, self._duplicate(parent_X)]
        state.sibling_B = first_B.masked_fill(first_B == 0, NEVER)
        return first_B, heads.kind_state(context_RD, parent_RD, self._duplicate(stub_B))

    def _degrees(
        self, state_RD: Float[Tensor, "R D"], kind_B: Int[Tensor, " B"], first_B: Int[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        """Sample the in-degree of each node within the constraints of its kind."""
        counter, constraints = self.modules.heads.in_degree, self.modules.constraints
        logits_BK = self._guided(self.modules.heads.degree_readout(state_RD))
        logits_BK = constraints.limit_degrees(logits_BK, counter, kind_B, first_B)
        degree_B = counter.decode(
            sample_from_logits(logits_BK, self.u_BU[:, RandomSlot.IN_DEGREE]),
            self.u_BU[:, RandomSlot.IN_DEGREE + 1],
        )
        return constraints.clamp(degree_B, kind_B, first_B)

    def _connect(
        self,
        position: int,
        state_RD: Float[Tensor, "R D"],
        first_B: Int[Tensor, " B"],
        degree_B: Int[Tensor, " B"],
    ) -> Float[Tensor, "R D"]:
        """Sample further parents and all edge types; return the mean encoding of the parents."""
        heads = self.modules.heads
        self.newest_edges = []
        sum_RD = torch.zeros_like(state_RD)
        row_X = (degree_B > 0).nonzero()[:, 0]
        parent_X, rank = first_B[row_X], 0
        while row_X.shape[0]:
            encoder_R, open_X = self._encoder_rows(row_X), degree_B[row_X] - rank - 1
            parent_RD = self.cache.encoded.data[encoder_R, self._duplicate(parent_X)]
            sum_RD[encoder_R] += parent_RD
            after_RD = heads.further_state(state_RD[encoder_R], parent_RD, self._duplicate(open_X))
            slot = RandomSlot.FURTHER_PARENT + SLOTS_PER_PARENT * rank
            u_X3 = self._uniforms(position, range(slot, slot + SLOTS_PER_PARENT), row_X)
            type_X = sample_from_logits(self._guided(heads.type_readout(after_RD)), u_X3[:, 2])
            self._add_edges(position, row_X, parent_X, type_X)
            more_X = (open_X > 0).nonzero()[:, 0]
            more_R = (
                torch.cat([more_X, more_X + row_X.shape[0]]) if self.rows_per_graph == 2 else more_X
            )
            row_X, parent_X, rank = row_X[more_X], parent_X[more_X], rank + 1
            if row_X.shape[0]:
                decisions = self._parent_decisions(row_X, open_X[more_X], parent_X, parent_X)
                parent_X = self._sample_parents(position, after_RD[more_R], decisions, u_X3[more_X])
        # Uses count from the next node on, as in training.
        for edge_row_X, edge_parent_X in self.newest_edges:
            self.state.connect(edge_row_X, edge_parent_X)
        return sum_RD / self._duplicate(degree_B).clamp(min=1)[:, None]

    def _add_edges(
        self,
        position: int,
        row_X: Int[Tensor, " X"],
        parent_X: Int[Tensor, " X"],
        type_X: Int[Tensor, " X"],
    ) -> None:
        """Add one parent to the newest node of each of the rows ``row_X``."""
        self.newest_edges.append((row_X, parent_X))
        child_X = torch.full_like(parent_X, position)
        self.output.add_edges(self.state.sample_B[row_X], parent_X, child_X, type_X)

    def _parent_decisions(
        self,
        row_X: Int[Tensor, " X"],
        low_X: Int[Tensor, " X"],
        high_X: Int[Tensor, " X"],
        reference_X: Int[Tensor, " X"],
    ) -> ParentDecisions:
        """Return a decision for each encoder row of the graphs ``row_X``."""
        values = (self._duplicate(value) for value in (row_X, low_X, high_X, reference_X))
        return ParentDecisions(self._encoder_rows(row_X), *values)

    def _sample_parents(
        self,
        position: int,
        state_QD: Float[Tensor, "Q D"],
        decisions: ParentDecisions,
        u_X: Float[Tensor, "X U"],
    ) -> Int[Tensor, " X"]:
        """Sample one parent per graph: a token, or a block and then a token inside."""
        scorer = ParentScorer(self.modules.heads.pointer, self.cache, self.state, position)
        hidden_QD = scorer.pointer.activate(state_QD)
        scores = scorer.score_visible(hidden_QD, decisions)
        column_X = sample_from_logits(self._guided(scores.logits_QO), u_X[:, 0])
        count = column_X.shape[0]
        parent_X = scores.first_token_Q[:count] + column_X
        far_X = (column_X >= scores.tokens).nonzero()[:, 0]
        if far_X.shape[0] == 0:
            return parent_X
        far_Q = torch.cat([far_X, far_X + count]) if self.rows_per_graph == 2 else far_X
        block_X = scores.first_block_Q[far_X] + column_X[far_X] - scores.tokens
        inside = scorer.score_inside(
            hidden_QD[far_Q], decisions.at(far_Q), self._duplicate(block_X)
        )
        column_q = sample_from_logits(self._guided(inside.logits_QO), u_X[far_X, 1])
        parent_X[far_X] = inside.first_token_Q[: far_X.shape[0]] + column_q
        return parent_X
