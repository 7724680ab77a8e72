"""A message-passing regressor over PyTorch Geometric batches.

It shares its pooling with the posterior (``layerdag.models.Posterior``) and nothing else, on
purpose. The posterior chooses among candidate graphs while they are sampled; a surrogate of the
same architecture would favor what that choice favors, and no longer measure from outside how useful
the samples are. It also reads positions inside bins, which a posterior over codes does not have.

Shape letters: B graphs, D width of a state, E edges, N nodes, T targets.
"""

from abc import ABC, abstractmethod
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINEConv

from layerdag.graph import GraphSizes
from layerdag.models.layers import segment_log_sum_exp, segment_max, segment_mean


class _Round(nn.Module):
    """One round of messages along the edges and against them, with a residual and a norm.

    Graph isomorphism with edge features (Hu et al., ICLR 2020) for either direction.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = bidirectional(width)
        self.norm = nn.LayerNorm(width)

    def forward(
        self,
        h_ND: Float[Tensor, "N D"],
        edge_index_2E: Int[Tensor, "2 E"],
        edge_ED: Float[Tensor, "E D"],
    ) -> Float[Tensor, "N D"]:
        """Return updated node states."""
        heard_ND = self.down(h_ND, edge_index_2E, edge_ED) + self.up(h_ND, edge_index_2E, edge_ED)
        return self.norm(h_ND + heard_ND)


class GraphNetwork(nn.Module, ABC):
    """A network that maps a PyG batch to a standardized number for each graph and target."""

    @abstractmethod
    def forward(self, batch: Batch) -> Float[Tensor, "B ..."]:
        """Return standardized predictions, shape (B,), or (B, T) of several targets."""

    def prepared(self, data: Data) -> Data:
        """Return a graph with what the network would otherwise find anew in every batch."""
        return data


class MessagePassingNetwork(GraphNetwork):
    """Maps a batch of graphs to a standardized number for each of its targets.

    Nodes start as the sum of the embeddings of their attribute codes and a linear map of their
    positions inside the bins. The pooling joins mean, maximum and log-sum-exp: the last is a sum in
    the log domain, as a step time is the sum of its operators' times.

    Args:
        sizes: Number of codes of each attribute and of edge types.
        width: Number of features of a node.
        rounds: Number of message-passing rounds.
        outputs: Number of targets.
    """

    def __init__(
        self, sizes: GraphSizes, width: int = 64, rounds: int = 3, outputs: int = 1
    ) -> None:
        super().__init__()
        self.embed_attribute = nn.ModuleList(nn.Embedding(k, width) for k in sizes.attributes)
        self.embed_position = nn.Linear(len(sizes.attributes), width)
        self.embed_edge_type = nn.Embedding(sizes.edge_types, width)
        self.rounds = nn.ModuleList(_Round(width) for _ in range(rounds))
        self.head = two_layers(3 * width, width, out=outputs)

    def forward(self, batch: Batch) -> Float[Tensor, "B ..."]:
        """Return standardized predictions, shape (B,), or (B, T) of several targets.

        Args:
            batch: PyG batch with ``x`` int64 (N, A), ``u`` float32 (N, A), ``edge_index`` (2, E),
                ``edge_attr`` int64 (E, 1) and ``batch`` (N,), as ``layerdag.datasets.to_pyg`` makes
                them.
        """
        h_ND = self.embed_position(batch.u)
        for column, table in enumerate(self.embed_attribute):
            h_ND = h_ND + table(batch.x[:, column])
        edge_ED = self.embed_edge_type(batch.edge_attr[:, 0])
        for step in self.rounds:
            h_ND = step(h_ND, batch.edge_index, edge_ED)
        return cast(Tensor, self.head(pooled(h_ND, batch))).squeeze(1)


def bidirectional(width: int) -> tuple[GINEConv, GINEConv]:
    """Return messages along the edges and against them (Hu et al., ICLR 2020)."""
    down = GINEConv(two_layers(width, width))
    return down, GINEConv(two_layers(width, width), flow="target_to_source")


def pooled(h_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "B {3*h_ND.shape[1]}"]:
    """Return mean, maximum and log-sum-exp over the nodes of each graph."""
    mean_BD = segment_mean(h_ND, batch.batch, batch.ptr.diff())
    max_BD = segment_max(h_ND, batch.batch, mean_BD.shape[0])
    log_sum_BD = segment_log_sum_exp(h_ND, batch.batch, max_BD)
    return torch.cat([mean_BD, max_BD, log_sum_BD], dim=1)


def two_layers(width_in: int, width: int, out: int | None = None) -> nn.Sequential:
    """Return linear, ReLU, linear."""
    return nn.Sequential(
        nn.Linear(width_in, width), nn.ReLU(), nn.Linear(width, width if out is None else out)
    )
