"""Encoders: all tokens at once in training, one token of each graph in sampling.

``model.encoder.kind`` names the encoder. The package has "window"; ``register_encoder`` adds
others, and so do entry points of the group "layerdag.encoders".

A block of the window encoder updates a token from two sources: attention over earlier tokens (token
by token in its own attention block and the one before, one averaged key and value per block further
back), and the mean of its parents' values, which is message passing from parents to children. Both
read the same keys and values, and both are causal: every token is encoded exactly once.

In sampling, keys and values of earlier tokens are kept, each computed once.

Shape letters: B graphs, D width of a state, E edges, H heads, L layers, P pairs, R rows, T tokens,
Z attention blocks, b tokens of a block, d width of a head or key, p parents of a node, v visible
keys, w window, z pooled blocks.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.errors import UsageError
from layerdag.models.config import HEAD_WIDTH, EncoderConfig
from layerdag.models.fast.fused_attention import Reads
from layerdag.models.fast.layout import AttentionBlocks
from layerdag.models.fast.window_memory import WindowMemory
from layerdag.models.fused import Activation, activated_linear, product_dtype
from layerdag.models.layers import Linear, gather_rows, segment_mean, to_float32
from layerdag.runtime.registry import Registry


@dataclass(frozen=True, eq=False)
class TokenGraphs:
    """Where the tokens of a batch stand; tokens of a graph lie in a row, graph after graph."""

    graph_T: Int[Tensor, " T"]
    position_T: Int[Tensor, " T"]  # position in its graph; 0 is the start token, no node
    parent_E: Int[Tensor, " E"]  # token of the source of each edge, earlier than its target
    child_E: Int[Tensor, " E"]  # token of the target
    in_degree_T: Int[Tensor, " T"]  # number of parents of each token
    blocks: AttentionBlocks  # the tokens cut into attention blocks

    def padded(self, x_TD: Float[Tensor, "T D"]) -> Float[Tensor, "B L D"]:
        """Return a row of tokens for each graph, with zeros behind its last one."""
        graphs, longest = int(self.graph_T[-1]) + 1, int(self.position_T.max()) + 1
        x_BLD = x_TD.new_zeros(graphs, longest, x_TD.shape[1])
        return x_BLD.index_put((self.graph_T, self.position_T), x_TD)

    def flat(self, x_BLD: Float[Tensor, "B L D"]) -> Float[Tensor, "T D"]:
        """Return what ``padded`` returned as rows of tokens again."""
        return x_BLD[self.graph_T, self.position_T]

    def parents_mean(self, x_TD: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """Return the mean over the parents of each token, zero without parents."""
        return segment_mean(gather_rows(x_TD, self.parent_E), self.child_E, self.in_degree_T)


class ParentList:
    """The parents of the newest node of every row, as pairs of row and position."""

    def __init__(
        self, row_P: Int[Tensor, " P"], position_P: Int[Tensor, " P"], degree_R: Int[Tensor, " R"]
    ) -> None:
        self.row_P, self.position_P, self.degree_R = row_P, position_P, degree_R

    def mean(self, value_PD: Float[Tensor, "P D"]) -> Float[Tensor, "R D"]:
        """Return the mean of the parents' values, zero without parents, shape (R, D)."""
        return segment_mean(value_PD, self.row_P, self.degree_R)

    def padded(self) -> Int[Tensor, "R p"]:
        """Return the positions as one row of parents for each row, with zeros behind the last."""
        row_P, order_P = self.row_P.sort(stable=True)
        first_R = self.degree_R.cumsum(0) - self.degree_R
        column_P = torch.arange(row_P.shape[0], device=row_P.device) - first_R[row_P]
        shape = (self.degree_R.shape[0], max(int(self.degree_R.max()), 1))
        position_Rp = self.position_P.new_zeros(shape)
        return position_Rp.index_put((row_P, column_P), self.position_P[order_P])


@dataclass(frozen=True, eq=False)
class NewestTokens:
    """Where the newest token of every row stands."""

    position: int  # its position in its graph, the same in every row; 0 is the start token
    parents: ParentList


