"""A small causal transformer over a graph written as tokens.

A node is its kind followed by the numbers of its parents, descending; ``END`` comes after the last
node. What cannot follow is masked when sampling (a number of no earlier node, one out of order), so
that every sequence is a graph without cycles.

Shape letters: B graphs, C codes, D width, H heads, N nodes, T tokens, d width of a head.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.runtime.rng import derive_seed, numpy_generator

from ._base import Orders, most_nodes, parameters_of, train

HEADS = 4
NOTHING = -100
_Cache = list[tuple[Tensor, Tensor]]


class Codes:
    """The code of each token: kinds first, then the end, then the numbers of nodes."""

    def __init__(self, kinds: int, length: int) -> None:
        self.kinds, self.length = kinds, length
        self.end, self.first_node = kinds, kinds + 1
        self.count = kinds + 1 + length

    def write(self, dag: DAG) -> list[int]:
        """Return the tokens of a graph in layer order, the end included."""
        parents: list[list[int]] = [[] for _ in range(dag.num_nodes)]
        for source, target in dag.edge_index_2E.T.tolist():
            parents[target].append(source)
        tokens = []
        for kind, chosen in zip(dag.x_NA[:, 0].tolist(), parents, strict=True):
            tokens += [kind, *(self.first_node + p for p in sorted(chosen, reverse=True))]
        return [*tokens, self.end]

    def read(self, tokens: Sequence[int]) -> DAG | None:
        """Return the graph of tokens before the end, None if there is none."""
        kinds: list[int] = []
        edges = []
        for token in tokens:
            if token < self.kinds:
                kinds.append(token)
            else:
                edges.append((token - self.first_node, len(kinds) - 1))
        if not kinds:
            return None
        edge_index_2E = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
        return DAG.build(torch.tensor(kinds)[:, None], edge_index_2E).in_layer_order()

    def allowed(self, node_B: Tensor, below_B: Tensor) -> Tensor:
        """Return which codes may follow, bool of shape (B, C).

        Args:
            node_B: Nodes so far.
            below_B: Parents must have a smaller number.
        """
        number_N = torch.arange(self.length)
        parents_BN = number_N < below_B[:, None]
        kinds_BK = (node_B < self.length)[:, None].expand(-1, self.kinds)
        return torch.cat([kinds_BK, (node_B > 0)[:, None], parents_BN], dim=1)


class _Block(nn.Module):
    """Attention and a multilayer perceptron on normalized inputs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x_BTD: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Any]:
        """Return the output and the keys and values so far; one token at a time with ``past``."""
        batch, length, width = x_BTD.shape
        parts = self.project(self.first(x_BTD)).chunk(3, -1)
        query, key, value = (
            part.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for part in parts
        )
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=past is None)
        x_BTD = x_BTD + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x_BTD + self.mlp(self.second(x_BTD)), (key, value)


