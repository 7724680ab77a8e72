"""The seven model families of the corpus, small and in plain torch.

Every model is built from a mapping of hyper-parameters. Models that can be cut into pipeline stages
are `nn.Sequential` with one tensor between the blocks. ``parallel`` ranks share the inner width of
attention and MLP blocks (Megatron-LM, arXiv 1909.08053, section 3) or the experts.
"""

from collections.abc import Mapping

import torch
from collectives import copy_to_ranks, exchange, sum_over_ranks
from torch import Tensor, nn
from torch.nn import functional

Hyper = Mapping[str, int | float | str]

ACTIVATIONS = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
}


def normalization(kind: str, width: int) -> nn.Module:
    """Return the layer of the given kind for vectors of ``width`` elements."""
    if kind == "layer":
        return nn.LayerNorm(width)
    if kind == "rms":
        return nn.RMSNorm(width)
    if kind == "batch":
        return nn.BatchNorm1d(width)
    return nn.Identity()


class FeedForward(nn.Module):
    """Two linear layers whose inner width may be shared by several ranks; optionally gated."""

    def __init__(self, width: int, inner: int, activation: str, gated: int, parallel: int) -> None:
        super().__init__()
        self.parallel = parallel
        inner = inner // parallel
        self.up = nn.Linear(width, inner)
        self.gate = nn.Linear(width, inner) if gated else None
        self.activation = ACTIVATIONS[activation]()
        self.down = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., width) to the same shape."""
        x = copy_to_ranks(x, self.parallel)
        hidden = self.activation(self.up(x))
        if self.gate is not None:
            hidden = hidden * self.gate(x)
        return sum_over_ranks(self.down(hidden), self.parallel)


class Attention(nn.Module):
    """Multi-head self-attention whose heads may be shared by several ranks."""

    def __init__(self, hyper: Hyper, causal: bool) -> None:
        super().__init__()
        width = int(hyper["width"])
        self.parallel = int(hyper.get("parallel", 1))
        self.heads = int(hyper["heads"]) // self.parallel
        self.inner = width // self.parallel
        self.fused = hyper["attention"] == "fused"
        self.causal = causal
        self.rotary = bool(hyper.get("rotary", 0))
        self.joint = bool(hyper.get("joint_qkv", 1))
        if self.joint:
            self.qkv = nn.Linear(width, 3 * self.inner)
        else:
            self.parts = nn.ModuleList(nn.Linear(width, self.inner) for _ in range(3))
        self.out = nn.Linear(self.inner, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Map (batch, time, width) to the same shape."""
        x_BTD = copy_to_ranks(x_BTD, self.parallel)
        if self.joint:
            parts = self.qkv(x_BTD).chunk(3, dim=-1)
        else:
            parts = tuple(part(x_BTD) for part in self.parts)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        if self.rotary:
            q, k = rotate(q), rotate(k)
        y = self.attend(q, k, v).transpose(1, 2).flatten(2)
        return sum_over_ranks(self.out(y), self.parallel)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend with the fused kernel or step by step."""
        if self.fused:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if self.causal:
            mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(mask, float("-inf"))
        return scores.softmax(dim=-1) @ v


def rotate(x_BHTK: Tensor) -> Tensor:
    """Rotate pairs of features by angles that grow with time (RoFormer, arXiv 2104.09864)."""
    half = x_BHTK.shape[-1] // 2
    time = torch.arange(x_BHTK.shape[-2], dtype=x_BHTK.dtype)
    angle = time[:, None] * 10000.0 ** (-torch.arange(half, dtype=x_BHTK.dtype) / half)
    first, second = x_BHTK[..., :half], x_BHTK[..., half:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class MLPBlock(nn.Module):
    """Linear, normalization, activation; optionally residual."""

    def __init__(self, hyper: Hyper) -> None:
        super().__init__()
        width = int(hyper["width"])
        self.linear = nn.Linear(width, width)
        self.norm = normalization(str(hyper["norm"]), width)
        self.activation = ACTIVATIONS[str(hyper["activation"])]()
        self.residual = bool(hyper["residual"])

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, width) to the same shape."""
        y = self.activation(self.norm(self.linear(x)))
        return x + y if self.residual else y