class Encoder(nn.Module, ABC):
    """Turns tokens into states; a state depends on its token and earlier ones of its graph alone.

    Both ways give the same states: ``full`` on all tokens of a batch, and ``step`` on token after
    token of each graph, from the state that the tokens before have left.
    """

    def __init__(self, width: int, depth: int, config: EncoderConfig) -> None:
        super().__init__()
        self.width, self.depth, self.config = width, depth, config

    @abstractmethod
    def full(self, x_TD: Float[Tensor, "T D"], tokens: TokenGraphs) -> Float[Tensor, "T D"]:
        """Return the state of every token of a batch."""

    @abstractmethod
    def start(self, like_RD: Float[Tensor, "R D"]) -> Any:
        """Return the memory of R rows without tokens; ``like_RD`` has their type and device."""

    @abstractmethod
    def step(
        self, x_RD: Float[Tensor, "R D"], newest: NewestTokens, memory: Any
    ) -> tuple[Float[Tensor, "R D"], Any]:
        """Return the state of the newest token of every row, and the memory with it."""

    def select(self, memory: Any, row_R: Int[Tensor, " R"]) -> Any:
        """Return the memory of the rows ``row_R``: some are dropped, some occur several times.

        This one takes tensors whose first dimension is the rows, and tuples, lists and dicts of
        these.
        """
        if isinstance(memory, Tensor):
            return memory.index_select(0, row_R)
        if isinstance(memory, dict):
            return {name: self.select(part, row_R) for name, part in memory.items()}
        parts = [self.select(part, row_R) for part in memory]
        return type(memory)(*parts) if hasattr(memory, "_fields") else type(memory)(parts)


def _check_encoder(name: str, value: Any) -> None:
    if not (isinstance(value, type) and issubclass(value, Encoder)):
        raise UsageError(
            f"The encoder '{name}' must be a subclass of layerdag.models.fast.Encoder, found "
            f"{value!r:.80}."
        )


ENCODERS: Registry[type[Encoder]] = Registry(
    "encoder",
    "layerdag.encoders",
    _check_encoder,
    {"window": "layerdag.models.fast.encoder:WindowEncoder"},
)
"""Encoders by the name that ``model.encoder.kind`` has."""

C = TypeVar("C", bound=type[Encoder])


def register_encoder(name: str) -> Callable[[C], C]:
    """Return a decorator that adds an encoder as ``name``.

    Checkpoints hold the name alone; a process that loads one registers the encoder first.

    Raises:
        UsageError: If the package itself has that name, or the class is no ``Encoder``.
    """

    def registered(cls: C) -> C:
        ENCODERS.register(name, cls)
        return cls

    return registered


@dataclass(frozen=True, eq=False)
class AttentionContext:
    """The tokens of a batch with the masks of their attention, the same in every encoder block."""

    tokens: TokenGraphs
    first_bias_Hww: Float[Tensor, "H w w"]  # of first blocks: causal, with a penalty of distance
    later_bias_ZHbw: Float[Tensor, "Z H b v"]  # of later blocks; pooled blocks come last


def alibi_slopes(heads: int, device: torch.device) -> Float[Tensor, " H"]:
    """Return the distance penalty of each head, shape (H,) (ALiBi, arXiv 2108.12409, section 3).

    The last head has no penalty, so that it weighs its whole window alike.
    """
    number_H = torch.arange(1, heads + 1, device=device)
    return (2.0 ** (-8.0 / heads * number_H)).masked_fill(number_H == heads, 0.0)


def attention_biases(
    blocks: AttentionBlocks, heads: int
) -> tuple[Float[Tensor, "H w w"], Float[Tensor, "Z H b v"]]:
    """Return the additive masks of first and of later blocks (see ``AttentionContext``)."""
    block, width = blocks.block, blocks.first.query_Zb.shape[1]
    device = blocks.of_T.device
    query_b1 = torch.arange(block, device=device)[:, None]
    key_w = torch.arange(-block, block, device=device)
    distance_bw = (query_b1 - key_w).clamp(min=0)
    near_Hbw = -alibi_slopes(heads, device)[:, None, None] * distance_bw
    near_Hbw = near_Hbw.masked_fill(key_w > query_b1, -math.inf)
    missing_Zz = torch.zeros(blocks.pooled_Zz.shape, device=device).masked_fill(
        ~blocks.pooled_valid_Zz, -math.inf
    )
    pooled_ZHbz = missing_Zz[:, None, None, :].expand(-1, heads, block, -1)
    near_ZHbw = near_Hbw.expand(pooled_ZHbz.shape[0], -1, -1, -1)
    later_ZHbw = torch.cat([near_ZHbw, pooled_ZHbz], dim=-1)
    return near_Hbw[:, :width, block : block + width].contiguous(), later_ZHbw


