"""The causal encoder of the fast model: all tokens at once in training, one per step in sampling.

An encoder block updates a token from two sources: attention over earlier tokens (token by token in
its own attention block and the one before, one averaged key and value per block further back), and
the mean of its parents' values, which is message passing from parents to children. Both read the
same keys and values, and both are causal: every token is encoded exactly once.

Shape letters: T tokens, E edges, B graphs, M attention blocks after the first of their graph, b
queries of a block, w keys of its window, F pooled blocks, P padded slots, H heads, d width of a
head, D width of the encoder, S segments.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.models.autoregressive._config import EncoderConfig
from layerdag.models.autoregressive._layout import Blocks
from layerdag.models.layers import gather_rows, segment_mean, to_float32


@dataclass(frozen=True, eq=False)
class AttentionContext:
    """Masks and edges for attention and message passing, the same in every encoder block.

    Attributes:
        blocks: Attention blocks.
        first_bias_Hww: Attention bias of first blocks: causal, with the distance penalty of a head.
        later_bias_MHbw: Attention bias of later blocks; the last columns are the pooled blocks.
        parent_E: Token of the source of each edge.
        child_E: Token of the target.
        in_degree_T: Number of parents of each token.
    """

    blocks: Blocks
    first_bias_Hww: Tensor
    later_bias_MHbw: Tensor
    parent_E: Tensor
    child_E: Tensor
    in_degree_T: Tensor


def alibi_slopes(heads: int, device: torch.device) -> Tensor:
    """Return the distance penalty of each head, shape (H,) (ALiBi, arXiv 2108.12409, section 3).

    The last head has no penalty, so that it weighs its whole window alike.
    """
    slope_H = 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1, device=device))
    slope_H[-1] = 0.0
    return slope_H


def attention_biases(blocks: Blocks, heads: int) -> tuple[Tensor, Tensor]:
    """Return the additive masks of first and of later blocks (see ``AttentionContext``)."""
    block, width = blocks.block, blocks.first.query_Mb.shape[1]
    device = blocks.of_T.device
    query_b1 = torch.arange(block, device=device)[:, None]
    key_w = torch.arange(-block, block, device=device)
    distance_bw = (query_b1 - key_w).clamp(min=0)
    near_Hbw = -alibi_slopes(heads, device)[:, None, None] * distance_bw
    near_Hbw = near_Hbw.masked_fill(key_w > query_b1, -math.inf)
    missing_MF = torch.zeros(blocks.pooled_MF.shape, device=device).masked_fill(
        ~blocks.pooled_valid_MF, -math.inf
    )
    pooled_MHbF = missing_MF[:, None, None, :].expand(-1, heads, block, -1)
    near_MHbw = near_Hbw.expand(pooled_MHbF.shape[0], -1, -1, -1)
    later_MHbw = torch.cat([near_MHbw, pooled_MHbF], dim=-1)
    return near_Hbw[:, :width, block : block + width].contiguous(), later_MHbw


Source = Callable[[Tensor, Callable[[], Tensor]], Tensor]
"""One of the two things an encoder block reads: takes a tensor of the shape, and what computes it.