class ResidualFeedForward(nn.Module):
    """A feed-forward layer behind a norm, added to its input: the tensor-parallel MLP block."""

    def __init__(self, hyper: Hyper) -> None:
        super().__init__()
        width = int(hyper["width"])
        self.norm = normalization(str(hyper["norm"]), width)
        parallel = int(hyper["parallel"])
        self.inner = FeedForward(width, 2 * width, str(hyper["activation"]), 0, parallel)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, width) to the same shape."""
        return x + self.inner(self.norm(x))


def mlp(hyper: Hyper) -> nn.Sequential:
    """Return a perceptron of ``depth`` blocks."""
    width, classes = int(hyper["width"]), 10
    block = ResidualFeedForward if int(hyper.get("parallel", 1)) > 1 else MLPBlock
    blocks = [block(hyper) for _ in range(int(hyper["depth"]))]
    return nn.Sequential(nn.Linear(32, width), *blocks, nn.Linear(width, classes))


class ConvBlock(nn.Module):
    """Convolution, normalization, activation; optionally depthwise-separable and residual."""

    def __init__(self, hyper: Hyper) -> None:
        super().__init__()
        width = int(hyper["width"])
        if hyper["conv"] == "separable":
            self.conv: nn.Module = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, groups=width), nn.Conv2d(width, width, 1)
            )
        else:
            self.conv = nn.Conv2d(width, width, 3, padding=1)
        kind = hyper["norm"]
        norms = {"batch": nn.BatchNorm2d(width), "group": nn.GroupNorm(2, width)}
        self.norm = norms.get(str(kind), nn.Identity())
        self.activation = ACTIVATIONS[str(hyper["activation"])]()
        self.residual = bool(hyper["residual"])

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, width, height, width) to the same shape."""
        y = self.norm(self.conv(x))
        return self.activation(x + y if self.residual else y)


def cnn(hyper: Hyper) -> nn.Sequential:
    """Return a convolutional classifier; a pooling layer follows every ``stage`` blocks."""
    width = int(hyper["width"])
    pool = nn.MaxPool2d if hyper["pool"] == "max" else nn.AvgPool2d
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for block in range(int(hyper["depth"])):
        layers.append(ConvBlock(hyper))
        if block % int(hyper["stage"]) == 0 and block < 3:
            layers.append(pool(2))
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    return nn.Sequential(*layers, nn.Sequential(*head))


class Embedding(nn.Module):
    """Token plus position embedding; BERT adds segments and a norm."""

    def __init__(self, hyper: Hyper, segments: bool) -> None:
        super().__init__()
        width = int(hyper["width"])
        self.token = nn.Embedding(int(hyper["vocabulary"]), width)
        rotary = bool(hyper.get("rotary", 0))
        self.position = None if rotary else nn.Embedding(int(hyper["time"]), width)
        self.segment = nn.Embedding(2, width) if segments else None
        self.norm = nn.LayerNorm(width) if segments else None

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Map token ids to (batch, time, width)."""
        x = self.token(ids_BT)
        if self.position is not None:
            x = x + self.position(torch.arange(ids_BT.shape[1]))
        if self.segment is not None and self.norm is not None:
            x = self.norm(x + self.segment(torch.zeros_like(ids_BT)))
        return x


class TransformerBlock(nn.Module):
    """Attention and feed-forward with residuals, norm before or after, or side by side."""

    def __init__(self, hyper: Hyper, causal: bool) -> None:
        super().__init__()
        width = int(hyper["width"])
        self.attention = Attention(hyper, causal)
        self.inner = feed_forward(hyper)
        self.placement = str(hyper["placement"])
        self.norm_1 = normalization(str(hyper["norm"]), width)
        if self.placement != "parallel":
            self.norm_2 = normalization(str(hyper["norm"]), width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, time, width) to the same shape."""
        if self.placement == "pre":
            x = x + self.attention(self.norm_1(x))
            return x + self.inner(self.norm_2(x))
        if self.placement == "parallel":
            y = self.norm_1(x)
            return x + self.attention(y) + self.inner(y)
        x = self.norm_1(x + self.attention(x))
        return self.norm_2(x + self.inner(x))


def feed_forward(hyper: Hyper) -> nn.Module:
    """Return the block's second half: dense, or a mixture of experts."""
    width = int(hyper["width"])
    if "experts" in hyper:
        return Mixture(hyper)
    return FeedForward(
        width,
        int(hyper["expansion"]) * width,
        str(hyper["activation"]),
        int(hyper.get("gated", 0)),
        int(hyper.get("parallel", 1)),
    )


def gpt(hyper: Hyper) -> nn.Sequential:
    """Return a causal language model."""
    width = int(hyper["width"])
    blocks = [TransformerBlock(hyper, causal=True) for _ in range(int(hyper["depth"]))]
    head = nn.Sequential(
        normalization(str(hyper["norm"]), width),
        nn.Linear(width, int(hyper["vocabulary"]), bias=False),
    )
    return nn.Sequential(Embedding(hyper, segments=False), *blocks, head)


class Pooler(nn.Module):
    """First token, dense, tanh."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, time, width) to (batch, width)."""
        return torch.tanh(self.dense(x[:, 0]))


