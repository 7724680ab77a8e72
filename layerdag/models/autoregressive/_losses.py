"""Teacher forcing: the likelihood of every decision of a batch of training graphs in one pass.

Shape letters: T tokens, N nodes, L layers, E edges (one parent decision each), F decisions whose
parent lies in a pooled block, P pairs of decision and candidate, M attention blocks, S segments, A
attributes, H width of a state, K width of a key or number of codes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from layerdag.models import LossTerm
from layerdag.models.autoregressive._encoder import block_sum
from layerdag.models.autoregressive._heads import Heads, Pointer
from layerdag.models.autoregressive._layout import Blocks, Edges, Layout
from layerdag.models.autoregressive._parents import (
    NEVER,
    CandidatePairs,
    Decisions,
    ParentHistory,
    log_code,
    split_ranges,
    stub_code,
)
from layerdag.models.autoregressive._tokens import StructuralFeatures
from layerdag.models.layers import Counter, gather_rows, segment_mean


@dataclass(frozen=True, eq=False)
class Targets:
    """A batch of training graphs with its layout: the targets of teacher forcing.

    Attributes:
        x_NA: Attribute codes.
        layout: Tokens and layers.
        edges: Edges in the order of their decisions.
        structure: Structural features of each token.
        blocks: Attention blocks.
    """

    x_NA: Tensor
    layout: Layout
    edges: Edges
    structure: StructuralFeatures
    blocks: Blocks


def layer_size_loss(heads: Heads, encoded_TH: Tensor, layout: Layout) -> LossTerm:
    """Return the loss of each layer's size, and of size 0 after the last layer."""
    token = torch.cat([layout.first_token_L - 1, layout.end_B - 1])
    size = torch.cat([layout.layer_size_L, torch.zeros_like(layout.end_B)])
    logits = heads.size_logits(gather_rows(encoded_TH, token), layout.layer_T[token] < 0)
    return _term(_count_loss(logits, size, heads.size), token.shape[0])


def node_and_edge_losses(
    heads: Heads, encoded_TH: Tensor, targets: Targets
) -> tuple[LossTerm, LossTerm]:
    """Return the loss of attributes and out-degrees, and that of parents, in-degrees and types."""
    edges, structure, token_N = targets.edges, targets.structure, targets.layout.token_N
    first = edges.rank_E == 0
    num_tokens = structure.out_degree_T.shape[0]
    uses = ParentHistory(edges.parent_E, edges.child_E, num_tokens, num_tokens)
    parent_EH = gather_rows(encoded_TH, edges.parent_E)
    context_NH = heads.context_state(
        gather_rows(encoded_TH, token_N - 1), structure.size_T[token_N], structure.index_T[token_N]
    )
    first_NH = torch.zeros_like(context_NH).index_copy(
        0, edges.node_E[first], gather_rows(parent_EH, first.nonzero()[:, 0])
    )
    kind_NH = heads.kind_state(context_NH, first_NH, _first_stubs(targets, uses))
    kind_N = targets.x_NA[:, 0]
    degree_NH = heads.degree_state(kind_NH, kind_N)
    after_EH = heads.further_state(
        gather_rows(degree_NH, edges.node_E), parent_EH, edges.degree_E - edges.rank_E - 1
    )
    before_EH = torch.cat([after_EH[:1], after_EH[:-1]])
    state_EH = torch.where(first[:, None], gather_rows(context_NH, edges.node_E), before_EH)
    parents_NH = segment_mean(parent_EH, edges.node_E, edges.in_degree_N)
    other_NH = heads.other_state(degree_NH, edges.in_degree_N, parents_NH)

    decisions = Decisions.of(targets.layout, edges)
    key_TK = heads.pointer.key(encoded_TH)
    inner_N = edges.in_degree_N > 0
    edge = _TeacherForcedScorer(heads.pointer, targets, decisions, key_TK, uses).loss(state_EH)
    edge = edge + _code_loss(heads.type_readout(after_EH), edges.type_E)
    degree_logits = heads.degree_readout(gather_rows(degree_NH, inner_N.nonzero()[:, 0]))
    edge = edge + _count_loss(degree_logits, edges.in_degree_N[inner_N], heads.in_degree)
    node = _code_loss(heads.kind_readout(kind_NH), kind_N)
    node = node + _other_losses(
        heads, other_NH, targets.x_NA[:, 1:], structure.out_degree_T[token_N]
    )
    return _term(node, kind_N.shape[0]), _term(edge, kind_N.shape[0])


def _first_stubs(targets: Targets, uses: ParentHistory) -> Tensor:
    """Return the stub code of each node's first parent, 0 in layer 0."""
    edges = targets.edges
    first = edges.rank_E == 0
    used, _ = uses.before(edges.parent_E[first], edges.child_E[first])
    stub_N = torch.zeros_like(edges.in_degree_N)
    stub_N[edges.node_E[first]] = stub_code(
        used, targets.structure.out_degree_T[edges.parent_E[first]]
    )
    return stub_N


