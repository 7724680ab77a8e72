"""Cached sampling: one node of every graph per step, each node encoded once.

All graphs of a request are at the same position, so that caches are sliced and never padded. The
row of a finished graph is assigned to the padding sample, which is dropped, until enough rows are
inactive that compacting the caches pays off. Under guidance a graph has a conditional/unconditional
pair of encoder rows, which share the discrete decisions: the first half of the encoder's rows is
conditional, the second half unconditional.

Shape letters: B active graphs (rows of the state), A some of them, R encoder rows (B or 2 B), D
decisions by encoder row and width of the encoder, H width of a state, S slots or position buckets,
K categories, C candidate columns, F decisions whose parent lies in an older block.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from layerdag.models import Conditions, SampleRequest, SampleResult
from layerdag.models.autoregressive import (
    NEVER,
    ConditionEncoder,
    ConditionVectors,
    DegreeConstraints,
    EncoderBlock,
    Heads,
    TokenEmbedding,
    stub_code,
)
from layerdag.models.autoregressive.sampling._cache import EncoderCache, ParentList
from layerdag.models.autoregressive.sampling._output_buffer import OutputBuffer
from layerdag.models.autoregressive.sampling._parent_scorer import ParentDecisions, ParentScorer
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
        block: Number of tokens per attention block.
    """

    tokens: TokenEmbedding
    conditions: ConditionEncoder
    encoder: tuple[EncoderBlock, ...]
    last_norm: nn.Module
    heads: Heads
    constraints: DegreeConstraints
    block: int