class FeedForward(nn.Sequential):
    """A normalization, then two linear maps with GELU between, the inner one of double width."""

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.LayerNorm(width, bias=False),
            Linear(width, 2 * width),
            nn.GELU(),
            Linear(2 * width, width),
        )

    def forward(self, x_RD: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """Return the mapped rows."""
        if product_dtype(x_RD, self) is None:
            mapped_RD: Tensor = super().forward(x_RD)
            return mapped_RD
        norm, inner, _, outer = cast(tuple[nn.LayerNorm, Linear, nn.GELU, Linear], tuple(self))
        inner_RD = activated_linear(Activation(norm, gelu=False), inner, x_RD)
        return activated_linear(Activation(None, gelu=True), outer, inner_RD)


class EncoderBlock(nn.Module):
    """Attention and message passing, then a feed-forward network, both with a pre-norm residual.

    A source that the config leaves out is zero. Its parameters stay, so that all variants of a
    model begin with the same weights.
    """

    def __init__(self, width: int, heads: int, config: EncoderConfig | None = None) -> None:
        super().__init__()
        config = config or EncoderConfig()
        self.heads = heads
        self.attends = config.attention == "window"
        self.reads_parents = config.messages == "mean"
        self.norm = nn.LayerNorm(width, bias=False)
        self.query_key_value = Linear(width, 3 * width, bias=False)
        self.mix = Linear(2 * width, width, bias=False)
        self.feed = FeedForward(width)

    def forward(
        self, x_TD: Float[Tensor, "T D"], context: AttentionContext | Reads
    ) -> Float[Tensor, "T D"]:
        """Return the next state of every token, shape (T, D)."""
        normalized = Activation(self.norm, gelu=False)
        all_T3D = activated_linear(normalized, self.query_key_value, x_TD)
        if isinstance(context, Reads):
            return self.finish(x_TD, context(all_T3D))
        value_TD = all_T3D.chunk(3, dim=-1)[2]
        attended_TD = message_TD = torch.zeros_like(value_TD)
        if self.attends:
            attended_TD = self._attend(all_T3D, context)
        if self.reads_parents:
            message_TD = context.tokens.parents_mean(value_TD)
        return self.finish(x_TD, torch.cat([attended_TD, message_TD], dim=-1))

    def finish(
        self, x_RD: Float[Tensor, "R D"], read_R2D: Float[Tensor, "R _"]
    ) -> Float[Tensor, "R D"]:
        """Add attention and parents' messages to each token, then the feed-forward network."""
        x_RD = x_RD + self.mix(read_R2D)
        return x_RD + self.feed(x_RD)

    def _attend(self, all_T3D: Tensor, context: AttentionContext) -> Tensor:
        """Return the attention of each token over its window and the pooled blocks, (T, D)."""
        blocks, width = context.tokens.blocks, all_T3D.shape[1] // 3
        query_ZbD, key_ZbD, value_ZbD = gather_rows(all_T3D, blocks.first.query_Zb).chunk(3, dim=-1)
        own_ZbD = attention(query_ZbD, key_ZbD, value_ZbD, context.first_bias_Hww)
        attended_RD = own_ZbD.flatten(0, 1)
        if blocks.later.query_Zb.shape[0]:
            query_TD, both_T2D = all_T3D.split((width, 2 * width), dim=1)
            query_ZbD = gather_rows(query_TD, blocks.later.query_Zb)
            key_ZwD, value_ZwD = _visible_values(both_T2D, blocks).chunk(2, dim=-1)
            later_ZbD = attention(query_ZbD, key_ZwD, value_ZwD, context.later_bias_ZHbw)
            attended_RD = torch.cat([attended_RD, later_ZbD.flatten(0, 1)])
        return gather_rows(attended_RD, blocks.slot_T)


def attention(
    query_ZbD: Float[Tensor, "_ b D"],
    key_ZwD: Float[Tensor, "_ w D"],
    value_ZwD: Float[Tensor, "_ w D"],
    bias_Hbw: Float[Tensor, "*Z H b w"],
) -> Float[Tensor, "_ b D"]:
    """Return softmax(Q K' / sqrt(d) + bias) V for each block and head, shape (M, b, D).

    Plain matrix products on a CPU, where the fused kernel takes twice as long for small blocks.
    """
    split = (bias_Hbw.shape[-3], -1)
    query_ZHbd, key_ZHwd, value_ZHwd = (
        x_ZbD.unflatten(-1, split).transpose(1, 2) for x_ZbD in (query_ZbD, key_ZwD, value_ZwD)
    )
    bias_Hbw = bias_Hbw.to(query_ZbD.dtype)
    if query_ZbD.is_cuda:
        attended_ZHbd = F.scaled_dot_product_attention(
            query_ZHbd, key_ZHwd, value_ZHwd, attn_mask=bias_Hbw
        )
    else:
        score_ZHbw = (query_ZHbd * query_ZHbd.shape[-1] ** -0.5) @ key_ZHwd.transpose(2, 3)
        attended_ZHbd = (score_ZHbw + bias_Hbw).softmax(-1) @ value_ZHwd
    return attended_ZHbd.transpose(1, 2).flatten(2)


def _visible_values(value_TD: Tensor, blocks: AttentionBlocks) -> Tensor:
    """Return the values visible to each later block: window, then block means, (M, w + F, D)."""
    near_ZwD = gather_rows(value_TD, blocks.later.key_Zw)
    if blocks.pooled_Zz.shape[1] == 0:
        return near_ZwD
    pooled_ZzD = gather_rows(block_sum(value_TD, blocks), blocks.pooled_Zz) / blocks.block
    return torch.cat([near_ZwD, pooled_ZzD.to(near_ZwD.dtype)], dim=1)


def block_sum(value_TD: Float[Tensor, "T D"], blocks: AttentionBlocks) -> Float[Tensor, "Z D"]:
    """Return the sum over the tokens of each block, shape (blocks, D)."""
    value_TD = to_float32(value_TD)
    total_ZD = value_TD.new_zeros(blocks.num_blocks, value_TD.shape[1])
    return total_ZD.index_add(0, blocks.of_T, value_TD)


class WindowEncoder(Encoder):
    """Encoder blocks one after another, called "0", "1", ... as in published checkpoints."""

    def __init__(self, width: int, depth: int, config: EncoderConfig) -> None:
        super().__init__(width, depth, config)
        self.heads = max(width // HEAD_WIDTH, 1)
        for number in range(depth):
            self.add_module(str(number), EncoderBlock(width, self.heads, config))

    @property
    def encoder_blocks(self) -> tuple[EncoderBlock, ...]:
        """The encoder blocks in order."""
        return tuple(block for block in self.children() if isinstance(block, EncoderBlock))

    def full(self, x_TD: Float[Tensor, "T D"], tokens: TokenGraphs) -> Float[Tensor, "T D"]:
        """Return the state of every token of a batch."""
        reads_both = self.config.attention == "window" and self.config.messages == "mean"
        context: AttentionContext | Reads
        if reads_both and product_dtype(x_TD, self) is not None:
            slope_H = alibi_slopes(self.heads, x_TD.device)
            edges = tokens.parent_E, tokens.child_E, tokens.in_degree_T
            context = Reads(tokens.blocks, slope_H, *edges, self.width)
        else:
            context = AttentionContext(tokens, *attention_biases(tokens.blocks, self.heads))
        for encoder_block in self.encoder_blocks:
            x_TD = encoder_block(x_TD, context)
        return x_TD

    def memory(self, like_RD: Float[Tensor, "R D"], tokens: int) -> WindowMemory:
        """Return a memory of R rows with room for so many tokens, whole attention blocks."""
        slope_H = alibi_slopes(self.heads, like_RD.device)
        return WindowMemory.empty(like_RD, self.depth, slope_H, self.config.block, tokens)

    def start(self, like_RD: Float[Tensor, "R D"]) -> WindowMemory:
        """Return a memory of R rows without tokens."""
        return self.memory(like_RD, 2 * self.config.block)

    def step(
        self, x_RD: Float[Tensor, "R D"], newest: NewestTokens, memory: WindowMemory
    ) -> tuple[Float[Tensor, "R D"], WindowMemory]:
        """Return the state of the newest token of every row, and the memory with it."""
        if newest.position >= memory.tokens:
            memory = memory.moved(memory.row_R, 2 * memory.tokens)
        position_R = torch.full_like(memory.row_R, newest.position)
        x_RD = self.step_rows(x_RD, position_R, newest.parents.padded(), memory)
        if (newest.position + 1) % self.config.block == 0:
            memory.pool(position_R)
        return x_RD, memory

    def step_rows(
        self,
        x_RD: Float[Tensor, "R D"],
        position_R: Int[Tensor, " R"],
        parent_Rp: Int[Tensor, "R p"],
        memory: WindowMemory,
    ) -> Float[Tensor, "R D"]:
        """Return the state of the newest token of every row; the memory is written in place.

        Whoever calls it lets the memory average over attention blocks when they are complete.
        Parents are positions, then zeros.
        """
        bias_RHv = memory.biases(position_R)
        for number, encoder_block in enumerate(self.encoder_blocks):
            query_RD, key_RD, value_RD = encoder_block.query_key_value(
                encoder_block.norm(x_RD)
            ).chunk(3, dim=1)
            memory.write(number, position_R, key_RD, value_RD)
            attended_RD = message_RD = torch.zeros_like(query_RD)
            if encoder_block.attends:
                attended_RD = memory.attended(number, query_RD, bias_RHv)
            if encoder_block.reads_parents:
                message_RD = memory.message(number, parent_Rp)
            read_R2D = torch.cat([attended_RD, message_RD], dim=-1)
            x_RD = encoder_block.finish(x_RD, read_R2D)
        return x_RD

    def select(self, memory: WindowMemory, row_R: Int[Tensor, " R"]) -> WindowMemory:
        """Return the memory of the rows ``row_R``."""
        return memory.moved(row_R, memory.tokens)


def has_own_positions(encoder: Encoder) -> TypeGuard[WindowEncoder]:
    """Return whether rows can have positions of their own: a subclass may encode otherwise."""
    return type(encoder) is WindowEncoder
