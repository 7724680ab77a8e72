"""Small models whose programs are recorded in the tests."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Attention with joint query, key and value, beside a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return cast(Tensor, x + self.out(mixed.transpose(1, 2).reshape(rows, length, width)))


class Language(nn.Module):
    """A small language model with its loss; embedding and output can share their weights."""

    def __init__(
        self, width: int = 24, layers: int = 2, heads: int = 4, rows: int = 90, tied: bool = True
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(rows, width)
        self.layers = nn.ModuleList(Attention(width, heads) for _ in range(layers))
        self.output = nn.Linear(width, rows, bias=False)
        if tied:
            self.output.weight = self.token.weight

    def forward(self, token: Tensor, target: Tensor) -> Tensor:
        x = self.token(token)
        for layer in self.layers:
            x = layer(x)
        return functional.cross_entropy(self.output(x).flatten(0, 1), target.flatten())


class Stem(nn.Module):
    """The first layers of a language model, as the first stage of a pipeline."""

    def __init__(self, whole: Language, layers: int) -> None:
        super().__init__()
        self.token, self.layers = whole.token, whole.layers[:layers]

    def forward(self, token: Tensor) -> Tensor:
        x = self.token(token)
        for layer in self.layers:
            x = layer(x)
        return cast(Tensor, x)


class Head(nn.Module):
    """The last layers of a language model, as the last stage of a pipeline."""

    def __init__(self, whole: Language, layers: int) -> None:
        super().__init__()
        self.layers, self.output = whole.layers[layers:], whole.output

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return cast(Tensor, self.output(x))


class Images(nn.Module):
    """Convolutions with batch norm, of which one is grouped; activations work in place."""

    def __init__(self, channels: int = 12) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, stride=2, groups=channels // 4)
        self.head = nn.Linear(channels, 10)

    def forward(self, image: Tensor, target: Tensor) -> Tensor:
        x = functional.relu_(self.norm(self.first(image)))
        x = self.second(x).mean((-2, -1))
        return functional.cross_entropy(self.head(x), target)


def language(batch: int = 4, length: int = 6, **sizes: int) -> tuple[Language, list[Tensor]]:
    """Return the language model with inputs."""
    model = Language(**sizes)
    rows = model.token.num_embeddings
    return model, [torch.randint(0, rows, (batch, length)) for _ in range(2)]


def images(batch: int = 4, side: int = 16) -> tuple[Images, list[Tensor]]:
    """Return the image model with inputs."""
    return Images(), [torch.randn(batch, 3, side, side), torch.zeros(batch, dtype=torch.long)]


class Skipping(nn.Module):
    """Blocks that all read one context and one mask; the loss also reads the first one's result."""

    def __init__(self, width: int = 48, blocks: int = 4) -> None:
        super().__init__()
        self.context = nn.Linear(width, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(blocks)
        )

    def forward(self, x: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        context = functional.relu(self.context(x))
        mask = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        first = y = self.layers[0](x)
        for layer in self.layers[1:]:
            y = (layer(y) + context).masked_fill(~mask[..., None], 0.0)
        return functional.mse_loss(y + first, target)


def skipping(batch: int = 4, length: int = 8, width: int = 48) -> tuple[Skipping, list[Tensor]]:
    """Return the model with skipped values, with inputs."""
    x, target = torch.randn(batch, length, width), torch.randn(batch, length, width)
    return Skipping(width), [x, torch.full((batch,), length - 2), target]


class Stages(nn.Module):
    """Stages of equal layers, one list in the other."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), *(nn.Linear(width, width) for _ in range(3)))
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return x.square().mean()


class Parts(nn.Module):
    """Layers that take one part of the input each, like experts, or one layer's result each."""

    def __init__(self, width: int = 12, in_a_row: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.in_a_row = in_a_row

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for layer, part in zip(self.layers, x.unbind(1), strict=True):
            found.append(layer(found[-1] if self.in_a_row and found else part))
        return torch.stack(found).square().mean()


def nested() -> tuple[nn.Module, list[Tensor]]:
    """Return stages of layers with inputs."""
    return Stages(), [torch.randn(5, 12)]


def experts() -> tuple[nn.Module, list[Tensor]]:
    """Return layers that take their own part each, with inputs."""
    return Parts(), [torch.randn(5, 4, 12)]


def every_layer() -> tuple[nn.Module, list[Tensor]]:
    """Return a model that reads the results of all its layers, with inputs."""
    return Parts(in_a_row=True), [torch.randn(5, 4, 12)]
