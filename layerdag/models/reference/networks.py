"""The three networks: how many nodes the next layer has, their attributes, the edges into it.

Each has an encoder of prefixes of its own: message passing along and against the edges.

Shape letters: A node attributes, B graphs, C numeric conditions, D width of a state, I prefixes, K
codes, M categorical conditions, N nodes, P pairs, R rows, S diffusion steps, V edges among rows, W
new nodes.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.base import LossTerm
from layerdag.models.conditions import Conditions
from layerdag.models.config import EdgeConfig, LayerSizeConfig, NodeConfig
from layerdag.models.draws import sample_categorical
from layerdag.models.layers import (
    MLP,
    Linear,
    MessagePassingLayer,
    SegmentAttention,
    Segments,
    SumEmbedding,
    gather_rows,
    sinusoids,
    to_float32,
)
from layerdag.models.reference.diffusion import add_noise, cosine_alpha_bar
from layerdag.models.reference.prefixes import Pairs, PrefixGraphs

MAX_LAYER_DISTANCE = 32
"""Layers at this distance and beyond share one embedding."""

_MAX_MARGINAL = 0.9
"""Where all candidates are parents, the marginal of an edge stays below 1."""


class DegreeCodes(nn.Module):
    """In-degrees as categories: one code for each in-degree that training graphs have.

    A trace may have a node with hundreds of parents and yet few distinct in-degrees.
    """

    value_K: Tensor

    def __init__(self, statistics: GraphStatistics) -> None:
        super().__init__()
        counts: dict[int, int] = {0: 0}
        for pairs in statistics.in_degrees:
            for degree, count in pairs:
                counts[degree] = counts.get(degree, 0) + count
        values = sorted(counts)
        self.counts = tuple(counts[value] for value in values)
        self.register_buffer("value_K", torch.tensor(values), persistent=False)

    def __len__(self) -> int:
        return len(self.counts)

    def encode(self, degree_N: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
        """Return the code of the largest known in-degree that is at most ``degree_N``."""
        return torch.searchsorted(self.value_K, degree_N, right=True) - 1

    def decode(self, code_N: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
        """Return the in-degree behind each code."""
        return self.value_K[code_N]


class ReferenceConditionEncoder(nn.Module):
    """Sum of one embedding per condition; an unknown one has an embedding of its own.

    Numeric conditions arrive standardized; each passes through a small network of its value, so
    that the whole range of labels varies the embedding.
    """

    def __init__(self, sizes: GraphSizes, width: int) -> None:
        super().__init__()
        numeric = sizes.numeric_conditions
        self.base = nn.Parameter(torch.zeros(width))
        self.numeric = MLP(2 * numeric, width, width) if numeric else None
        self.categories = nn.ModuleList(
            [nn.Embedding(count + 1, width) for count in sizes.category_conditions]
        )

    def forward(self, conditions: Conditions) -> Float[Tensor, "B D"]:
        """Return the vector of each graph."""
        numeric_BC, category_BM = conditions.numeric_BC, conditions.category_BM
        out_BD = self.base.expand(numeric_BC.shape[0], -1)
        if self.numeric is not None:
            known_BC = ~numeric_BC.isnan()
            value_BC = torch.where(known_BC, numeric_BC, 0.0)
            out_BD = out_BD + self.numeric(torch.cat([value_BC, known_BC.to(value_BC)], dim=1))
        for column, table in enumerate(self.categories):
            out_BD = out_BD + table(category_BM[:, column] + 1)
        return out_BD


def code_embedding(cardinalities: Sequence[int], width: int) -> SumEmbedding:
    """Return the embedding of node columns, with the scale and the name of published weights."""
    return SumEmbedding(cardinalities, width, std=0.5, name="table")


class PrefixNodeEncoder(nn.Module):
    """States of the rows of ``PrefixGraphs``: outputs of all rounds, concatenated and projected."""

    def __init__(
        self,
        sizes: GraphSizes,
        cardinalities: Sequence[int],
        *,
        width: int,
        rounds: int,
        edge_kinds: int,
    ) -> None:
        super().__init__()
        self.codes = code_embedding(cardinalities, width)
        self.ages = nn.Embedding(MAX_LAYER_DISTANCE + 1, width)
        self.conditions = ReferenceConditionEncoder(sizes, width)
        self.rounds = nn.ModuleList([MessagePassingLayer(width, edge_kinds) for _ in range(rounds)])
        self.project = Linear((rounds + 1) * width, width)

    def forward(self, partial: PrefixGraphs, conditions: Conditions) -> Float[Tensor, "R D"]:
        """Return the state of each row."""
        of_graph_ND = gather_rows(self.conditions(conditions), partial.graph_N)
        node_ND = self.codes(partial.code_NA) + of_graph_ND
        age_RD = self.ages(partial.distance_R.clamp(max=MAX_LAYER_DISTANCE))
        outputs = [gather_rows(node_ND, partial.node_R) + age_RD]
        for layer in self.rounds:
            outputs.append(layer(outputs[-1], partial.edge_index_2V, partial.edge_kind_V))
        return to_float32(self.project(torch.cat(outputs, dim=-1)))


class PrefixEncoder(nn.Module):
    """States of prefixes, one vector each.

    The sum over the rows plus a start vector (the dummy node of the empty prefix) is normalized and
    joined by the conditions and by sinusoids of the numbers of layers and nodes.
    """

    def __init__(
        self, sizes: GraphSizes, cardinalities: Sequence[int], *, width: int, rounds: int
    ) -> None:
        super().__init__()
        self.width = width
        self.rows = PrefixNodeEncoder(
            sizes, cardinalities, width=width, rounds=rounds, edge_kinds=sizes.edge_types
        )
        self.start = nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width)
        self.state = MLP(4 * width, width, width)

    def forward(self, partial: PrefixGraphs, conditions: Conditions) -> Float[Tensor, "I D"]:
        """Return the state of each prefix."""
        rows_RD = self.rows(partial, conditions)
        items = partial.graph_I.numel()
        pooled_ID = rows_RD.new_zeros(items, self.width).index_add(0, partial.prefix_R, rows_RD)
        nodes_I = torch.bincount(partial.prefix_R, minlength=items)
        parts = [
            self.norm(pooled_ID + self.start),
            gather_rows(self.rows.conditions(conditions), partial.graph_I),
            sinusoids(partial.depth_I.to(rows_RD), self.width),
            sinusoids(nodes_I.to(rows_RD), self.width),
        ]
        return self.state(torch.cat(parts, dim=-1))


class LayerSizeNet(nn.Module):
    """How many nodes the next layer has, 0 for stop: the sizes of training, and a tail beyond.

    The tail has the probability that the rule of succession gives to a record, 1 / (layers + 1),
    and a geometric excess whose mean is the mean layer size. So no width is impossible, and the
    likelihood of any graph is finite.
    """

    def __init__(
        self,
        sizes: GraphSizes,
        statistics: GraphStatistics,
        cardinalities: Sequence[int],
        config: LayerSizeConfig,
    ) -> None:
        super().__init__()
        layers = sum(count for _, count in statistics.layer_sizes)
        nodes = sum(size * count for size, count in statistics.layer_sizes)
        self.largest = statistics.max_layer_size
        self.tail_probability = 1 / (layers + 1)
        self.tail_stop_probability = layers / max(nodes, layers + 1)
        width = config.width
        self.encoder = PrefixEncoder(sizes, cardinalities, width=width, rounds=config.rounds)
        self.head = MLP(width, width, self.largest + 1)

    def forward(self, partial: PrefixGraphs, conditions: Conditions) -> Float[Tensor, "I K"]:
        """Return logits of the sizes 0, 1, ... up to the largest of training."""
        return self.head(self.encoder(partial, conditions))

    def loss(
        self, partial: PrefixGraphs, conditions: Conditions, size_I: Int[Tensor, " I"]
    ) -> LossTerm:
        """Return the exact negative log-likelihood of the sizes, one count per prefix."""
        total = -self.log_probability(self(partial, conditions), size_I).sum()
        return LossTerm(total, torch.tensor(size_I.numel(), device=total.device))

    def log_probability(
        self, logits_IK: Float[Tensor, "I K"], size_I: Int[Tensor, " I"]
    ) -> Float[Tensor, " I"]:
        """Return log p(size) of each prefix, nats."""
        fraction = torch.tensor(self.tail_probability)
        stop = torch.tensor(self.tail_stop_probability)
        inner_IK = logits_IK.log_softmax(-1) + torch.log1p(-fraction)
        inner_I = inner_IK.gather(1, size_I.clamp(max=self.largest).unsqueeze(1)).squeeze(1)
        excess_I = (size_I - self.largest - 1).clamp(min=0)
        tail_I = fraction.log() + stop.log() + excess_I * torch.log1p(-stop)
        return torch.where(size_I <= self.largest, inner_I, tail_I)

    def sample(
        self, logits_IK: Float[Tensor, "I K"], uniform_I2: Float[Tensor, "I 2"]
    ) -> Int[Tensor, " I"]:
        """Sample a size for each prefix; a logit of minus infinity forbids a size."""
        inner_IK = logits_IK.softmax(-1) * (1 - self.tail_probability)
        tail_I1 = torch.full_like(inner_IK[:, :1], self.tail_probability)
        size_I = sample_categorical(torch.cat([inner_IK, tail_I1], dim=1), uniform_I2[:, 0])
        beyond = torch.log1p(torch.tensor(-self.tail_stop_probability, dtype=torch.float64))
        excess_I = (uniform_I2[:, 1].log() / beyond).long()
        return torch.where(size_I > self.largest, size_I + excess_I, size_I)


class DenoiserBlock(nn.Module):
    """A pre-norm transformer block over the nodes of each layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = SegmentAttention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = MLP(width, 2 * width, width)

    def forward(self, rows_RD: Float[Tensor, "R D"], segments: Segments) -> Float[Tensor, "R D"]:
        """Return the new rows."""
        rows_RD = rows_RD + self.attention(self.attention_norm(rows_RD), segments)
        return rows_RD + self.mlp(self.mlp_norm(rows_RD))


