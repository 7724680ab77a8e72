"""Cached sampling: one node of every graph per step, each node encoded once.

All graphs of a request grow in step, so that caches are sliced and never padded. A graph that is
done hands its row to *nobody*, a sample that is thrown away, until enough rows are idle to be worth
copying all caches without them. Discrete decisions are shared by a graph's two rows under guidance:
the first half of the encoder's rows sees the conditions, the second half does not.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from layerdag.models import SampleRequest, SampleResult
from layerdag.models.autoregressive import (
    NEVER,
    STAGES,
    Arity,
    ConditionEncoder,
    ConditionVectors,
    Heads,
    TokenEmbedding,
    TrunkBlock,
    stub_code,
)
from layerdag.models.autoregressive.sampling._cache import EncoderCache, ParentList
from layerdag.models.autoregressive.sampling._draws import pick, uniforms
from layerdag.models.autoregressive.sampling._output_buffer import Harvest
from layerdag.models.autoregressive.sampling._parent_choice import Choice, ParentScorer
from layerdag.models.autoregressive.sampling._state import Progress

_SIZE, _FIRST, _KIND, _DEGREE, _PLAN, _OTHER = 0, 2, 4, 5, 7, 9
_SHARE_LIVING = 0.8
_FURTHER, _FURTHER_STRIDE = 1 << 16, 3


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a model that sampling needs.

    Attributes:
        tokens: Input embedding.
        conditions: Encoder of the conditions.
        trunk: Trunk blocks.
        last_norm: Normalization of the trunk's output.
        heads: Readouts.
        arity: Limits that the training data shows.
        block: Tokens of an attention block.
    """

    tokens: TokenEmbedding
    conditions: ConditionEncoder
    trunk: tuple[TrunkBlock, ...]
    last_norm: nn.Module
    heads: Heads
    arity: Arity
    block: int


