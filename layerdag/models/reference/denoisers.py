"""Categorical diffusion, node, edge and size nets.

In-degrees as categories: one code for each in-degree that training graphs have.

Categorical diffusion toward a marginal: forward process, reverse process.

D3PM (Austin et al., arXiv 2107.03006) with the transition of DiGress (arXiv 2209.14734):
``Q_t = a_t I + (1 - a_t) 1 m^T``. Products of such matrices have the same form, so with
``alpha_bar_t = a_1 ... a_t`` every distribution is closed form, for any pair of times.

Codes have any leading shape ``...``; probabilities have one more dimension K (codes).

Noise schedule of the diffusion, and the timesteps that a sampler visits.

Diffusion of the edges into a new layer, over all pairs of an earlier and a new node.

How many nodes the next layer has, 0 for stop.

Diffusion of the attributes of a new layer's nodes, with the in-degree as one more attribute.

Shape letters: A node attributes, D width of a state, I prefixes, K codes, N nodes, P pairs, R rows,
S diffusion steps, V edges among rows, W new nodes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.base import LossTerm
from layerdag.models.conditions import Conditions
from layerdag.models.config import EdgeConfig, LayerSizeConfig, NodeConfig
from layerdag.models.draws import sample_categorical
from layerdag.models.layers import MLP, Linear, SegmentAttention, Segments, gather_rows, sinusoids
from layerdag.models.reference.encoder import (
    PrefixEncoder,
    PrefixGraphs,
    PrefixNodeEncoder,
    code_embedding,
)


class DegreeCodes(nn.Module):
    """The table of in-degrees and the way there and back.

    A trace may have a node with hundreds of parents and yet few distinct in-degrees.

    Args:
        statistics: Of the training graphs.
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


def add_noise(
    x_0: Int[Tensor, "*shape"],
    alpha_bar: Float[Tensor, " *#shape"],
    marginal_K: Float[Tensor, "*#shape K"],
    uniform_2: Float[Tensor, "*shape 2"],
) -> Int[Tensor, "*shape"]:
    """Sample the noisy code x_t from q(x_t | x_0).

    Args:
        x_0: int64 clean codes of shape (...).
        alpha_bar: Probability that the code is kept until t, broadcastable to (...).
        marginal_K: Distribution of the noise, broadcastable to (..., K).
        uniform_2: In (0, 1), shape (..., 2): one decides on keeping, one samples the noise.
    """
    noise = sample_categorical(
        marginal_K.expand(*x_0.shape, marginal_K.shape[-1]), uniform_2[..., 1]
    )
    return torch.where(uniform_2[..., 0] < alpha_bar, x_0, noise)


def forward_distribution(
    x_0: Int[Tensor, "*shape"],
    alpha_bar: Float[Tensor, " *#shape"],
    marginal_K: Float[Tensor, "*#shape K"],
) -> Float[Tensor, "*shape K"]:
    """Return q(x_t | x_0) as probabilities of shape (..., K)."""
    alpha_bar = alpha_bar.unsqueeze(-1)
    return alpha_bar * _one_hot(x_0, marginal_K) + (1 - alpha_bar) * marginal_K


def reverse_distribution(
    predicted_K: Float[Tensor, "*shape K"],
    x_t: Int[Tensor, "*shape"],
    marginal_K: Float[Tensor, "*#shape K"],
    alpha_bar_t: Float[Tensor, " *#shape"],
    alpha_bar_s: Float[Tensor, " *#shape"],
) -> Float[Tensor, "*shape K"]:
    """Return p(x_s | x_t) for s < t, given the predicted p(x_0 | x_t).

    This is the mean over x_0 of q(x_s | x_t, x_0), in time linear in K: the posterior of each x_0
    has the same numerator but for its normalizer q(x_t | x_0). At s = 0 it returns ``predicted_K``:
    no noise remains.

    Args:
        predicted_K: Probabilities of the clean code, shape (..., K).
        x_t: int64 code at time t, shape (...).
        marginal_K: Distribution of the noise, broadcastable to (..., K).
        alpha_bar_t: ``alpha_bar`` at t, broadcastable to (...).
        alpha_bar_s: ``alpha_bar`` at s, larger.

    Returns:
        Unnormalized probabilities of shape (..., K).
    """
    alpha_bar_t, alpha_bar_s = alpha_bar_t.unsqueeze(-1), alpha_bar_s.unsqueeze(-1)
    marginal_K = marginal_K.expand_as(predicted_K)
    observed_K = _one_hot(x_t, predicted_K)
    observed_mass = marginal_K.gather(-1, x_t.unsqueeze(-1))
    # q(x_t | x_0) and q(x_t | x_s), each as a function of its condition.
    likelihood_x0_K = alpha_bar_t * observed_K + (1 - alpha_bar_t) * observed_mass
    step = alpha_bar_t / alpha_bar_s
    likelihood_xs_K = step * observed_K + (1 - step) * observed_mass
    weight_K = torch.where(likelihood_x0_K > 0, predicted_K / likelihood_x0_K, 0.0)
    next_K = alpha_bar_s * weight_K + (1 - alpha_bar_s) * marginal_K * weight_K.sum(
        -1, keepdim=True
    )
    return likelihood_xs_K * next_K