class NodeDenoiser(nn.Module):
    """Predicts the clean attributes of the new nodes from noisy ones and the prefix.

    The in-degree is one more attribute. Each is noised on its own toward its training marginal.
    ``counts`` are numbers of training nodes with each code, of each node column.
    """

    marginal_AK: Tensor
    allowed_AK: Tensor
    alpha_bar_S: Tensor

    def __init__(
        self, sizes: GraphSizes, counts: Sequence[Sequence[int]], config: NodeConfig
    ) -> None:
        super().__init__()
        width, self.steps = config.width, config.steps
        cardinalities = tuple(map(len, counts))
        self.encoder = PrefixEncoder(sizes, cardinalities, width=width, rounds=config.rounds)
        self.noisy = code_embedding(cardinalities, width)
        self.time = MLP(width, width, width)
        self.blocks = nn.ModuleList(
            [DenoiserBlock(width, config.heads) for _ in range(config.blocks)]
        )
        self.norm = nn.LayerNorm(width)
        self.head = Linear(width, len(cardinalities) * max(cardinalities))
        marginal_AK = smoothed_marginals(counts)
        self.register_buffer("marginal_AK", marginal_AK, persistent=False)
        self.register_buffer("allowed_AK", marginal_AK > 0, persistent=False)
        self.register_buffer("alpha_bar_S", cosine_alpha_bar(self.steps).float(), persistent=False)

    def times(self, time_I: Int[Tensor, " I"]) -> Float[Tensor, "I D"]:
        """Return what the times 1..S add to the state of a prefix."""
        width = self.encoder.width
        return self.time(sinusoids(1000 * time_I.to(self.encoder.start) / self.steps, width))

    def forward(
        self, prefix_ID: Float[Tensor, "I D"], xt_RA: Int[Tensor, "R A"], segments: Segments
    ) -> Float[Tensor, "R A K"]:
        """Return logits of the clean codes; minus infinity for those an attribute does not have.

        ``prefix_ID`` is the state of each prefix (``encoder``) plus its ``times``; the new nodes of
        a prefix are a segment.
        """
        rows_RD = self.noisy(xt_RA) + segments.broadcast(prefix_ID)
        for block in self.blocks:
            rows_RD = block(rows_RD, segments)
        logits_RAK = self.head(self.norm(rows_RD)).unflatten(-1, self.marginal_AK.shape)
        return logits_RAK.masked_fill(~self.allowed_AK, float("-inf"))

    def loss(
        self,
        state_ID: Float[Tensor, "I D"],
        x0_RA: Int[Tensor, "R A"],
        ptr: Int[Tensor, " I1"],
        generator: torch.Generator,
    ) -> LossTerm:
        """Return the cross entropy of the clean codes at a random time per prefix."""
        items, device = state_ID.shape[0], state_ID.device
        time_I = torch.randint(1, self.steps + 1, (items,), generator=generator, device=device)
        uniform_RA2 = torch.rand(*x0_RA.shape, 2, generator=generator, device=device)
        time_R = torch.repeat_interleave(time_I, ptr.diff(), output_size=x0_RA.shape[0])
        alpha_bar_R1 = self.alpha_bar_S[time_R].unsqueeze(-1)
        xt_RA = add_noise(x0_RA, alpha_bar_R1, self.marginal_AK, uniform_RA2)
        logits_RAK = self(state_ID + self.times(time_I), xt_RA, Segments.from_ptr(ptr))
        total = F.cross_entropy(logits_RAK.flatten(0, 1), x0_RA.flatten(), reduction="sum")
        return LossTerm(total, torch.tensor(x0_RA.numel(), device=device))


