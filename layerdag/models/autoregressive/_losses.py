"""Teacher forcing: the likelihood of every decision of a batch of true graphs, all at once."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from layerdag.models import LossTerm, take_rows
from layerdag.models.autoregressive._counts import Counter
from layerdag.models.autoregressive._encoder import block_sum, segment_mean
from layerdag.models.autoregressive._heads import Heads, Pointer
from layerdag.models.autoregressive._layout import Blocks, Edges, Layout
from layerdag.models.autoregressive._parents import (
    NEVER,
    Candidates,
    Decisions,
    History,
    log_code,
    split_ranges,
    stub_code,
    token_codes,
)
from layerdag.models.autoregressive._tokens import Place


@dataclass(frozen=True, eq=False)
class Truth:
    """A batch of true graphs, laid out.

    Attributes:
        x_NA: Attribute codes.
        layout: Tokens and layers.
        edges: Edges in the order of their decisions.
        place: Counts at each token.
        blocks: Attention blocks.
    """

    x_NA: Tensor
    layout: Layout
    edges: Edges
    place: Place
    blocks: Blocks


def layer_size_loss(heads: Heads, encoded_TH: Tensor, layout: Layout) -> LossTerm:
    """Return the loss of each layer's size, and of size 0 after the last layer."""
    token = torch.cat([layout.first_token_L - 1, layout.end_B - 1])
    size = torch.cat([layout.layer_size_L, torch.zeros_like(layout.end_B)])
    logits = heads.size_logits(take_rows(encoded_TH, token), layout.layer_T[token] < 0)
    return _term(_count_loss(logits, size, heads.size), token.shape[0])


def node_and_edge_losses(
    heads: Heads, encoded_TH: Tensor, truth: Truth
) -> tuple[LossTerm, LossTerm]:
    """Return the losses of attributes and plans, and of parents, in-degrees and edge types."""
    edges, place, token_N = truth.edges, truth.place, truth.layout.token_N
    first = edges.rank_E == 0
    num_tokens = place.planned_T.shape[0]
    uses = History(edges.parent_E, edges.child_E, num_tokens, num_tokens)
    parent_EH = take_rows(encoded_TH, edges.parent_E)
    context_NH = heads.context_state(
        take_rows(encoded_TH, token_N - 1), place.size_T[token_N], place.index_T[token_N]
    )
    first_NH = torch.zeros_like(context_NH).index_copy(
        0, edges.node_E[first], take_rows(parent_EH, first.nonzero()[:, 0])
    )
    kind_NH = heads.kind_state(context_NH, first_NH, _first_stubs(truth, uses))
    kind_N = truth.x_NA[:, 0]
    degree_NH = heads.degree_state(kind_NH, kind_N)
    after_EH = heads.further_state(
        take_rows(degree_NH, edges.node_E), parent_EH, edges.degree_E - edges.rank_E - 1
    )
    before_EH = torch.cat([after_EH[:1], after_EH[:-1]])
    state_EH = torch.where(first[:, None], take_rows(context_NH, edges.node_E), before_EH)
    parents_NH = segment_mean(parent_EH, edges.node_E, edges.in_degree_N)
    other_NH = heads.other_state(degree_NH, edges.in_degree_N, parents_NH)

    decisions = Decisions.of(truth.layout, edges)
    key_TK = heads.pointer.key(encoded_TH)
    inner_N = edges.in_degree_N > 0
    edge = _Teacher(heads.pointer, truth, decisions, key_TK, uses).loss(state_EH)
    edge = edge + _code_loss(heads.type_readout(after_EH), edges.type_E)
    degree_logits = heads.degree_readout(take_rows(degree_NH, inner_N.nonzero()[:, 0]))
    edge = edge + _count_loss(degree_logits, edges.in_degree_N[inner_N], heads.degree)
    node = _code_loss(heads.kind_readout(kind_NH), kind_N)
    node = node + _other_losses(heads, other_NH, truth.x_NA[:, 1:], place.planned_T[token_N])
    return _term(node, kind_N.shape[0]), _term(edge, kind_N.shape[0])


def _first_stubs(truth: Truth, uses: History) -> Tensor:
    """Return the stub code of each node's first parent, 0 in layer 0."""
    edges = truth.edges
    first = edges.rank_E == 0
    used, _ = uses.before(edges.parent_E[first], edges.child_E[first])
    stub_N = torch.zeros_like(edges.in_degree_N)
    stub_N[edges.node_E[first]] = stub_code(used, truth.place.planned_T[edges.parent_E[first]])
    return stub_N


def _other_losses(heads: Heads, state_NH: Tensor, others_NA: Tensor, planned_N: Tensor) -> Tensor:
    """Return the loss of the attributes after the kind, each given those before, and of plans."""
    loss = state_NH.new_zeros(())
    for index, (code_N, readout) in enumerate(zip(others_NA.T, heads.other_readouts, strict=True)):
        loss = loss + _code_loss(readout(state_NH), code_N)
        state_NH = heads.after_other(state_NH, index, code_N)
    if heads.plan is None or heads.plan_readout is None:
        return loss
    return loss + _count_loss(heads.plan_readout(state_NH), planned_N, heads.plan)


