"""Diffusion of the edges into a new layer, over all pairs of an earlier and a new node.

Shape letters: Q pairs, W new nodes, R rows (nodes of the prefixes, end to end), I prefixes, P known
edges, K states or edge types, T timesteps, F features.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
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
        source_Q: Row of the earlier node.
        target_Q: Row of the new node.
        new_Q: Number of the new node, ascending from 0.
        prefix_Q: Prefix of the pair.
        latest_Q: Whether the source lies in the layer right before.
        in_degree_W: In-degree of each new node.
        candidates_W: Number of earlier nodes of each new node.
    """

    source_Q: Tensor
    target_Q: Tensor
    new_Q: Tensor
    prefix_Q: Tensor
    latest_Q: Tensor
    in_degree_W: Tensor
    candidates_W: Tensor


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
    alpha_bar_T: Tensor

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
        self.register_buffer("alpha_bar_T", cosine_alpha_bar(self.steps).float(), persistent=False)

    def forward(
        self,
        partial: PrefixGraphs,
        conditions: Conditions,
        pairs: Pairs,
        xt_Q: Tensor,
        time_I: Tensor,
    ) -> Tensor:
        """Return logits of the clean state of each pair, shape (Q, 1 + edge types).

        Args:
            partial: Prefixes with the new nodes (distance 0) and the known edges.
            conditions: Conditions of the graphs.
            pairs: The candidates.
            xt_Q: Their noisy states.
            time_I: Timestep of each prefix, 1..T.
        """
        rows_RF = self.encoder(self._with_noisy_edges(partial, pairs, xt_Q), conditions)
        fraction_I = time_I.to(rows_RF) / self.steps
        time_IF = self.time(sinusoids(1000 * fraction_I, rows_RF.shape[1]))
        target_RF = self.from_target(rows_RF) + gather_rows(time_IF, partial.prefix_R)
        hidden_QF = (
            gather_rows(self.from_source(rows_RF), pairs.source_Q)
            + gather_rows(target_RF, pairs.target_Q)
            + self.states(xt_Q)
        )
        return self.head(F.gelu(hidden_QF))

    def marginals(self, pairs: Pairs) -> Tensor:
        """Return the noise distribution of the pairs of each new node, shape (W, 1 + types)."""
        mean_W = pairs.in_degree_W.to(self.type_fraction_K) / pairs.candidates_W
        edge_W1 = mean_W.clamp(max=_MAX_MARGINAL).unsqueeze(1)
        return torch.cat([1 - edge_W1, edge_W1 * self.type_fraction_K], dim=1)

    def loss(
        self,
        partial: PrefixGraphs,
        conditions: Conditions,
        pairs: Pairs,
        x0_Q: Tensor,
        generator: torch.Generator,
    ) -> LossTerm:
        """Return the cross entropy of the clean states at a random timestep, by new node."""
        items, device = partial.graph_I.numel(), x0_Q.device
        time_I = torch.randint(1, self.steps + 1, (items,), generator=generator, device=device)
        uniform_Q2 = torch.rand(x0_Q.numel(), 2, generator=generator, device=device)
        alpha_bar_Q = self.alpha_bar_T[time_I[pairs.prefix_Q]]
        xt_Q = add_noise(x0_Q, alpha_bar_Q, self.marginals(pairs)[pairs.new_Q], uniform_Q2)
        logits_QK = self(partial, conditions, pairs, xt_Q, time_I)
        total = F.cross_entropy(logits_QK, x0_Q, reduction="sum")
        return LossTerm(total, torch.tensor(pairs.in_degree_W.numel(), device=device))

    def _with_noisy_edges(self, partial: PrefixGraphs, pairs: Pairs, xt_Q: Tensor) -> PrefixGraphs:
        """Return ``partial`` with the noisy edges added, as kinds of their own."""
        edges_Q = xt_Q > 0
        noisy_2P = torch.stack([pairs.source_Q[edges_Q], pairs.target_Q[edges_Q]])
        kind_P = xt_Q[edges_Q] - 1 + self.edge_types
        return replace(
            partial,
            edge_index_2P=torch.cat([partial.edge_index_2P, noisy_2P], dim=1),
            edge_kind_P=torch.cat([partial.edge_kind_P, kind_P]),
        )