def smoothed_marginals(columns: Sequence[Sequence[int]]) -> Float[Tensor, "A K"]:
    """Return the frequency of each code with one added count, 0 for codes that do not exist."""
    width = max(map(len, columns))
    rows = []
    for counts in columns:
        total = sum(counts) + len(counts)
        row = [(count + 1) / total for count in counts]
        rows.append(row + [0.0] * (width - len(row)))
    return torch.tensor(rows)


class EdgeDenoiser(nn.Module):
    """Predicts the clean state of each pair: 0 for no edge, else the edge type plus 1.

    The in-degree d of a new node is known when its edges are drawn (it is drawn with the node's
    attributes). So the noise of its P pairs is "an edge" with probability d / P: at any time the
    expected in-degree is the true one.
    """

    type_fraction_K: Tensor
    alpha_bar_S: Tensor

    def __init__(
        self,
        sizes: GraphSizes,
        statistics: GraphStatistics,
        cardinalities: Sequence[int],
        config: EdgeConfig,
    ) -> None:
        super().__init__()
        width, self.steps, self.edge_types = config.width, config.steps, sizes.edge_types
        self.encoder = PrefixNodeEncoder(
            sizes, cardinalities, width=width, rounds=config.rounds, edge_kinds=2 * self.edge_types
        )
        self.from_source = Linear(width, width, bias=False)
        self.from_target = Linear(width, width)
        self.time = MLP(width, width, width)
        self.states = nn.Embedding(1 + sizes.edge_types, width)
        self.head = Linear(width, 1 + sizes.edge_types)
        shares = smoothed_marginals([statistics.edge_types])[0]
        self.register_buffer("type_fraction_K", shares, persistent=False)
        self.register_buffer("alpha_bar_S", cosine_alpha_bar(self.steps).float(), persistent=False)

    def forward(
        self,
        partial: PrefixGraphs,
        conditions: Conditions,
        pairs: Pairs,
        xt_P: Int[Tensor, " P"],
        time_I: Int[Tensor, " I"],
    ) -> Float[Tensor, "P K"]:
        """Return logits of the clean state of each pair, from noisy states at times 1..S."""
        rows_RD = self.encoder(self.with_noisy_edges(partial, pairs, xt_P), conditions)
        fraction_I = time_I.to(rows_RD) / self.steps
        time_ID = self.time(sinusoids(1000 * fraction_I, rows_RD.shape[1]))
        target_RD = self.from_target(rows_RD) + gather_rows(time_ID, partial.prefix_R)
        hidden_PD = (
            gather_rows(self.from_source(rows_RD), pairs.source_P)
            + gather_rows(target_RD, pairs.target_P)
            + self.states(xt_P)
        )
        return self.head(F.gelu(hidden_PD))

    def marginals(self, pairs: Pairs) -> Float[Tensor, "P K"]:
        """Return the noise distribution of each pair."""
        mean_W = pairs.in_degree_W.to(self.type_fraction_K) / pairs.candidates_W
        edge_W1 = mean_W.clamp(max=_MAX_MARGINAL).unsqueeze(1)
        return torch.cat([1 - edge_W1, edge_W1 * self.type_fraction_K], dim=1)[pairs.new_P]

    def loss(
        self,
        partial: PrefixGraphs,
        conditions: Conditions,
        pairs: Pairs,
        x0_P: Int[Tensor, " P"],
        generator: torch.Generator,
    ) -> LossTerm:
        """Return the cross entropy of the clean states at a random time, one count per new node."""
        items, device = partial.graph_I.numel(), x0_P.device
        time_I = torch.randint(1, self.steps + 1, (items,), generator=generator, device=device)
        uniform_P2 = torch.rand(x0_P.numel(), 2, generator=generator, device=device)
        alpha_bar_P = self.alpha_bar_S[time_I[pairs.prefix_P]]
        xt_P = add_noise(x0_P, alpha_bar_P, self.marginals(pairs), uniform_P2)
        logits_PK = self(partial, conditions, pairs, xt_P, time_I)
        total = F.cross_entropy(logits_PK, x0_P, reduction="sum")
        return LossTerm(total, torch.tensor(pairs.in_degree_W.numel(), device=device))

    def with_noisy_edges(
        self, partial: PrefixGraphs, pairs: Pairs, xt_P: Int[Tensor, " P"]
    ) -> PrefixGraphs:
        """Return the prefixes with their noisy edges, which have kinds of their own."""
        edges_P = xt_P > 0
        noisy_2V = torch.stack([pairs.source_P[edges_P], pairs.target_P[edges_P]])
        kind_V = xt_P[edges_P] - 1 + self.edge_types
        return replace(
            partial,
            edge_index_2V=torch.cat([partial.edge_index_2V, noisy_2V], dim=1),
            edge_kind_V=torch.cat([partial.edge_kind_V, kind_V]),
        )