class Sampler:
    """Sampler of the graphs of one request."""

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
            modules.encoder, modules.block, key_width, self.vectors.after_BSD[:, 0]
        )
        self.x_BA = modules.tokens.start_A.expand(self.rows, -1)
        self.u_BS = torch.zeros(0)
        self.newest_edges: list[tuple[Tensor, Tensor]] = []
        self.output = OutputBuffer(self.seed_B, device)

    def run(self) -> SampleResult:
        """Sample every graph to its end and return them in the order of the request."""
        position = 0
        while self.rows:
            encoded_RH = self._encode(position)
            position += 1
            encoded_RH = self._start_nodes(position, encoded_RH)
            if self.rows:
                self._add_nodes(position, encoded_RH)
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

    def _encode(self, position: int) -> Tensor:
        """Encode the newest token of every graph and append it to the cache."""
        modules, structure = self.modules, self.state.structure
        bucket = bisect_right(modules.conditions.position_buckets, position)
        x_RD = (
            self._duplicate(modules.tokens(self.x_BA, structure))
            + self.vectors.before_BSD[:, bucket]
        )
        x_RD = self.cache.encode(x_RD, position, self._parents())
        encoded_RH: Tensor = modules.last_norm(x_RD) + self.vectors.after_BSD[:, bucket]
        self.cache.append(position, encoded_RH, modules.heads.pointer.key(encoded_RH))
        return encoded_RH

    def _parents(self) -> ParentList:
        """Return the parents of the newest nodes, for every encoder row."""
        empty = torch.zeros(0, dtype=torch.int64, device=self.x_BA.device)
        row_P = torch.cat([empty, *(row for row, _ in self.newest_edges)])
        parent_P = torch.cat([empty, *(parent for _, parent in self.newest_edges)])
        degree_R = self._duplicate(self.state.structure.degree_T)
        return ParentList(self._encoder_rows(row_P), self._duplicate(parent_P), degree_R)

    def _duplicate(self, value: Tensor) -> Tensor:
        """Repeat a value per graph for both rows of its conditional/unconditional pair."""
        return torch.cat([value, value]) if self.rows_per_graph == 2 else value

    def _encoder_rows(self, row_A: Tensor) -> Tensor:
        """Return the encoder rows of the graphs ``row_A``."""
        return torch.cat([row_A, row_A + self.rows]) if self.rows_per_graph == 2 else row_A

    def _guided(self, logits: Tensor) -> Tensor:
        """Merge the logits of both rows of each graph."""
        if self.rows_per_graph == 1:
            return logits
        conditional, unconditional = torch.log_softmax(logits, dim=1).chunk(2)
        return guided(conditional, unconditional, self.request.guidance)

    def _uniforms(self, position: int, slots: range, row_A: Tensor | None = None) -> Tensor:
        """Return uniforms for decisions at ``position``, shape (rows, slots)."""
        sample = self.state.sample_B if row_A is None else self.state.sample_B[row_A]
        seed_B = self.seed_B[sample.cpu().numpy()]
        uniform_BS = slot_uniforms(seed_B, np.full(seed_B.shape, position), slots)
        return uniform_BS.to(self.x_BA.device)

    def _start_nodes(self, position: int, encoded_RH: Tensor) -> Tensor:
        """Sample the sizes of new layers, retire finished graphs, and start the next node."""
        heads, structure = self.modules.heads, self.state.structure
        self.u_BS = self._uniforms(
            position, range(RandomSlot.ATTRIBUTE + len(heads.other_readouts))
        )
        logits_BK = self._guided(
            heads.size_logits(encoded_RH, self._duplicate(structure.position_T == 0))
        )
        code_B = sample_from_logits(logits_BK, self.u_BS[:, RandomSlot.LAYER_SIZE])
        size_B = heads.size.decode(code_B, self.u_BS[:, RandomSlot.LAYER_SIZE + 1])
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
            keep_A = (self.state.sample_B < self.padding_sample).nonzero()[:, 0]
            encoder_R = self._encoder_rows(keep_A)
            encoded_RH, size_B = encoded_RH[encoder_R], size_B[keep_A]
            self._select(keep_A, encoder_R)
        self.state.start_node(position, size_B)
        return encoded_RH

    def _select(self, keep_A: Tensor, encoder_R: Tensor) -> None:
        """Keep the graphs ``keep_A``."""
        self.state.select(keep_A)
        self.cache.select(encoder_R)
        self.vectors = self.vectors.select(encoder_R)
        self.u_BS = self.u_BS[keep_A]
        self.rows = keep_A.shape[0]

    def _add_nodes(self, position: int, encoded_RH: Tensor) -> None:
        """Sample the next node of every graph, decision by decision."""
        heads, structure = self.modules.heads, self.state.structure
        context_RH = heads.context_state(
            encoded_RH, self._duplicate(structure.size_T), self._duplicate(structure.index_T)
        )
        first_B, kind_RH = self._first_parents(position, context_RH)
        kind_logits_BK = self._guided(heads.kind_readout(kind_RH))
        kind_B = sample_from_logits(
            self.modules.constraints.limit_kinds(kind_logits_BK, first_B),
            self.u_BS[:, RandomSlot.KIND],
        )
        state_RH = heads.degree_state(kind_RH, self._duplicate(kind_B))
        degree_B = self._degrees(state_RH, kind_B, first_B)
        parents_RH = self._connect(position, state_RH, first_B, degree_B)
        state_RH = heads.other_state(state_RH, self._duplicate(degree_B), parents_RH)
        codes = [kind_B]
        for index, readout in enumerate(heads.other_readouts):
            logits_BK = self.modules.constraints.limit_attributes(
                self._guided(readout(state_RH)), index
            )
            code_B = sample_from_logits(logits_BK, self.u_BS[:, RandomSlot.ATTRIBUTE + index])
            state_RH = heads.after_other(state_RH, index, self._duplicate(code_B))
            codes.append(code_B)
        out_degree_B = self._out_degrees(state_RH, kind_B)
        capacity_B = self.modules.constraints.capacity(
            kind_B, None if heads.out_degree is None else out_degree_B
        )
        self.state.set_out_degree(position, out_degree_B, capacity_B)
        self.x_BA = torch.stack(codes, dim=1)
        self.output.add_nodes(self.state.sample_B, self.x_BA)

    def _out_degrees(self, state_RH: Tensor, kind_B: Tensor) -> Tensor:
        """Sample the out-degree of each node; 0 in a model without out-degree prediction."""
        heads = self.modules.heads
        if heads.out_degree is None or heads.plan_readout is None:
            return torch.zeros_like(kind_B)
        code_B = sample_from_logits(
            self._guided(heads.plan_readout(state_RH)), self.u_BS[:, RandomSlot.OUT_DEGREE]
        )
        return heads.out_degree.decode(code_B, self.u_BS[:, RandomSlot.OUT_DEGREE + 1])

    def _first_parents(self, position: int, context_RH: Tensor) -> tuple[Tensor, Tensor]:
        """Sample the first parent of each node (0 in layer 0); return it with the kind's state."""
        state, heads = self.state, self.modules.heads
        row_A = (state.structure.layer_T > 0).nonzero()[:, 0]
        encoder_R = self._encoder_rows(row_A)
        first_B, stub_B = torch.zeros_like(state.sibling_B), torch.zeros_like(state.sibling_B)
        parent_RH = torch.zeros_like(context_RH)
        if row_A.shape[0]:
            span = (state.before_start_B[row_A], state.layer_start_B[row_A])
            decisions = self._parent_decisions(row_A, *span, state.sibling_B[row_A])
            u_A2 = self.u_BS[row_A, RandomSlot.FIRST_PARENT : RandomSlot.FIRST_PARENT + 2]
            parent_A = self._sample_parents(position, context_RH[encoder_R], decisions, u_A2)
            first_B[row_A] = parent_A
            out_degree_A = state.out_degree.data[row_A, parent_A]
            stub_B[row_A] = stub_code(state.used.data[row_A, parent_A], out_degree_A)
            parent_RH[encoder_R] = self.cache.encoded.data[encoder_R, self._duplicate(parent_A)]
        state.sibling_B = first_B.masked_fill(first_B == 0, NEVER)
        return first_B, heads.kind_state(context_RH, parent_RH, self._duplicate(stub_B))

    def _degrees(self, state_RH: Tensor, kind_B: Tensor, first_B: Tensor) -> Tensor:
        """Sample the in-degree of each node within the constraints of its kind."""
        counter, constraints = self.modules.heads.in_degree, self.modules.constraints
        logits_BK = self._guided(self.modules.heads.degree_readout(state_RH))
        logits_BK = constraints.limit_degrees(logits_BK, counter, kind_B, first_B)
        degree_B = counter.decode(
            sample_from_logits(logits_BK, self.u_BS[:, RandomSlot.IN_DEGREE]),
            self.u_BS[:, RandomSlot.IN_DEGREE + 1],
        )
        return constraints.clamp(degree_B, kind_B, first_B)

    def _connect(
        self, position: int, state_RH: Tensor, first_B: Tensor, degree_B: Tensor
    ) -> Tensor:
        """Sample further parents and all edge types; return the mean encoding of the parents."""
        heads = self.modules.heads
        self.newest_edges = []
        sum_RH = torch.zeros_like(state_RH)
        row_A = (degree_B > 0).nonzero()[:, 0]
        parent_A, rank = first_B[row_A], 0
        while row_A.shape[0]:
            encoder_R, open_A = self._encoder_rows(row_A), degree_B[row_A] - rank - 1
            parent_RH = self.cache.encoded.data[encoder_R, self._duplicate(parent_A)]
            sum_RH[encoder_R] += parent_RH
            after_RH = heads.further_state(state_RH[encoder_R], parent_RH, self._duplicate(open_A))
            slot = RandomSlot.FURTHER_PARENT + SLOTS_PER_PARENT * rank
            u_A3 = self._uniforms(position, range(slot, slot + SLOTS_PER_PARENT), row_A)
            type_A = sample_from_logits(self._guided(heads.type_readout(after_RH)), u_A3[:, 2])
            self._add_edges(position, row_A, parent_A, type_A)
            more_A = (open_A > 0).nonzero()[:, 0]
            more_R = (
                torch.cat([more_A, more_A + row_A.shape[0]]) if self.rows_per_graph == 2 else more_A
            )
            row_A, parent_A, rank = row_A[more_A], parent_A[more_A], rank + 1
            if row_A.shape[0]:
                decisions = self._parent_decisions(row_A, open_A[more_A], parent_A, parent_A)
                parent_A = self._sample_parents(position, after_RH[more_R], decisions, u_A3[more_A])
        # Uses count from the next node on, as in training.
        for edge_row_A, edge_parent_A in self.newest_edges:
            self.state.connect(edge_row_A, edge_parent_A)
        return sum_RH / self._duplicate(degree_B).clamp(min=1)[:, None]

    def _add_edges(self, position: int, row_A: Tensor, parent_A: Tensor, type_A: Tensor) -> None:
        """Add one parent to the newest node of each of the rows ``row_A``."""
        self.newest_edges.append((row_A, parent_A))
        child_A = torch.full_like(parent_A, position)
        self.output.add_edges(self.state.sample_B[row_A], parent_A, child_A, type_A)

    def _parent_decisions(
        self, row_A: Tensor, low_A: Tensor, high_A: Tensor, reference_A: Tensor
    ) -> ParentDecisions:
        """Return a decision for each encoder row of the graphs ``row_A``."""
        values = (self._duplicate(value) for value in (row_A, low_A, high_A, reference_A))
        return ParentDecisions(self._encoder_rows(row_A), *values)

    def _sample_parents(
        self, position: int, state_DH: Tensor, decisions: ParentDecisions, u_A: Tensor
    ) -> Tensor:
        """Sample one parent per graph: a token, or a block and then a token inside."""
        scorer = ParentScorer(self.modules.heads.pointer, self.cache, self.state, position)
        hidden_DH = scorer.pointer.activate(state_DH)
        scores = scorer.score_visible(hidden_DH, decisions)
        column_A = sample_from_logits(self._guided(scores.logits_DC), u_A[:, 0])
        count = column_A.shape[0]
        parent_A = scores.first_token_D[:count] + column_A
        far_A = (column_A >= scores.tokens).nonzero()[:, 0]
        if far_A.shape[0] == 0:
            return parent_A
        far_D = torch.cat([far_A, far_A + count]) if self.rows_per_graph == 2 else far_A
        block_A = scores.first_block_D[far_A] + column_A[far_A] - scores.tokens
        inside = scorer.score_inside(
            hidden_DH[far_D], decisions.at(far_D), self._duplicate(block_A)
        )
        column_F = sample_from_logits(self._guided(inside.logits_DC), u_A[far_A, 1])
        parent_A[far_A] = inside.first_token_D[: far_A.shape[0]] + column_F
        return parent_A