def bert(hyper: Hyper) -> nn.Sequential:
    """Return an encoder that classifies the sequence, or predicts every token."""
    width = int(hyper["width"])
    blocks = [TransformerBlock(hyper, causal=False) for _ in range(int(hyper["depth"]))]
    if hyper["task"] == "sequence":
        head = nn.Sequential(Pooler(width), nn.Linear(width, 4))
    else:
        tokens = nn.Linear(width, int(hyper["vocabulary"]))
        head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), tokens)
    return nn.Sequential(Embedding(hyper, segments=True), *blocks, head)


class Mixture(nn.Module):
    """Top-k routing to experts of fixed capacity (GShard, arXiv 2006.16668, section 2.2).

    With ``parallel`` ranks each holds its share of the experts, and tokens travel by all-to-all.
    """

    def __init__(self, hyper: Hyper) -> None:
        super().__init__()
        width, inner = int(hyper["width"]), int(hyper["expansion"]) * int(hyper["width"])
        self.num_experts, self.top = int(hyper["experts"]), int(hyper["top"])
        self.parallel = int(hyper.get("parallel", 1))
        self.router = nn.Linear(width, self.num_experts, bias=False)
        local = self.num_experts // self.parallel
        self.experts = nn.ModuleList(
            FeedForward(width, inner, str(hyper["activation"]), int(hyper.get("gated", 0)), 1)
            for _ in range(local)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., width) to the same shape."""
        tokens_TD = x.reshape(-1, x.shape[-1])
        weight_TK, expert_TK = self.router(tokens_TD).softmax(dim=-1).topk(self.top)
        capacity = max(1, 2 * self.top * tokens_TD.shape[0] // self.num_experts)
        chosen_TKE = functional.one_hot(expert_TK, self.num_experts).to(x.dtype)
        place_TKE = chosen_TKE.flatten(0, 1).cumsum(0).view_as(chosen_TKE) * chosen_TKE - 1
        slot_TKEC = functional.one_hot(place_TKE.long().clamp(-1, capacity) + 1, capacity + 2)
        keep_TKEC = slot_TKEC[..., 1 : capacity + 1].to(x.dtype)
        combine_TEC = torch.einsum("tk,tkec->tec", weight_TK, keep_TKEC)
        sent_ECD = torch.einsum("tec,td->ecd", keep_TKEC.sum(1), tokens_TD)
        y_ECD = self.run_experts(sent_ECD)
        return torch.einsum("tec,ecd->td", combine_TEC, y_ECD).view_as(x)

    def run_experts(self, sent_ECD: Tensor) -> Tensor:
        """Apply each expert to its tokens, wherever it lives."""
        if self.parallel == 1:
            return torch.stack([e(x) for e, x in zip(self.experts, sent_ECD, strict=True)])
        local = len(self.experts)
        here_PECD = exchange(sent_ECD.contiguous()).view(self.parallel, local, *sent_ECD.shape[1:])
        parts = [e(here_PECD[:, index]) for index, e in enumerate(self.experts)]
        return exchange(torch.stack(parts, dim=1).flatten(0, 1).contiguous())


class MixtureBlock(nn.Module):
    """A mixture of experts behind a norm, added to its input, without attention."""

    def __init__(self, hyper: Hyper) -> None:
        super().__init__()
        self.norm = normalization(str(hyper["norm"]), int(hyper["width"]))
        self.inner = Mixture(hyper)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., width) to the same shape."""
        return x + self.inner(self.norm(x))


def moe(hyper: Hyper) -> nn.Sequential:
    """Return a mixture-of-experts network, with or without attention."""
    if hyper["mixer"] == "attention":
        plain = {**hyper, "parallel": 1} if int(hyper.get("parallel", 1)) > 1 else hyper
        model = gpt(plain)
        for block in model:
            if isinstance(block, TransformerBlock):
                block.inner = Mixture(hyper)
        return model
    width = int(hyper["width"])
    blocks = [MixtureBlock(hyper) for _ in range(int(hyper["depth"]))]
    return nn.Sequential(nn.Linear(32, width), *blocks, nn.Linear(width, 10))