def _one_hot(
    code: Int[Tensor, "*shape"], like_K: Float[Tensor, "... K"]
) -> Float[Tensor, "*shape K"]:
    """Return ``code`` as 0 and 1 of shape (..., K)."""
    classes_K = torch.arange(like_K.shape[-1], device=code.device)
    return (code.unsqueeze(-1) == classes_K).to(like_K.dtype)


_OFFSET = 0.008


def cosine_alpha_bar(steps: int) -> Float[Tensor, " S"]:
    """Return alpha_bar, the probability that a value is kept until time t, for t = 0..steps.

    The cosine schedule of Nichol and Dhariwal (arXiv 2102.09672, eq. 17): 1 at t = 0 and exactly 0
    at t = ``steps``, so that the last noisy value carries no information.

    Returns:
        float64 of shape (steps + 1,), strictly decreasing.
    """
    time_S = torch.arange(steps + 1, dtype=torch.float64) / steps
    alpha_bar_S = torch.cos((time_S + _OFFSET) / (1 + _OFFSET) * math.pi / 2) ** 2
    alpha_bar_S = alpha_bar_S / alpha_bar_S[0]
    alpha_bar_S[-1] = 0.0
    return alpha_bar_S


def strided_timesteps(steps: int, stride_steps: int | None) -> list[int]:
    """Return the timesteps that a sampler visits, from ``steps`` down to 0.

    Args:
        steps: Number of timesteps in training.
        stride_steps: Number of denoising steps; None or more than ``steps`` takes all.
    """
    wanted = steps if stride_steps is None else max(1, min(stride_steps, steps))
    return [round(steps * (wanted - i) / wanted) for i in range(wanted + 1)]


# Where all candidates are parents, the marginal of an edge stays below 1.
_MAX_MARGINAL = 0.9


@dataclass(frozen=True, eq=False)
class Pairs:
    """Candidate edges of Q pairs, ordered by new node."""

    source_P: Int[Tensor, " P"]  # row of the earlier node
    target_P: Int[Tensor, " P"]  # row of the new node
    new_P: Int[Tensor, " P"]  # number of the new node, ascending from 0
    prefix_P: Int[Tensor, " P"]
    latest_P: Bool[Tensor, " P"]  # whether the source lies in the layer right before
    in_degree_W: Int[Tensor, " W"]
    candidates_W: Int[Tensor, " W"]  # number of earlier nodes of each new node