class LanguageModel(nn.Module):
    """The transformer; a token is embedded with its code, its node's number and its rank there."""

    def __init__(self, codes: Codes, width: int, depth: int) -> None:
        super().__init__()
        self.codes = codes
        self.token = nn.Embedding(codes.count + 1, width)
        self.node, self.rank = nn.Embedding(codes.length + 2, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(depth))
        self.norm, self.readout = nn.LayerNorm(width), nn.Linear(width, codes.count)

    def forward(
        self, input_BT: Tensor, node_BT: Tensor, rank_BT: Tensor, past: _Cache | None = None
    ) -> tuple[Tensor, _Cache]:
        """Return the logits of the next tokens and the cache."""
        x_BTD = self.token(input_BT) + self.node(node_BT) + self.rank(rank_BT.clamp(max=63))
        cache: _Cache = []
        for i, block in enumerate(self.blocks):
            x_BTD, kept = block(x_BTD, None if past is None else past[i])
            cache.append(kept)
        return self.readout(self.norm(x_BTD)), cache

    def loss(self, dags: Sequence[DAG]) -> Tensor:
        """Return the negative log-likelihood, mean per token."""
        written = [self.codes.write(dag) for dag in dags]
        length = max(map(len, written))
        target_BT = torch.full((len(dags), length), NOTHING)
        for row, tokens in zip(target_BT, written, strict=True):
            row[: len(tokens)] = torch.tensor(tokens)
        input_BT = F.pad(target_BT, (1, 0), value=self.codes.count)[:, :-1]
        input_BT = input_BT.masked_fill(input_BT == NOTHING, self.codes.end)
        starts_BT = input_BT < self.codes.kinds
        node_BT = starts_BT.cumsum(1)
        place_T = torch.arange(length)
        rank_BT = place_T - (place_T * starts_BT).cummax(1).values
        node_BT = node_BT.clamp(max=self.codes.length + 1)
        logits_BTC, _ = self(input_BT, node_BT, rank_BT)
        return F.cross_entropy(logits_BTC.flatten(0, 1), target_BT.flatten(), ignore_index=NOTHING)

    @torch.inference_mode()
    def draw(self, num: int, most_tokens: int, generator: torch.Generator) -> list[DAG | None]:
        """Return sampled graphs; None where the end did not come in time."""
        token_B = torch.full((num,), self.codes.count)
        node_B, rank_B, below_B = (torch.zeros(num, dtype=torch.int64) for _ in range(3))
        done_B = torch.zeros(num, dtype=torch.bool)
        past: _Cache | None = None
        drawn: list[Tensor] = []
        while not bool(done_B.all()) and len(drawn) < most_tokens:
            state = (token_B[:, None], node_B[:, None], rank_B[:, None])
            logits_BTC, past = self(*state, past)
            allowed_BC = self.codes.allowed(node_B, below_B)
            logits_BC = logits_BTC[:, -1].masked_fill(~allowed_BC, -torch.inf)
            token_B = torch.multinomial(logits_BC.softmax(-1), 1, generator=generator)[:, 0]
            token_B = token_B.masked_fill(done_B, self.codes.end)
            done_B = done_B | (token_B == self.codes.end)
            drawn.append(token_B)
            starts_B = token_B < self.codes.kinds
            below_B = torch.where(starts_B, node_B, token_B - self.codes.first_node)
            node_B, rank_B = node_B + starts_B, (rank_B + 1).masked_fill(starts_B, 0)
        rows = torch.stack(drawn, dim=1).tolist()
        return [
            self.codes.read(row[: row.index(self.codes.end)]) if self.codes.end in row else None
            for row in rows
        ]


class FittedLanguageModel:
    """A trained transformer."""

    def __init__(self, model: LanguageModel, steps: int, most_tokens: int) -> None:
        self.model, self.steps, self.parameters = model, steps, parameters_of(model)
        self.most_tokens = most_tokens

    def sample(self, num: int, seed: int) -> list[DAG | None]:
        """Return graphs."""
        generator = torch.Generator().manual_seed(derive_seed(seed, "language model"))
        return self.model.draw(num, self.most_tokens, generator)


def fit_language_model(
    data: GraphDataset,
    seconds: float,
    seed: int,
    *,
    width: int = 64,
    depth: int = 3,
    learning_rate: float = 2e-3,
    batch_tokens: int = 1000,
    **settings: Any,
) -> FittedLanguageModel:
    """Train the transformer."""
    torch.manual_seed(derive_seed(seed, "language model"))
    codes = Codes(data.schema.sizes().attributes[0], most_nodes(data))
    model = LanguageModel(codes, width, depth)
    train_dags = data.graphs["train"]
    longest = max(dag.num_nodes + dag.num_edges for dag in train_dags) + 1
    mean = sum(dag.num_nodes + dag.num_edges for dag in train_dags) / len(train_dags)
    orders = Orders(train_dags, numpy_generator(seed, "language model"))
    batch = max(int(batch_tokens / mean), 2)
    steps = train(model, lambda: model.loss(orders.draw(batch)), seconds, learning_rate)
    return FittedLanguageModel(model, steps, 2 * longest)