class DLRM(nn.Module):
    """Embedding tables, two perceptrons, and an interaction of features (arXiv 1906.00091).

    With ``parallel`` ranks each holds its share of the tables for the batch of all ranks, and the
    looked-up rows travel by all-to-all.
    """

    def __init__(self, hyper: Hyper) -> None:
        super().__init__()
        width, self.num_tables = int(hyper["width"]), int(hyper["tables"])
        self.parallel = int(hyper.get("parallel", 1))
        local = self.num_tables // self.parallel
        self.tables = nn.ModuleList(nn.EmbeddingBag(200, width, mode="sum") for _ in range(local))
        activation = ACTIVATIONS[str(hyper["activation"])]
        bottom = [nn.Linear(13, width), activation()]
        for _ in range(int(hyper["bottom"])):
            bottom += [nn.Linear(width, width), activation()]
        self.bottom = nn.Sequential(*bottom)
        self.dot = hyper["interaction"] == "dot"
        pairs = (self.num_tables + 1) * self.num_tables // 2
        features = width + pairs if self.dot else width * (self.num_tables + 1)
        top = [nn.Linear(features, width), activation()]
        for _ in range(int(hyper["top"])):
            top += [nn.Linear(width, width), activation()]
        self.top = nn.Sequential(*top, nn.Linear(width, 1))

    def forward(self, dense_BF: Tensor, ids_TBL: Tensor) -> Tensor:
        """Map dense features and the ids of each table to (batch, 1) logits."""
        x_BD = self.bottom(dense_BF)
        rows = torch.stack([t(i) for t, i in zip(self.tables, ids_TBL, strict=True)])
        if self.parallel > 1:
            batch = rows.shape[1] // self.parallel
            by_rank = rows.unflatten(1, (self.parallel, batch)).transpose(0, 1).contiguous()
            rows = exchange(by_rank.flatten(0, 1))
        z_BTD = torch.cat([x_BD[:, None], rows.transpose(0, 1)], dim=1)
        if self.dot:
            products = z_BTD @ z_BTD.transpose(1, 2)
            row, column = torch.tril_indices(z_BTD.shape[1], z_BTD.shape[1], -1)
            return self.top(torch.cat([x_BD, products[:, row, column]], dim=1))
        return self.top(z_BTD.flatten(1))


class GraphLayer(nn.Module):
    """One round of messages: GCN, SAGE, GIN or GAT, with plain index operations."""

    def __init__(self, hyper: Hyper) -> None:
        super().__init__()
        width = int(hyper["width"])
        self.kind = str(hyper["layer"])
        self.linear = nn.Linear(width, width)
        self.own = nn.Linear(width, width) if self.kind in ("sage", "gin") else None
        self.score = nn.Linear(2 * width, 1) if self.kind == "gat" else None
        self.norm = normalization(str(hyper["norm"]), width)
        self.activation = ACTIVATIONS[str(hyper["activation"])]()
        self.residual = bool(hyper["residual"])

    def forward(self, x_ND: Tensor, edge_index_2E: Tensor) -> Tensor:
        """Return the new node features, shape (nodes, width)."""
        source_E, target_E = edge_index_2E
        h_ND = self.linear(x_ND) if self.kind != "gin" else x_ND
        message_ED = h_ND[source_E]
        if self.score is not None:
            pair = torch.cat([message_ED, h_ND[target_E]], dim=1)
            weight_E1 = functional.leaky_relu(self.score(pair)).exp()
            total_N1 = torch.zeros(len(x_ND), 1).index_add(0, target_E, weight_E1)
            message_ED = message_ED * (weight_E1 / total_N1[target_E])
        y_ND = torch.zeros_like(h_ND).index_add(0, target_E, message_ED)
        if self.kind in ("gcn", "sage"):
            ones_E1 = torch.ones(len(target_E), 1)
            degree_N1 = torch.zeros(len(x_ND), 1).index_add(0, target_E, ones_E1)
            y_ND = y_ND / degree_N1.clamp(min=1)
        if self.own is not None:
            y_ND = (
                y_ND + self.own(x_ND) if self.kind == "sage" else self.own(self.linear(x_ND + y_ND))
            )
        y_ND = self.activation(self.norm(y_ND))
        return x_ND + y_ND if self.residual else y_ND


class GNN(nn.Module):
    """Message passing, then classification of nodes or of the graph."""

    def __init__(self, hyper: Hyper) -> None:
        super().__init__()
        width = int(hyper["width"])
        self.first = nn.Linear(16, width)
        self.layers = nn.ModuleList(GraphLayer(hyper) for _ in range(int(hyper["depth"])))
        self.readout = str(hyper["readout"])
        self.last = nn.Linear(width, 4)

    def forward(self, x_NF: Tensor, edge_index_2E: Tensor) -> Tensor:
        """Return logits of each node, or of the graph."""
        x = self.first(x_NF)
        for layer in self.layers:
            x = layer(x, edge_index_2E)
        if self.readout == "node":
            return self.last(x)
        pooled = x.mean(0) if self.readout == "mean" else x.amax(0)
        return self.last(pooled)[None]


BUILDERS = {
    "mlp": mlp,
    "cnn": cnn,
    "gpt": gpt,
    "bert": bert,
    "moe": moe,
    "dlrm": DLRM,
    "gnn": GNN,
}
