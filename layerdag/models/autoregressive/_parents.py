"""Candidate parents of a node and their features at the time of the decision.

A parent is chosen from an interval of earlier tokens: the first parent from the layer before, every
further one from the tokens before the parent chosen last. Tokens in the attention window of the
decision are candidates; older tokens are grouped into blocks, and a second decision selects the
token inside the block. So there are at most two blocks of candidate tokens plus one candidate per
older block, and every earlier node can still be reached.

A pending child of a node is a *stub* (half-edge), as in the configuration model of random graphs.

Shape letters: B graphs, E edges, G groups of rows (tokens or blocks), N nodes, P pairs, Q
decisions, T tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from layerdag.models.autoregressive._layout import Blocks, Edges, Layout

STUB_CODES, OFFSET_CODES, GAP_CODES = 16, 10, 10
TOKEN_CODES = (STUB_CODES, OFFSET_CODES, GAP_CODES, GAP_CODES)
BLOCK_CODES = GAP_CODES
NEVER = -1


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions on one parent each, by token.

    Attributes:
        child_Q: Token that gets the parent.
        low_Q: First token that may be chosen.
        high_Q: One past the last token that may be chosen.
        reference_Q: Token to measure offsets from, ``NEVER`` for none: the parent chosen last for
            the same child, or for a first parent that of the sibling before.
    """

    child_Q: Int[Tensor, " Q"]
    low_Q: Int[Tensor, " Q"]
    high_Q: Int[Tensor, " Q"]
    reference_Q: Int[Tensor, " Q"]

    @classmethod
    def of(cls, layout: Layout, edges: Edges) -> "Decisions":
        """Return the decision of each edge of a batch."""
        first_E = edges.rank_E == 0
        start_E = layout.start_B[layout.graph_T[edges.child_E]]
        before_E = torch.cat([edges.parent_E[:1], edges.parent_E[:-1]])
        sibling_T = torch.full((layout.num_tokens + 1,), NEVER, device=start_E.device)
        sibling_T[edges.child_E[first_E] + 1] = edges.parent_E[first_E]
        has_sibling_E = layout.index_T[edges.child_E] > 0
        sibling_E = sibling_T[edges.child_E].masked_fill(~has_sibling_E, NEVER)
        remaining_E = edges.degree_E - edges.rank_E
        return cls(
            child_Q=edges.child_E,
            low_Q=torch.where(first_E, layout.parent_start_N[edges.node_E], start_E + remaining_E),
            high_Q=torch.where(first_E, layout.layer_start_N[edges.node_E], before_E),
            reference_Q=torch.where(first_E, sibling_E, before_E),
        )


@dataclass(frozen=True, eq=False)
class CandidatePairs:
    """CandidatePairs of many decisions as one flat list of pairs.

    Attributes:
        decision_P: Decision of each pair.
        candidate_P: Candidate token or block.
    """

    decision_P: Int[Tensor, " P"]
    candidate_P: Int[Tensor, " P"]

    @classmethod
    def ranges(cls, low_Q: Int[Tensor, " Q"], high_Q: Int[Tensor, " Q"]) -> "CandidatePairs":
        """Pair each decision with the integers of its range [low, high)."""
        length_Q = (high_Q - low_Q).clamp(min=0)
        decision_P = torch.repeat_interleave(length_Q)
        start_Q = length_Q.cumsum(0) - length_Q
        number_P = torch.arange(decision_P.shape[0], device=low_Q.device)
        return cls(decision_P, number_P - start_Q[decision_P] + low_Q[decision_P])


def split_ranges(
    decisions: Decisions, layout: Layout, blocks: Blocks
) -> tuple[Int[Tensor, " Q"], Int[Tensor, " Q"]]:
    """Return the first token of each decision's window, and one past its last far block."""
    seen_Q = decisions.child_Q - 1
    block_Q = blocks.of_T[seen_Q]
    local_Q = (seen_Q - layout.start_B[layout.graph_T[seen_Q]]) // blocks.block
    window_Q = seen_Q - blocks.offset_T[seen_Q] - blocks.block * (local_Q > 0)
    return window_Q, block_Q - 1


class ParentHistory:
    """Number and time of earlier uses of each node (or block) as a parent."""

    def __init__(
        self,
        group_E: Int[Tensor, " E"],
        child_E: Int[Tensor, " E"],
        num_groups: int,
        num_tokens: int,
    ) -> None:
        self.num_tokens = num_tokens
        self.key_E = torch.sort(group_E * num_tokens + child_E).values
        count_G = torch.bincount(group_E, minlength=num_groups)
        self.start_G = count_G.cumsum(0) - count_G

    def before(
        self, group_P: Int[Tensor, " P"], child_P: Int[Tensor, " P"]
    ) -> tuple[Int[Tensor, " P"], Int[Tensor, " P"]]:
        """Return (number of uses, last user or ``NEVER``) of each group before ``child_P``."""
        rank_P = torch.searchsorted(self.key_E, group_P * self.num_tokens + child_P)
        used_P = rank_P - self.start_G[group_P]
        if self.key_E.shape[0] == 0:
            return used_P, torch.full_like(used_P, NEVER)
        last_P = self.key_E[(rank_P - 1).clamp(min=0)] % self.num_tokens
        return used_P, last_P.masked_fill(used_P == 0, NEVER)


def log_code(count: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Return 0, 1, 2, 3, 4, 5-6, 7-9, 10-16, 17-32 and beyond as ``GAP_CODES`` codes."""
    borders = torch.tensor([1, 2, 3, 4, 5, 7, 10, 17, 33], device=count.device)
    return torch.searchsorted(borders, count.contiguous(), right=True)


def stub_code(
    used: Int[Tensor, "*shape"], out_degree: Int[Tensor, "*shape"]
) -> Int[Tensor, "*shape"]:
    """Return one of 16 codes for (children so far, pending children), each clamped to 3."""
    return used.clamp(max=3) * 4 + (out_degree - used).clamp(0, 3)


TokenCodes = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""Features of candidate tokens; the choices of ``HeadsConfig.parent_features``."""


def token_codes(
    stub_P: Int[Tensor, " P"],
    offset_P: Int[Tensor, " P"],
    has_reference_P: Bool[Tensor, " P"],
    gap_P: Int[Tensor, " P"],
    layers_P: Int[Tensor, " P"],
) -> Int[Tensor, "P 4"]:
    """Return the codes of candidates that are tokens, shape (P, 4).

    Args:
        stub_P: From ``stub_code``.
        offset_P: Token minus the reference of the decision.
        has_reference_P: Whether there is a reference.
        gap_P: Tokens since the last use, 0 for never used.
        layers_P: Layers between candidate and child.
    """
    offset_P = (offset_P.clamp(-4, 4) + 4).masked_fill(~has_reference_P, OFFSET_CODES - 1)
    return torch.stack([stub_P, offset_P, log_code(gap_P), log_code(layers_P)], dim=1)


def no_token_codes(
    stub_P: Int[Tensor, " P"],
    offset_P: Int[Tensor, " P"],
    has_reference_P: Bool[Tensor, " P"],
    gap_P: Int[Tensor, " P"],
    layers_P: Int[Tensor, " P"],
) -> Int[Tensor, "P 4"]:
    """Return the same codes for every candidate, shape (P, 4); arguments as ``token_codes``."""
    return stub_P.new_zeros(stub_P.shape[0], len(TOKEN_CODES))