def _other_losses(
    heads: Heads, state_NH: Tensor, others_NA: Tensor, out_degree_N: Tensor
) -> Tensor:
    """Return the loss of the further attributes, each given those before, and of out-degrees."""
    loss = state_NH.new_zeros(())
    for index, (code_N, readout) in enumerate(zip(others_NA.T, heads.other_readouts, strict=True)):
        loss = loss + _code_loss(readout(state_NH), code_N)
        state_NH = heads.after_other(state_NH, index, code_N)
    if heads.out_degree is None or heads.plan_readout is None:
        return loss
    return loss + _count_loss(heads.plan_readout(state_NH), out_degree_N, heads.out_degree)


@dataclass(frozen=True, eq=False)
class _TeacherForcedScorer:
    """Scores of candidate parents at the time of each decision, from the training graphs.

    Attributes:
        pointer: The model's pointer.
        targets: The training graphs.
        decisions: One decision per edge.
        key_TK: Pointer key of each token.
        tokens: Earlier uses of tokens as parents.
    """

    pointer: Pointer
    targets: Targets
    decisions: Decisions
    key_TK: Tensor
    tokens: ParentHistory

    def loss(self, state_EH: Tensor) -> Tensor:
        """Return -log p of every parent, summed: token in the window, or block and token inside."""
        blocks, parent_E = self.targets.blocks, self.targets.edges.parent_E
        low_E, high_E = self.decisions.low_D, self.decisions.high_D
        hidden_EH = self.pointer.activate(state_EH)
        window_E, far_end_E = split_ranges(self.decisions, self.targets.layout, blocks)
        near = CandidatePairs.ranges(torch.maximum(low_E, window_E), high_E)
        far_high_E = torch.minimum(far_end_E, blocks.of_T[(high_E - 1).clamp(min=0)] + 1)
        far = CandidatePairs.ranges(blocks.of_T[low_E], far_high_E)
        is_far_E = parent_E < window_E
        near_target_E = parent_E.masked_fill(is_far_E, NEVER)
        far_target_E = blocks.of_T[parent_E].masked_fill(~is_far_E, NEVER)
        near_hit_P = near.candidate_P == near_target_E[near.decision_P]
        far_hit_P = far.candidate_P == far_target_E[far.decision_P]
        loss = _ragged_loss(
            torch.cat([self._tokens(hidden_EH, near), self._blocks(hidden_EH, far)]),
            torch.cat([near.decision_P, far.decision_P]),
            torch.cat([near_hit_P, far_hit_P]),
            parent_E.shape[0],
        )
        return loss + self._inside_loss(hidden_EH, is_far_E.nonzero()[:, 0])

    def _inside_loss(self, hidden_EH: Tensor, far_F: Tensor) -> Tensor:
        """Return -log p of the token inside the chosen block, for the decisions ``far_F``."""
        blocks, parent_F = self.targets.blocks, self.targets.edges.parent_E[far_F]
        start_F = parent_F - blocks.offset_T[parent_F]
        low_F = torch.maximum(self.decisions.low_D[far_F], start_F)
        high_F = torch.minimum(self.decisions.high_D[far_F], start_F + blocks.block)
        inside = CandidatePairs.ranges(low_F, high_F)
        pairs = CandidatePairs(far_F[inside.decision_P], inside.candidate_P)
        hit_P = inside.candidate_P == parent_F[inside.decision_P]
        score_P = self._tokens(hidden_EH, pairs)
        return _ragged_loss(score_P, inside.decision_P, hit_P, far_F.shape[0])

    def _tokens(self, hidden_EH: Tensor, pairs: CandidatePairs) -> Tensor:
        """Return the score of each candidate token."""
        layer_T, candidate_P = self.targets.layout.layer_T, pairs.candidate_P
        child_P = self.decisions.child_D[pairs.decision_P]
        reference_P = self.decisions.reference_D[pairs.decision_P]
        used_P, last_P = self.tokens.before(candidate_P, child_P)
        codes_P4 = self.pointer.token_codes(
            stub_code(used_P, self.targets.structure.out_degree_T[candidate_P]),
            candidate_P - reference_P,
            reference_P != NEVER,
            (child_P - last_P) * (last_P != NEVER),
            layer_T[child_P] - layer_T[candidate_P],
        )
        return self.pointer.tokens(
            hidden_EH, gather_rows(self.key_TK, candidate_P), codes_P4, pairs
        )

    def _blocks(self, hidden_EH: Tensor, pairs: CandidatePairs) -> Tensor:
        """Return the score of each candidate block."""
        blocks, edges = self.targets.blocks, self.targets.edges
        out_degree_T = self.targets.structure.out_degree_T
        uses = ParentHistory(
            blocks.of_T[edges.parent_E], edges.child_E, blocks.num_blocks, out_degree_T.shape[0]
        )
        used_P, _ = uses.before(pairs.candidate_P, self.decisions.child_D[pairs.decision_P])
        out_degree_M = out_degree_T.new_zeros(blocks.num_blocks).index_add(
            0, blocks.of_T, out_degree_T
        )
        code_P = log_code((out_degree_M[pairs.candidate_P] - used_P).clamp(min=0))
        key_MK = block_sum(self.key_TK, blocks) / blocks.block
        return self.pointer.blocks(hidden_EH, gather_rows(key_MK, pairs.candidate_P), code_P, pairs)


def _ragged_loss(logit_P: Tensor, segment_P: Tensor, target_P: Tensor, segments: int) -> Tensor:
    """Return the cross entropy of one softmax per segment, summed; each has one target."""
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
