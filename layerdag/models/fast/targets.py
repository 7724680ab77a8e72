"""A batch of training graphs as the targets of teacher forcing, made on the host.

Sizes that follow from the graphs, such as the number of candidate parents, are known before the
device begins a step, so that it never waits for the host to read one.

Shape letters: A node attributes, E edges, F feature columns, N nodes, P pairs, Q decisions, T
tokens, Z attention blocks, q selected decisions.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from layerdag.dag.dag import DAGBatch
from layerdag.models.fast.layout import (
    NEVER,
    AttentionBlocks,
    BatchLayout,
    CandidatePairs,
    Edges,
    ParentDecisionRows,
    ParentHistory,
    TokenCodes,
    log_code,
    split_ranges,
    stub_code,
)
from layerdag.models.fast.tokens import StructuralFeatures


@dataclass(frozen=True, eq=False)
class TrainingCandidates:
    """Candidate parents of every decision of a batch.

    A parent is drawn among the tokens of the window and the older blocks; where a block is drawn,
    among the tokens inside it, too. Each draw is a softmax over its pairs: tokens of windows, then
    tokens inside blocks, then blocks.

    Attributes:
        tokens: Decisions (edges) and candidate tokens.
        codes_P4: Features of these tokens.
        blocks: Decisions and candidate blocks.
        block_codes_P: Code of the pending children of these blocks.
        softmax_P: Softmax of each pair of tokens and of blocks, tokens first.
        hit_P: Which pairs are what was chosen, one of each softmax.
        softmaxes: Their number.
    """

    tokens: CandidatePairs
    codes_P4: Int[Tensor, "P 4"]
    blocks: CandidatePairs
    block_codes_P: Int[Tensor, " _"]
    softmax_P: Int[Tensor, " _"]
    hit_P: Bool[Tensor, " _"]
    softmaxes: int

    @classmethod
    def from_graphs(
        cls,
        layout: BatchLayout,
        edges: Edges,
        out_degree_T: Int[Tensor, " T"],
        blocks: AttentionBlocks,
        token_codes: TokenCodes,
    ) -> "TrainingCandidates":
        """Return the candidates of all parents of a batch; ``out_degree_T`` is predicted."""
        decisions = ParentDecisionRows.from_edges(layout, edges)
        parent_E, low_E, high_E = edges.parent_E, decisions.low_Q, decisions.high_Q
        window_E, far_end_E = split_ranges(decisions, layout, blocks)
        near = CandidatePairs.ranges(torch.maximum(low_E, window_E), high_E)
        far_high_E = torch.minimum(far_end_E, blocks.of_T[(high_E - 1).clamp(min=0)] + 1)
        far = CandidatePairs.ranges(blocks.of_T[low_E], far_high_E)
        is_far_E = parent_E < window_E
        far_q = is_far_E.nonzero()[:, 0]
        start_q = parent_E[far_q] - blocks.offset_T[parent_E[far_q]]
        inside = CandidatePairs.ranges(
            torch.maximum(low_E[far_q], start_q),
            torch.minimum(high_E[far_q], start_q + blocks.block),
        )
        near_target_E = parent_E.masked_fill(is_far_E, NEVER)
        far_target_E = blocks.of_T[parent_E].masked_fill(~is_far_E, NEVER)
        tokens = CandidatePairs(
            torch.cat([near.decision_P, far_q[inside.decision_P]]),
            torch.cat([near.candidate_P, inside.candidate_P]),
        )
        count = parent_E.shape[0]
        return cls(
            tokens=tokens,
            codes_P4=_token_codes(layout, edges, out_degree_T, decisions, tokens, token_codes),
            blocks=far,
            block_codes_P=_block_codes(edges, out_degree_T, decisions, far, blocks),
            softmax_P=torch.cat([near.decision_P, count + inside.decision_P, far.decision_P]),
            hit_P=torch.cat(
                [
                    near.candidate_P == near_target_E[near.decision_P],
                    inside.candidate_P == parent_E[far_q[inside.decision_P]],
                    far.candidate_P == far_target_E[far.decision_P],
                ]
            ),
            softmaxes=count + far_q.shape[0],
        )


def _token_codes(
    layout: BatchLayout,
    edges: Edges,
    out_degree_T: Int[Tensor, " T"],
    decisions: ParentDecisionRows,
    pairs: CandidatePairs,
    token_codes: TokenCodes,
) -> Int[Tensor, "P 4"]:
    """Return the features of candidate tokens at the time of each decision."""
    layer_T, candidate_P = layout.layer_T.clamp(min=0), pairs.candidate_P
    child_P = decisions.child_Q[pairs.decision_P]
    reference_P = decisions.reference_Q[pairs.decision_P]
    uses = ParentHistory(edges.parent_E, edges.child_E, layout.num_tokens, layout.num_tokens)
    used_P, last_P = uses.before(candidate_P, child_P)
    return token_codes(
        stub_code(used_P, out_degree_T[candidate_P]),
        candidate_P - reference_P,
        reference_P != NEVER,
        (child_P - last_P) * (last_P != NEVER),
        layer_T[child_P] - layer_T[candidate_P],
    )


def _block_codes(
    edges: Edges,
    out_degree_T: Int[Tensor, " T"],
    decisions: ParentDecisionRows,
    pairs: CandidatePairs,
    blocks: AttentionBlocks,
) -> Int[Tensor, " P"]:
    """Return the code of the pending children of candidate blocks at the time of each decision."""
    parent_E = blocks.of_T[edges.parent_E]
    uses = ParentHistory(parent_E, edges.child_E, blocks.num_blocks, out_degree_T.shape[0])
    used_P, _ = uses.before(pairs.candidate_P, decisions.child_Q[pairs.decision_P])
    out_degree_Z = torch.zeros_like(out_degree_T[:1]).new_zeros(blocks.num_blocks)
    out_degree_Z = out_degree_Z.index_add(0, blocks.of_T, out_degree_T)
    return log_code((out_degree_Z[pairs.candidate_P] - used_P).clamp(min=0))


@dataclass(frozen=True, eq=False)
class Targets:
    """A batch of training graphs with its layout: the targets of teacher forcing.

    Attributes:
        x_NA: Attribute codes.
        layout: Tokens and layers.
        edges: Edges in the order of their decisions.
        structure: Structural features of each token.
        blocks: Attention blocks.
        candidates: Candidate parents.
        token_codes_TF: Codes of the encoder's input.
        first_q: Edge to the first parent of each node that has one, in the order of the nodes.
        inner_q: These nodes.
        first_stub_N: Stub code of each node's first parent, 0 in layer 0.
    """

    x_NA: Int[Tensor, "N A"]
    layout: BatchLayout
    edges: Edges
    structure: StructuralFeatures
    blocks: AttentionBlocks
    candidates: TrainingCandidates
    token_codes_TF: Int[Tensor, "T F"]
    first_q: Int[Tensor, " q"]
    inner_q: Int[Tensor, " q"]
    first_stub_N: Int[Tensor, " N"]

    @classmethod
    def from_batch(
        cls,
        batch: DAGBatch,
        block: int,
        encode: Callable[[Tensor, StructuralFeatures], Tensor],
        token_codes: TokenCodes,
        *,
        plans: bool,
        out_degree_N: Int[Tensor, " N"] | None = None,
    ) -> "Targets":
        """Return the targets of a batch that lies on the host.

        Args:
            batch: The graphs.
            block: Tokens of an attention block.
            encode: Codes of the encoder's input from attributes of nodes and structure.
            token_codes: Features of candidate parents.
            plans: Whether out-degrees are predicted.
            out_degree_N: Predicted out-degrees; None: those of the graphs.
        """
        layout = BatchLayout.from_batch(batch)
        edges = Edges.from_batch(batch, layout)
        out_degree_T = edges.out_degree_T
        if out_degree_N is not None:
            out_degree_T = out_degree_T.index_copy(0, layout.token_N, out_degree_N)
        if not plans:
            out_degree_T = torch.zeros_like(out_degree_T)
        structure = StructuralFeatures.from_layout(layout, edges, out_degree_T)
        blocks = AttentionBlocks.from_layout(layout, block)
        first_q = (edges.rank_E == 0).nonzero()[:, 0]
        inner_q, parent_q = edges.node_E[first_q], edges.parent_E[first_q]
        uses = ParentHistory(edges.parent_E, edges.child_E, layout.num_tokens, layout.num_tokens)
        used_q, _ = uses.before(parent_q, edges.child_E[first_q])
        first_stub_N = torch.zeros_like(edges.in_degree_N)
        first_stub_N[inner_q] = stub_code(used_q, out_degree_T[parent_q])
        return cls(
            x_NA=batch.x_NA,
            layout=layout,
            edges=edges,
            structure=structure,
            blocks=blocks,
            candidates=TrainingCandidates.from_graphs(
                layout, edges, out_degree_T, blocks, token_codes
            ),
            token_codes_TF=encode(batch.x_NA, structure),
            first_q=first_q,
            inner_q=inner_q,
            first_stub_N=first_stub_N,
        )

    def to(self, device: torch.device) -> "Targets":
        """Return the targets on ``device``."""
        return self if self.x_NA.device == device else _moved(self, device)


M = TypeVar("M")


def _moved(value: M, device: torch.device) -> M:
    """Return a tree of dataclasses with its tensors on ``device``."""
    found: Any = value
    if isinstance(found, Tensor):
        return found.to(device)  # type: ignore[return-value]
    if not is_dataclass(found) or isinstance(found, type):
        return value
    parts = {field.name: _moved(getattr(found, field.name), device) for field in fields(found)}
    return replace(found, **parts)  # type: ignore[return-value]