Choices of ``EncoderConfig.attention`` and ``EncoderConfig.messages`` are functions of this type.
"""


def read(like: Tensor, compute: Callable[[], Tensor]) -> Tensor:
    """Return what was computed."""
    return compute()


def ignore(like: Tensor, compute: Callable[[], Tensor]) -> Tensor:
    """Return zeros instead; nothing is computed."""
    return torch.zeros_like(like)


_ATTENTION: dict[str, Source] = {"window": read, "none": ignore}
_MESSAGES: dict[str, Source] = {"mean": read, "none": ignore}


class EncoderBlock(nn.Module):
    """Attention and message passing, then a feed-forward network, both with a pre-norm residual.

    A source that the config leaves out is zero. Its parameters stay, so that all variants of a
    model begin with the same weights.

    Args:
        width: Width D.
        heads: Attention heads.
        config: What a token reads; by default both sources.
    """

    def __init__(self, width: int, heads: int, config: EncoderConfig | None = None) -> None:
        super().__init__()
        config = config or EncoderConfig()
        self.heads = heads
        self.attention, self.messages = _ATTENTION[config.attention], _MESSAGES[config.messages]
        self.norm = nn.LayerNorm(width, bias=False)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(2 * width, width, bias=False)
        self.feed = nn.Sequential(
            nn.LayerNorm(width, bias=False),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Linear(2 * width, width),
        )

    def forward(self, x_TD: Tensor, context: AttentionContext) -> Tensor:
        """Return the next state of every token, shape (T, D)."""
        query_TD, key_TD, value_TD = self.query_key_value(self.norm(x_TD)).chunk(3, dim=-1)
        attended_TD = self.attention(
            query_TD, lambda: self._attend(query_TD, key_TD, value_TD, context)
        )
        message_TD = self.messages(value_TD, lambda: _parents_mean(value_TD, context))
        return self.finish(x_TD, attended_TD, message_TD)

    def finish(self, x_TD: Tensor, attended_TD: Tensor, message_TD: Tensor) -> Tensor:
        """Add attention and parents' message to each token, then apply the feed-forward network."""
        x_TD = x_TD + self.mix(torch.cat([attended_TD, message_TD], dim=-1))
        return x_TD + self.feed(x_TD)

    def _attend(
        self, query_TD: Tensor, key_TD: Tensor, value_TD: Tensor, context: AttentionContext
    ) -> Tensor:
        """Return the attention of each token over its window and the pooled blocks, (T, D)."""
        blocks = context.blocks
        own_Mb = blocks.first.query_Mb
        query_MbD, key_MbD, value_MbD = (
            gather_rows(x_TD, own_Mb) for x_TD in (query_TD, key_TD, value_TD)
        )
        own_MbD = attention(query_MbD, key_MbD, value_MbD, context.first_bias_Hww)
        attended_PD = own_MbD.flatten(0, 1)
        if blocks.later.query_Mb.shape[0]:
            query_MbD = gather_rows(query_TD, blocks.later.query_Mb)
            key_MwD, value_MwD = (_visible_values(x_TD, blocks) for x_TD in (key_TD, value_TD))
            later_MbD = attention(query_MbD, key_MwD, value_MwD, context.later_bias_MHbw)
            attended_PD = torch.cat([attended_PD, later_MbD.flatten(0, 1)])
        return gather_rows(attended_PD, blocks.slot_T)


def _parents_mean(value_TD: Tensor, context: AttentionContext) -> Tensor:
    """Return the mean value of each token's parents, shape (T, D)."""
    value_ED = gather_rows(value_TD, context.parent_E)
    return segment_mean(value_ED, context.child_E, context.in_degree_T)


def attention(query_MbD: Tensor, key_MwD: Tensor, value_MwD: Tensor, bias_Hbw: Tensor) -> Tensor:
    """Return softmax(Q K' / sqrt(d) + bias) V for each block and head, shape (M, b, D).

    Plain matrix products on a CPU, where the fused kernel takes twice as long for small blocks.
    """
    split = (bias_Hbw.shape[-3], -1)
    query_MHbd, key_MHwd, value_MHwd = (
        x_MbD.unflatten(-1, split).transpose(1, 2) for x_MbD in (query_MbD, key_MwD, value_MwD)
    )
    bias_Hbw = bias_Hbw.to(query_MbD.dtype)
    if query_MbD.is_cuda:
        attended_MHbd = F.scaled_dot_product_attention(
            query_MHbd, key_MHwd, value_MHwd, attn_mask=bias_Hbw
        )
    else:
        score_MHbw = (query_MHbd * query_MHbd.shape[-1] ** -0.5) @ key_MHwd.transpose(2, 3)
        attended_MHbd = (score_MHbw + bias_Hbw).softmax(-1) @ value_MHwd
    return attended_MHbd.transpose(1, 2).flatten(2)


def _visible_values(value_TD: Tensor, blocks: Blocks) -> Tensor:
    """Return the values visible to each later block: window, then block means, (M, w + F, D)."""
    near_MwD = gather_rows(value_TD, blocks.later.key_Mw)
    if blocks.pooled_MF.shape[1] == 0:
        return near_MwD
    pooled_MFD = gather_rows(block_sum(value_TD, blocks), blocks.pooled_MF) / blocks.block
    return torch.cat([near_MwD, pooled_MFD.to(near_MwD.dtype)], dim=1)


def block_sum(value_TD: Tensor, blocks: Blocks) -> Tensor:
    """Return the sum over the tokens of each block, shape (blocks, D)."""
    value_TD = to_float32(value_TD)
    total_MD = value_TD.new_zeros(blocks.num_blocks, value_TD.shape[1])
    return total_MD.index_add(0, blocks.of_T, value_TD)