@dataclass(frozen=True, eq=False)
class _Teacher:
    """Scores of candidate parents at the time of each decision, from the true graphs.

    Attributes:
        pointer: The model's pointer.
        truth: The true graphs.
        decisions: One decision an edge.
        key_TK: Pointer key of each token.
        tokens: Uses of tokens.
    """

    pointer: Pointer
    truth: Truth
    decisions: Decisions
    key_TK: Tensor
    tokens: History

    def loss(self, state_EH: Tensor) -> Tensor:
        """Return -log p of every parent, summed: token in sight, or block and token inside."""
        blocks, parent_E = self.truth.blocks, self.truth.edges.parent_E
        low_E, high_E = self.decisions.low_D, self.decisions.high_D
        hidden_EH = self.pointer.bend(state_EH)
        window_E, far_end_E = split_ranges(self.decisions, self.truth.layout, blocks)
        near = Candidates.ranges(torch.maximum(low_E, window_E), high_E)
        far_high_E = torch.minimum(far_end_E, blocks.of_T[(high_E - 1).clamp(min=0)] + 1)
        far = Candidates.ranges(blocks.of_T[low_E], far_high_E)
        is_far_E = parent_E < window_E
        near_target_E = parent_E.masked_fill(is_far_E, NEVER)
        far_target_E = blocks.of_T[parent_E].masked_fill(~is_far_E, NEVER)
        near_hit_P = near.item_P == near_target_E[near.decision_P]
        far_hit_P = far.item_P == far_target_E[far.decision_P]
        loss = _ragged_loss(
            torch.cat([self._tokens(hidden_EH, near), self._blocks(hidden_EH, far)]),
            torch.cat([near.decision_P, far.decision_P]),
            torch.cat([near_hit_P, far_hit_P]),
            parent_E.shape[0],
        )
        return loss + self._inside_loss(hidden_EH, is_far_E.nonzero()[:, 0])

    def _inside_loss(self, hidden_EH: Tensor, far_F: Tensor) -> Tensor:
        """Return -log p of the token inside the chosen block, for the decisions ``far_F``."""
        blocks, parent_F = self.truth.blocks, self.truth.edges.parent_E[far_F]
        start_F = parent_F - blocks.offset_T[parent_F]
        low_F = torch.maximum(self.decisions.low_D[far_F], start_F)
        high_F = torch.minimum(self.decisions.high_D[far_F], start_F + blocks.block)
        inside = Candidates.ranges(low_F, high_F)
        pairs = Candidates(far_F[inside.decision_P], inside.item_P)
        hit_P = inside.item_P == parent_F[inside.decision_P]
        score_P = self._tokens(hidden_EH, pairs)
        return _ragged_loss(score_P, inside.decision_P, hit_P, far_F.shape[0])

    def _tokens(self, hidden_EH: Tensor, pairs: Candidates) -> Tensor:
        """Return the score of each candidate token."""
        layer_T, item_P = self.truth.layout.layer_T, pairs.item_P
        child_P = self.decisions.child_D[pairs.decision_P]
        reference_P = self.decisions.reference_D[pairs.decision_P]
        used_P, last_P = self.tokens.before(item_P, child_P)
        codes_P4 = token_codes(
            stub_code(used_P, self.truth.place.planned_T[item_P]),
            item_P - reference_P,
            reference_P != NEVER,
            (child_P - last_P) * (last_P != NEVER),
            layer_T[child_P] - layer_T[item_P],
        )
        return self.pointer.tokens(hidden_EH, take_rows(self.key_TK, item_P), codes_P4, pairs)

    def _blocks(self, hidden_EH: Tensor, pairs: Candidates) -> Tensor:
        """Return the score of each candidate block."""
        blocks, edges = self.truth.blocks, self.truth.edges
        planned_T = self.truth.place.planned_T
        uses = History(
            blocks.of_T[edges.parent_E], edges.child_E, blocks.num_blocks, planned_T.shape[0]
        )
        used_P, _ = uses.before(pairs.item_P, self.decisions.child_D[pairs.decision_P])
        planned_M = planned_T.new_zeros(blocks.num_blocks).index_add(0, blocks.of_T, planned_T)
        code_P = log_code((planned_M[pairs.item_P] - used_P).clamp(min=0))
        key_MK = block_sum(self.key_TK, blocks) / blocks.block
        return self.pointer.blocks(hidden_EH, take_rows(key_MK, pairs.item_P), code_P, pairs)


def _ragged_loss(logit_P: Tensor, segment_P: Tensor, target_P: Tensor, segments: int) -> Tensor:
    """Return the cross entropy of one softmax a segment, summed; one target in each segment."""
    with torch.no_grad():
        top_S = logit_P.new_full((segments,), -torch.inf)
        top_S = top_S.scatter_reduce(0, segment_P, logit_P, "amax")
    shifted_P = logit_P - top_S.index_select(0, segment_P)
    total_S = shifted_P.new_zeros(segments).index_add(0, segment_P, shifted_P.exp())
    return total_S.log().sum() - shifted_P.masked_fill(~target_P, 0.0).sum()


def _code_loss(logits_NK: Tensor, code_N: Tensor) -> Tensor:
    """Return the cross entropy, summed."""
    return F.cross_entropy(logits_NK, code_N, reduction="sum")


def _count_loss(logits_NK: Tensor, count_N: Tensor, counter: Counter) -> Tensor:
    """Return -log p of counts, summed: of the bin, and of one of the counts in the bin."""
    code_N = counter.encode(count_N)
    inside = counter.log_width()[code_N].sum()
    return _code_loss(logits_NK, code_N) + inside


def _term(total: Tensor, count: int) -> LossTerm:
    """Return a LossTerm with the count on the device of the total."""
    return LossTerm(total, torch.tensor(float(count), device=total.device))
