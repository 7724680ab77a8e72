"""Transformers of known shapes as PyTorch modules, for `capture_model`."""

from typing import cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from layerdag.errors import UsageError
from layerdag.workloads.transformer.shapes import ModelShape


@final
class Attention(nn.Module):
    """Causal attention with grouped heads; works on as many heads as its projections give."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        qkv, out = shape.biases != "none", shape.biases in ("attention", "all")
        self.width, self.rotary = shape.head_width, not shape.positions
        self.q = nn.Linear(shape.hidden, shape.query_width, bias=qkv)
        self.k = nn.Linear(shape.hidden, shape.kv_width, bias=qkv)
        self.v = nn.Linear(shape.hidden, shape.kv_width, bias=qkv)
        self.o = nn.Linear(shape.query_width, shape.hidden, bias=out)
        self.q_norm = nn.RMSNorm(self.width) if shape.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(self.width) if shape.qk_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of (sequences, tokens, width)."""
        q, k, v = (self._heads(layer(x)) for layer in (self.q, self.k, self.v))
        q, k = self.q_norm(q), self.k_norm(k)
        if self.rotary:
            q, k = _rotated(q), _rotated(k)
        repeats = q.shape[1] // k.shape[1]
        if repeats > 1:
            k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return cast(Tensor, self.o(mixed.transpose(1, 2).flatten(2)))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.width)).transpose(1, 2)


def _rotated(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    angle = torch.ones(x.shape[-2], half, dtype=x.dtype, device=x.device)
    cos, sin = angle.cos(), angle.sin()
    low, high = x[..., :half], x[..., half:]
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


@final
class FeedForward(nn.Module):
    """Two linear layers, or three with a gate."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        bias = shape.biases == "all"
        self.gate = nn.Linear(shape.hidden, shape.feed_forward, bias=bias) if shape.gated else None
        self.up = nn.Linear(shape.hidden, shape.feed_forward, bias=bias)
        self.down = nn.Linear(shape.feed_forward, shape.hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        if self.gate is None:
            return cast(Tensor, self.down(functional.gelu(self.up(x))))
        return cast(Tensor, self.down(functional.silu(self.gate(x)) * self.up(x)))


@final
class Layer(nn.Module):
    """Attention and feed-forward, each after a norm and with a residual connection."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attention_norm, self.attention = _norm(shape), Attention(shape)
        self.feed_forward_norm, self.feed_forward = _norm(shape), FeedForward(shape)

    def forward(self, x: Tensor) -> Tensor:
        """Return the residual stream after this layer."""
        x = x + self.attention(self.attention_norm(x))
        return cast(Tensor, x + self.feed_forward(self.feed_forward_norm(x)))


@final
class Embedding(nn.Module):
    """Token embedding, with a learned one of positions where the shape has it."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.hidden)
        self.position = nn.Embedding(shape.positions, shape.hidden) if shape.positions else None

    def forward(self, token: Tensor) -> Tensor:
        """Return the residual stream of tokens (sequences, tokens)."""
        x = self.token(token)
        if self.position is None:
            return cast(Tensor, x)
        return cast(Tensor, x + self.position(torch.arange(token.shape[1], device=token.device)))


@final
class Transformer(nn.Module):
    """A dense decoder-only transformer; returns logits, or the loss where targets are given.

    Dropout is left out: it would have no part in an inference step, and a small one in training.

    Raises:
        UsageError: If the shape has experts: which tokens they get depends on data.
    """

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        if shape.experts:
            raise UsageError(
                f"{shape.name}: is a mixture of experts, whose routing depends on data that a "
                "capture does not have; 'layerdag workload' makes its trace from formulas."
            )
        self.embedding = Embedding(shape)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = _norm(shape)
        self.output = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        if shape.tied:
            self.output.weight = self.embedding.token.weight

    def forward(self, token: Tensor, target: Tensor | None = None) -> Tensor:
        """Return logits (sequences, tokens, vocabulary), or the mean loss for ``target``."""
        x = self.embedding(token)
        for layer in self.layers:
            x = layer(x)
        logits = self.output(self.norm(x))
        if target is None:
            return cast(Tensor, logits)
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def _norm(shape: ModelShape) -> nn.Module:
    return nn.LayerNorm(shape.hidden) if shape.norm == "layer" else nn.RMSNorm(shape.hidden)