class EdgeDenoiser(nn.Module):
    """Predicts the clean state of each pair: 0 for no edge, else the edge type plus 1.

    The in-degree d of a new node is known when its edges are drawn (it is drawn with the node's
    attributes). So the noise of its P pairs is "an edge" with probability d / P: at any time the
    expected in-degree is the true one.

    Args:
        sizes: Of the data set.
        statistics: Of the training graphs.
        cardinalities: Number of codes of each node column, in-degree included.
        config: Width F, rounds and steps T.
    """

    type_fraction_K: Tensor
    alpha_bar_S: Tensor

    def __init__(
        self,
        sizes: GraphSizes,
        statistics: GraphStatistics,
        cardinalities: tuple[int, ...],
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
        total = sum(statistics.edge_types) + sizes.edge_types
        shares = [(count + 1) / total for count in statistics.edge_types]
        self.register_buffer("type_fraction_K", torch.tensor(shares), persistent=False)
        self.register_buffer("alpha_bar_S", cosine_alpha_bar(self.steps).float(), persistent=False)

    def forward(
        self,
        partial: PrefixGraphs,
        conditions: Conditions,
        pairs: Pairs,
        xt_P: Int[Tensor, " P"],
        time_I: Int[Tensor, " I"],
    ) -> Float[Tensor, "P K"]:
        """Return logits of the clean state of each pair, shape (Q, 1 + edge types).

        Args:
            partial: Prefixes with the new nodes (distance 0) and the known edges.
            conditions: Conditions of the graphs.
            pairs: The candidates.
            xt_P: Their noisy states.
            time_I: Timestep of each prefix, 1..T.
        """
        rows_RD = self.encoder(self._with_noisy_edges(partial, pairs, xt_P), conditions)
        fraction_I = time_I.to(rows_RD) / self.steps
        time_ID = self.time(sinusoids(1000 * fraction_I, rows_RD.shape[1]))
        target_RD = self.from_target(rows_RD) + gather_rows(time_ID, partial.prefix_R)
        hidden_PD = (
            gather_rows(self.from_source(rows_RD), pairs.source_P)
            + gather_rows(target_RD, pairs.target_P)
            + self.states(xt_P)
        )
        return self.head(F.gelu(hidden_PD))

    def marginals(self, pairs: Pairs) -> Float[Tensor, "W K"]:
        """Return the noise distribution of the pairs of each new node, shape (W, 1 + types)."""
        mean_W = pairs.in_degree_W.to(self.type_fraction_K) / pairs.candidates_W
        edge_W1 = mean_W.clamp(max=_MAX_MARGINAL).unsqueeze(1)
        return torch.cat([1 - edge_W1, edge_W1 * self.type_fraction_K], dim=1)

    def loss(
        self,
        partial: PrefixGraphs,
        conditions: Conditions,
        pairs: Pairs,
        x0_P: Int[Tensor, " P"],
        generator: torch.Generator,
    ) -> LossTerm:
        """Return the cross entropy of the clean states at a random timestep, by new node."""
        items, device = partial.graph_I.numel(), x0_P.device
        time_I = torch.randint(1, self.steps + 1, (items,), generator=generator, device=device)
        uniform_P2 = torch.rand(x0_P.numel(), 2, generator=generator, device=device)
        alpha_bar_P = self.alpha_bar_S[time_I[pairs.prefix_P]]
        xt_P = add_noise(x0_P, alpha_bar_P, self.marginals(pairs)[pairs.new_P], uniform_P2)
        logits_PK = self(partial, conditions, pairs, xt_P, time_I)
        total = F.cross_entropy(logits_PK, x0_P, reduction="sum")
        return LossTerm(total, torch.tensor(pairs.in_degree_W.numel(), device=device))

    def _with_noisy_edges(
        self, partial: PrefixGraphs, pairs: Pairs, xt_P: Int[Tensor, " P"]
    ) -> PrefixGraphs:
        edges_P = xt_P > 0
        noisy_2V = torch.stack([pairs.source_P[edges_P], pairs.target_P[edges_P]])
        kind_V = xt_P[edges_P] - 1 + self.edge_types
        return replace(
            partial,
            edge_index_2V=torch.cat([partial.edge_index_2V, noisy_2V], dim=1),
            edge_kind_V=torch.cat([partial.edge_kind_V, kind_V]),
        )


class LayerSizeNet(nn.Module):
    """A classifier over the sizes 0..S seen in training, and a tail beyond the largest.

    The tail has the probability that the rule of succession gives to a record, 1 / (layers + 1),
    and a geometric excess whose mean is the mean layer size. So no width is impossible, and the
    likelihood of any graph is finite.

    Args:
        sizes: Of the data set.
        statistics: Of the training graphs.
        cardinalities: Number of codes of each node column, in-degree included.
        config: Width and rounds.
    """

    def __init__(
        self,
        sizes: GraphSizes,
        statistics: GraphStatistics,
        cardinalities: tuple[int, ...],
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
        """Return logits of the sizes 0..S, shape (I, S + 1)."""
        return self.head(self.encoder(partial, conditions))

    def log_probability(
        self, logits_IK: Float[Tensor, "I K"], size_I: Int[Tensor, " I"]
    ) -> Float[Tensor, " I"]:
        """Return log p(size) of each prefix, nats, shape (I,)."""
        fraction, stop = (
            torch.tensor(self.tail_probability),
            torch.tensor(self.tail_stop_probability),
        )
        inner_IK = logits_IK.log_softmax(-1) + torch.log1p(-fraction)
        inner_I = inner_IK.gather(1, size_I.clamp(max=self.largest).unsqueeze(1)).squeeze(1)
        excess_I = (size_I - self.largest - 1).clamp(min=0)
        tail_I = fraction.log() + stop.log() + excess_I * torch.log1p(-stop)
        return torch.where(size_I <= self.largest, inner_I, tail_I)

    def sample(
        self, logits_IK: Float[Tensor, "I K"], uniform_I2: Float[Tensor, "I 2"]
    ) -> Int[Tensor, " I"]:
        """Sample a size for each prefix.

        Args:
            logits_IK: From ``forward``; minus infinity forbids a size.
            uniform_I2: In (0, 1).
        """
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
        """Return the new rows, shape (R, F)."""
        rows_RD = rows_RD + self.attention(self.attention_norm(rows_RD), segments)
        return rows_RD + self.mlp(self.mlp_norm(rows_RD))


class NodeDenoiser(nn.Module):
    """Predicts the clean attributes of the new nodes from noisy ones and the prefix.

    Each of the A attributes is noised on its own toward its training marginal (with one added
    count a code, so that no code is impossible).

    Args:
        sizes: Of the data set.
        counts: Number of training nodes with each code, of each node column (in-degree included).
        config: Width F, depths, heads and steps T.
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
        marginal_AK = _marginals(counts)
        self.register_buffer("marginal_AK", marginal_AK, persistent=False)
        self.register_buffer("allowed_AK", marginal_AK > 0, persistent=False)
        self.register_buffer("alpha_bar_S", cosine_alpha_bar(self.steps).float(), persistent=False)

    def times(self, time_I: Int[Tensor, " I"]) -> Float[Tensor, "I D"]:
        """Return what the times 1..T add to the state of a prefix, shape (I, F)."""
        width = self.encoder.width
        return self.time(sinusoids(1000 * time_I.to(self.encoder.start) / self.steps, width))

    def forward(
        self, prefix_ID: Float[Tensor, "I D"], xt_RA: Int[Tensor, "R A"], segments: Segments
    ) -> Float[Tensor, "R A K"]:
        """Return logits of the clean codes.

        Args:
            prefix_ID: State of each prefix (``encoder``) plus its ``times``.
            xt_RA: Noisy codes of the new nodes.
            segments: The new nodes of each item.

        Returns:
            Shape (R, A, K); minus infinity for codes that an attribute does not have.
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
        """Return the cross entropy of the clean codes at a random time per item."""
        items, device = state_ID.shape[0], state_ID.device
        time_I = torch.randint(1, self.steps + 1, (items,), generator=generator, device=device)
        uniform_RA2 = torch.rand(*x0_RA.shape, 2, generator=generator, device=device)
        time_R = torch.repeat_interleave(time_I, ptr.diff(), output_size=x0_RA.shape[0])
        alpha_bar_R1 = self.alpha_bar_S[time_R].unsqueeze(-1)
        xt_RA = add_noise(x0_RA, alpha_bar_R1, self.marginal_AK, uniform_RA2)
        logits_RAK = self(state_ID + self.times(time_I), xt_RA, Segments.from_ptr(ptr))
        total = F.cross_entropy(logits_RAK.flatten(0, 1), x0_RA.flatten(), reduction="sum")
        return LossTerm(total, torch.tensor(x0_RA.numel(), device=device))


def _marginals(columns: Sequence[Sequence[int]]) -> Float[Tensor, "A K"]:
    """Return the smoothed frequency of each code, 0 for codes that do not exist, shape (A, K)."""
    width = max(map(len, columns))
    rows = []
    for counts in columns:
        total = sum(counts) + len(counts)
        row = [(count + 1) / total for count in counts]
        rows.append(row + [0.0] * (width - len(row)))
    return torch.tensor(rows)
