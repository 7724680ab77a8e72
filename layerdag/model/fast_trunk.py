"""The causal encoder of the fast model: all tokens at once in training, one a step in sampling.

A block of the trunk mixes two sources into a token: attention over what came before (the token's
own block and the one before exactly, everything earlier as one averaged key and value a block), and
the mean of its parents' values, which is message passing from parents to children. Both read the
same keys and values, and neither looks ahead: a token is encoded once and never again.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.model.fast_layout import Blocks


def dropout(x: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Zero a share ``rate`` of ``x`` and scale up the rest; without a generator, do nothing."""
    if generator is None or rate == 0.0:
        return x
    keep = torch.rand(x.shape, generator=generator, device=x.device) >= rate
    return x * keep / (1.0 - rate)


def segment_mean(value_ED: Tensor, segment_E: Tensor, count_S: Tensor) -> Tensor:
    """Return the mean of the rows of each segment, zero for an empty one, shape (S, D)."""
    total_SD = value_ED.new_zeros(count_S.shape[0], value_ED.shape[1])
    total_SD = total_SD.index_add(0, segment_E, value_ED)
    return total_SD / count_S.clamp(min=1)[:, None]


@dataclass(frozen=True, eq=False)
class Scope:
    """What the attention and the messages of a batch may see, the same in every trunk block.

    Attributes:
        blocks: Attention blocks.
        bias_MHbw: Additive attention mask with the distance penalty of each head.
        parent_E: Token of the source of each edge.
        child_E: Token of the target.
        in_degree_T: Number of parents of each token.
    """

    blocks: Blocks
    bias_MHbw: Tensor
    parent_E: Tensor
    child_E: Tensor
    in_degree_T: Tensor


def slopes(heads: int, device: torch.device) -> Tensor:
    """Return the distance penalty of each head, shape (H,) (ALiBi, arXiv 2108.12409, section 3).

    The last head has none, so that it can look anywhere in its window.
    """
    slope_H = 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1, device=device))
    slope_H[-1] = 0.0
    return slope_H


def attention_bias(blocks: Blocks, heads: int) -> Tensor:
    """Return the additive mask of shape (M, H, block, 2 * block + far blocks)."""
    block, device = blocks.block, blocks.of_T.device
    query_b1 = torch.arange(block, device=device)[:, None]
    key_w = torch.arange(-block, block, device=device)
    distance_bw = (query_b1 - key_w).clamp(min=0)
    near_Hbw = -slopes(heads, device)[:, None, None] * distance_bw
    near_Hbw = near_Hbw.masked_fill(key_w > query_b1, -math.inf)
    missing_Mw = ~blocks.has_before_M[:, None] & (key_w < 0)
    near_MHbw = near_Hbw.masked_fill(missing_Mw[:, None, None, :], -math.inf)
    far_M1bF = torch.zeros(blocks.far_MF.shape, device=device).masked_fill(
        ~blocks.far_valid_MF, -math.inf
    )[:, None, None, :]
    far_MHbF = far_M1bF.expand(-1, heads, block, -1)
    return torch.cat([near_MHbw, far_MHbF], dim=-1)


class TrunkBlock(nn.Module):
    """Attention and messages, then a feed-forward network, each on a normalised residual stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.RMSNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(2 * width, width, bias=False)
        self.feed = nn.Sequential(
            nn.RMSNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x_TD: Tensor, scope: Scope) -> Tensor:
        """Return the next state of every token, shape (T, D)."""
        query_TD, key_TD, value_TD = self.query_key_value(self.norm(x_TD)).chunk(3, dim=-1)
        seen_TD = self._attend(query_TD, key_TD, value_TD, scope)
        message_TD = segment_mean(value_TD[scope.parent_E], scope.child_E, scope.in_degree_T)
        return self.finish(x_TD, seen_TD, message_TD)

    def finish(self, x_TD: Tensor, seen_TD: Tensor, message_TD: Tensor) -> Tensor:
        """Add what the token saw and what its parents told, then apply the feed-forward network."""
        x_TD = x_TD + self.mix(torch.cat([seen_TD, message_TD], dim=-1))
        return x_TD + self.feed(x_TD)

    def _attend(self, query_TD: Tensor, key_TD: Tensor, value_TD: Tensor, scope: Scope) -> Tensor:
        """Return the attention of each token over its window and the summaries, shape (T, D)."""
        blocks = scope.blocks
        query_MbD = query_TD[blocks.query_Mb]
        key_MwD, value_MwD = key_TD[blocks.near_Mw], value_TD[blocks.near_Mw]
        if blocks.far_MF.shape[1]:
            key_MwD = torch.cat([key_MwD, _summaries(key_TD, blocks)], dim=1)
            value_MwD = torch.cat([value_MwD, _summaries(value_TD, blocks)], dim=1)
        split = (self.heads, -1)
        seen_MHbd = F.scaled_dot_product_attention(
            query_MbD.unflatten(-1, split).transpose(1, 2),
            key_MwD.unflatten(-1, split).transpose(1, 2),
            value_MwD.unflatten(-1, split).transpose(1, 2),
            attn_mask=scope.bias_MHbw.to(query_MbD.dtype),
        )
        return seen_MHbd.transpose(1, 2).reshape(-1, query_TD.shape[1])[blocks.place_T]


def _summaries(value_TD: Tensor, blocks: Blocks) -> Tensor:
    """Return the block means that each block sees, shape (M, F, D)."""
    return block_sum(value_TD, blocks)[blocks.far_MF] / blocks.block


def block_sum(value_TD: Tensor, blocks: Blocks) -> Tensor:
    """Return the sum over the tokens of each block, shape (M, D)."""
    total_MD = value_TD.new_zeros(blocks.num_blocks, value_TD.shape[1])
    return total_MD.index_add(0, blocks.of_T, value_TD)