class Sampler:
    """The growing graphs of one request; ``run`` grows them to their end."""

    def __init__(self, parts: Parts, request: SampleRequest) -> None:
        self.parts, self.request = parts, request
        device = parts.tokens.embedding.weight.device
        self.rows = len(request.seeds)
        self.twins = 1 if request.guidance == 1.0 else 2
        self.nobody = self.rows
        seeds = [*(seed % (1 << 64) for seed in request.seeds), 0]
        self.seed_B = np.array(seeds, dtype=np.uint64)
        self.vectors = self._conditions(device)
        self.progress = Progress.start(self.rows, device)
        key_width = parts.heads.pointer.key.out_features
        self.cache = EncoderCache(parts.trunk, parts.block, key_width, self.vectors.after_BSD[:, 0])
        self.x_BA = parts.tokens.start_A.expand(self.rows, -1)
        self.u_BS = torch.zeros(0)
        self.newest_edges: list[tuple[Tensor, Tensor]] = []
        self.harvest = Harvest(self.seed_B, device)

    def run(self) -> SampleResult:
        """Grow every graph to its end and return them in the order of the request."""
        position = 0
        while self.rows:
            encoded_RH = self._encode(position)
            position += 1
            encoded_RH = self._open_slots(position, encoded_RH)
            if self.rows:
                self._add_nodes(position, encoded_RH)
        return self.harvest.result()

    def _conditions(self, device: torch.device) -> ConditionVectors:
        """Return what each row of the encoder hears of its conditions."""
        numeric_BC = self.request.numeric_BC.to(device)
        category_BM = self.request.category_BM.to(device)
        if self.twins == 2:
            numeric_BC = torch.cat([numeric_BC, torch.full_like(numeric_BC, torch.nan)])
            category_BM = torch.cat([category_BM, torch.full_like(category_BM, -1)])
        vectors: ConditionVectors = self.parts.conditions(numeric_BC, category_BM)
        return vectors

    def _encode(self, position: int) -> Tensor:
        """Encode the newest token of every graph and remember it."""
        parts, place = self.parts, self.progress.place
        stage = bisect_right(STAGES, position)
        x_RD = self._spread(parts.tokens(self.x_BA, place)) + self.vectors.before_BSD[:, stage]
        x_RD = self.cache.encode(x_RD, position, self._parents())
        encoded_RH: Tensor = parts.last_norm(x_RD) + self.vectors.after_BSD[:, stage]
        self.cache.remember(position, encoded_RH, parts.heads.pointer.key(encoded_RH))
        return encoded_RH

    def _parents(self) -> ParentList:
        """Return the parents of the newest nodes, for the encoder's rows."""
        empty = torch.zeros(0, dtype=torch.int64, device=self.x_BA.device)
        row_P = torch.cat([empty, *(row for row, _ in self.newest_edges)])
        parent_P = torch.cat([empty, *(parent for _, parent in self.newest_edges)])
        degree_R = self._spread(self.progress.place.degree_T)
        return ParentList(self._twin_rows(row_P), self._spread(parent_P), degree_R)

    def _spread(self, value: Tensor) -> Tensor:
        """Repeat what is known of each graph for both of its rows."""
        return torch.cat([value, value]) if self.twins == 2 else value

    def _twin_rows(self, row_A: Tensor) -> Tensor:
        """Return the encoder's rows of the graphs ``row_A``."""
        return torch.cat([row_A, row_A + self.rows]) if self.twins == 2 else row_A

    def _guided(self, logits: Tensor) -> Tensor:
        """Merge the logits of both rows of each graph (arXiv 2207.12598, equation 6)."""
        if self.twins == 1:
            return logits
        known, unknown = torch.log_softmax(logits, dim=1).chunk(2)
        merged = unknown + self.request.guidance * (known - unknown)
        return merged.masked_fill(known == -torch.inf, -torch.inf)

    def _uniforms(self, position: int, slots: range, row_A: Tensor | None = None) -> Tensor:
        """Return uniforms for decisions at ``position``, shape (rows, slots)."""
        sample = self.progress.sample_B if row_A is None else self.progress.sample_B[row_A]
        seed_B = self.seed_B[sample.cpu().numpy()]
        drawn_BS = uniforms(seed_B, np.full(seed_B.shape, position), slots)
        return drawn_BS.to(self.x_BA.device)

    def _open_slots(self, position: int, encoded_RH: Tensor) -> Tensor:
        """Draw the sizes of new layers, let finished graphs go, and move on to the next slot."""
        heads, place = self.parts.heads, self.progress.place
        self.u_BS = self._uniforms(position, range(_OTHER + len(heads.other_readouts)))
        logits_BK = self._guided(heads.size_logits(encoded_RH, self._spread(place.position_T == 0)))
        code_B = pick(logits_BK, self.u_BS[:, _SIZE])
        size_B = heads.size.decode(code_B, self.u_BS[:, _SIZE + 1])
        full_B = place.left_T == 0
        ended_B = full_B & (size_B == 0)
        too_deep_B = full_B & (place.layer_T + int(position > 1) >= self.request.max_layers)
        cut_B = (too_deep_B | torch.full_like(full_B, position > self.request.max_nodes)) & ~ended_B
        self.harvest.cut(self.progress.sample_B[cut_B])
        done_B = ended_B | cut_B
        self.progress.sample_B = self.progress.sample_B.masked_fill(done_B, self.nobody)
        size_B = size_B.clamp(min=1)
        living = int((self.progress.sample_B < self.nobody).sum())
        if living <= _SHARE_LIVING * self.rows:
            keep_A = (self.progress.sample_B < self.nobody).nonzero()[:, 0]
            twin_R = self._twin_rows(keep_A)
            encoded_RH, size_B = encoded_RH[twin_R], size_B[keep_A]
            self._select(keep_A, twin_R)
        self.progress.open_slots(position, size_B)
        return encoded_RH

    def _select(self, keep_A: Tensor, twin_R: Tensor) -> None:
        """Keep the graphs ``keep_A``."""
        self.progress.select(keep_A)
        self.cache.select(twin_R)
        self.vectors = self.vectors.select(twin_R)
        self.u_BS = self.u_BS[keep_A]
        self.rows = keep_A.shape[0]

    def _add_nodes(self, position: int, encoded_RH: Tensor) -> None:
        """Draw the next node of every graph, decision by decision."""
        heads, place = self.parts.heads, self.progress.place
        context_RH = heads.context_state(
            encoded_RH, self._spread(place.size_T), self._spread(place.index_T)
        )
        first_B, kind_RH = self._first_parents(position, context_RH)
        kind_logits_BK = self._guided(heads.kind_readout(kind_RH))
        kind_B = pick(self.parts.arity.limit_kinds(kind_logits_BK, first_B), self.u_BS[:, _KIND])
        state_RH = heads.degree_state(kind_RH, self._spread(kind_B))
        degree_B = self._degrees(state_RH, kind_B, first_B)
        parents_RH = self._connect(position, state_RH, first_B, degree_B)
        state_RH = heads.other_state(state_RH, self._spread(degree_B), parents_RH)
        codes = [kind_B]
        for index, readout in enumerate(heads.other_readouts):
            logits_BK = self.parts.arity.limit_attributes(self._guided(readout(state_RH)), index)
            code_B = pick(logits_BK, self.u_BS[:, _OTHER + index])
            state_RH = heads.after_other(state_RH, index, self._spread(code_B))
            codes.append(code_B)
        planned_B = self._plans(state_RH, kind_B)
        room_B = self.parts.arity.room(kind_B, None if heads.plan is None else planned_B)
        self.progress.plan(position, planned_B, room_B)
        self.x_BA = torch.stack(codes, dim=1)
        self.harvest.add_nodes(self.progress.sample_B, self.x_BA)

    def _plans(self, state_RH: Tensor, kind_B: Tensor) -> Tensor:
        """Draw the number of children that each node announces; 0 in a model without plans."""
        heads = self.parts.heads
        if heads.plan is None or heads.plan_readout is None:
            return torch.zeros_like(kind_B)
        plan_B = pick(self._guided(heads.plan_readout(state_RH)), self.u_BS[:, _PLAN])
        return heads.plan.decode(plan_B, self.u_BS[:, _PLAN + 1])

    def _first_parents(self, position: int, context_RH: Tensor) -> tuple[Tensor, Tensor]:
        """Draw the first parent of each node (0 in layer 0); return it with the kind's state."""
        progress, heads = self.progress, self.parts.heads
        row_A = (progress.place.layer_T > 0).nonzero()[:, 0]
        twin_R = self._twin_rows(row_A)
        first_B, stub_B = torch.zeros_like(progress.sibling_B), torch.zeros_like(progress.sibling_B)
        parent_RH = torch.zeros_like(context_RH)
        if row_A.shape[0]:
            span = (progress.before_start_B[row_A], progress.layer_start_B[row_A])
            choice = self._choice(row_A, *span, progress.sibling_B[row_A])
            u_A2 = self.u_BS[row_A, _FIRST : _FIRST + 2]
            parent_A = self._choose(position, context_RH[twin_R], choice, u_A2)
            first_B[row_A] = parent_A
            planned_A = progress.planned.data[row_A, parent_A]
            stub_B[row_A] = stub_code(progress.used.data[row_A, parent_A], planned_A)
            parent_RH[twin_R] = self.cache.encoded.data[twin_R, self._spread(parent_A)]
        progress.sibling_B = first_B.masked_fill(first_B == 0, NEVER)
        return first_B, heads.kind_state(context_RH, parent_RH, self._spread(stub_B))

    def _degrees(self, state_RH: Tensor, kind_B: Tensor, first_B: Tensor) -> Tensor:
        """Draw the in-degree of each node within the limits of its kind."""
        counter, arity = self.parts.heads.degree, self.parts.arity
        logits_BK = self._guided(self.parts.heads.degree_readout(state_RH))
        logits_BK = arity.limit_degrees(logits_BK, counter, kind_B, first_B)
        degree_B = counter.decode(pick(logits_BK, self.u_BS[:, _DEGREE]), self.u_BS[:, _DEGREE + 1])
        return arity.clamp(degree_B, kind_B, first_B)

    def _connect(
        self, position: int, state_RH: Tensor, first_B: Tensor, degree_B: Tensor
    ) -> Tensor:
        """Draw further parents and all edge types; return the mean encoding of the parents."""
        heads = self.parts.heads
        self.newest_edges = []
        sum_RH = torch.zeros_like(state_RH)
        row_A = (degree_B > 0).nonzero()[:, 0]
        parent_A, rank = first_B[row_A], 0
        while row_A.shape[0]:
            twin_R, open_A = self._twin_rows(row_A), degree_B[row_A] - rank - 1
            parent_RH = self.cache.encoded.data[twin_R, self._spread(parent_A)]
            sum_RH[twin_R] += parent_RH
            after_RH = heads.further_state(state_RH[twin_R], parent_RH, self._spread(open_A))
            slot = _FURTHER + _FURTHER_STRIDE * rank
            u_A3 = self._uniforms(position, range(slot, slot + _FURTHER_STRIDE), row_A)
            type_A = pick(self._guided(heads.type_readout(after_RH)), u_A3[:, 2])
            self._add_edges(position, row_A, parent_A, type_A)
            more_A = (open_A > 0).nonzero()[:, 0]
            more_R = torch.cat([more_A, more_A + row_A.shape[0]]) if self.twins == 2 else more_A
            row_A, parent_A, rank = row_A[more_A], parent_A[more_A], rank + 1
            if row_A.shape[0]:
                choice = self._choice(row_A, open_A[more_A], parent_A, parent_A)
                parent_A = self._choose(position, after_RH[more_R], choice, u_A3[more_A])
        # Uses count from the next node on, as in training, where a child is one point in time.
        for edge_row_A, edge_parent_A in self.newest_edges:
            self.progress.connect(edge_row_A, edge_parent_A)
        return sum_RH / self._spread(degree_B).clamp(min=1)[:, None]

    def _add_edges(self, position: int, row_A: Tensor, parent_A: Tensor, type_A: Tensor) -> None:
        """Note one more parent for the newest node of the rows ``row_A``."""
        self.newest_edges.append((row_A, parent_A))
        child_A = torch.full_like(parent_A, position)
        self.harvest.add_edges(self.progress.sample_B[row_A], parent_A, child_A, type_A)

    def _choice(self, row_A: Tensor, low_A: Tensor, high_A: Tensor, reference_A: Tensor) -> Choice:
        """Return a decision for each of the encoder's rows of the graphs ``row_A``."""
        spread = (self._spread(value) for value in (row_A, low_A, high_A, reference_A))
        return Choice(self._twin_rows(row_A), *spread)

    def _choose(self, position: int, state_DH: Tensor, choice: Choice, u_A: Tensor) -> Tensor:
        """Draw one parent a graph; with blocks among the candidates, then a token inside."""
        scorer = ParentScorer(self.parts.heads.pointer, self.cache, self.progress, position)
        hidden_DH = scorer.pointer.bend(state_DH)
        scores = scorer.in_sight(hidden_DH, choice)
        column_A = pick(self._guided(scores.logits_DC), u_A[:, 0])
        count = column_A.shape[0]
        parent_A = scores.first_token_D[:count] + column_A
        far_A = (column_A >= scores.tokens).nonzero()[:, 0]
        if far_A.shape[0] == 0:
            return parent_A
        far_D = torch.cat([far_A, far_A + count]) if self.twins == 2 else far_A
        block_A = scores.first_block_D[far_A] + column_A[far_A] - scores.tokens
        inside = scorer.inside(hidden_DH[far_D], choice.at(far_D), self._spread(block_A))
        column_F = pick(self._guided(inside.logits_DC), u_A[far_A, 1])
        parent_A[far_A] = inside.first_token_D[: far_A.shape[0]] + column_F
        return parent_A
