"""Diffusion of the edges into a new layer, over all pairs of an earlier and a new node.

Shape letters: D width of a state, I prefixes, K codes, P pairs, R rows (nodes of the prefixes, end
to end), S diffusion steps, V edges among rows, W new nodes.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from layerdag.graph import GraphSizes, GraphStatistics
from layerdag.models import Conditions, LossTerm
from layerdag.models.diffusion._config import EdgeConfig
from layerdag.models.diffusion._encoder import PrefixGraphs, PrefixNodeEncoder
from layerdag.models.diffusion.process import add_noise, cosine_alpha_bar
from layerdag.models.layers import MLP, gather_rows, sinusoids

# Where all candidates are parents, the marginal of an edge stays below 1.
_MAX_MARGINAL = 0.9


@dataclass(frozen=True, eq=False)
class Pairs:
    """Candidate edges of Q pairs, ordered by new node.

    Attributes:
        source_P: Row of the earlier node.
        target_P: Row of the new node.
        new_P: Number of the new node, ascending from 0.
        prefix_P: Prefix of the pair.
        latest_P: Whether the source lies in the layer right before.
        in_degree_W: In-degree of each new node.
        candidates_W: Number of earlier nodes of each new node.
    """

    source_P: Int[Tensor, " P"]
    target_P: Int[Tensor, " P"]
    new_P: Int[Tensor, " P"]
    prefix_P: Int[Tensor, " P"]
    latest_P: Bool[Tensor, " P"]
    in_degree_W: Int[Tensor, " W"]
    candidates_W: Int[Tensor, " W"]


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
        self.from_source = nn.Linear(width, width, bias=False)
        self.from_target = nn.Linear(width, width)
        self.time = MLP(width, width, width)
        self.states = nn.Embedding(1 + sizes.edge_types, width)
        self.head = nn.Linear(width, 1 + sizes.edge_types)
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
        """Return ``partial`` with the noisy edges added, as kinds of their own."""
        edges_P = xt_P > 0
        noisy_2V = torch.stack([pairs.source_P[edges_P], pairs.target_P[edges_P]])
        kind_V = xt_P[edges_P] - 1 + self.edge_types
        return replace(
            partial,
            edge_index_2V=torch.cat([partial.edge_index_2V, noisy_2V], dim=1),
            edge_kind_V=torch.cat([partial.edge_kind_V, kind_V]),
        )
