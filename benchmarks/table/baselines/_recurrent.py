"""A recurrent network over nodes, and one over the edges of each (GraphRNN, You et al., ICML 2018).

Nodes come in layer order. The first network reads a node's kind and edges and predicts the kind of
the next one, or the end; the second then draws its edges from the nearest earlier node on, each
given those before it and the kind of the node at its other end.

Shape letters: B graphs, D width, N nodes, R rows (a graph and a node).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.runtime.rng import derive_seed, numpy_generator

from ._base import Orders, dag_of, graphs_within, most_nodes, padded, parameters_of, train


class Recurrent(nn.Module):
    """The two networks.

    Args:
        kinds: Number of kinds; one more code is the end.
        length: Nodes of a graph at most.
        width: Of the first network's state.
        edge_width: Of the second's.
    """

    def __init__(self, kinds: int, length: int, width: int, edge_width: int) -> None:
        super().__init__()
        self.kinds, self.length = kinds, length
        self.kind = nn.Embedding(kinds + 1, width)
        self.row = nn.Linear(length, width, bias=False)
        self.nodes = nn.GRU(width, width, batch_first=True)
        self.next_kind = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.Linear(width, kinds + 1)
        )
        self.start_edges = nn.Linear(width, edge_width)
        self.own_kind = nn.Embedding(kinds, edge_width)
        self.candidate = nn.Embedding(2 * kinds, edge_width)
        self.edges = nn.GRU(edge_width, edge_width, batch_first=True)
        self.is_edge = nn.Linear(edge_width, 1)

    def forward(self, kind_BN: Tensor, edge_BNN: Tensor, mask_BN: Tensor) -> Tensor:
        """Return the negative log-likelihood of graphs, mean per node."""
        batch, length = kind_BN.shape
        input_BND = self.kind(kind_BN) + self.row(F.pad(edge_BNN, (0, self.length - length)))
        start_BD = self.kind.weight[self.kinds].expand(batch, 1, -1)
        state_BND, _ = self.nodes(torch.cat([start_BD, input_BND], dim=1))
        target_BN = torch.cat([kind_BN.masked_fill(~mask_BN, self.kinds), kind_BN[:, :1]], dim=1)
        target_BN[:, -1] = self.kinds
        counted_BN = F.pad(mask_BN, (1, 0), value=True)
        logits = self.next_kind(state_BND)[counted_BN]
        loss = F.cross_entropy(logits, target_BN[counted_BN], reduction="sum")
        graph_R, node_R = mask_BN.nonzero(as_tuple=True)
        state_RD = state_BND[graph_R, node_R]
        loss = loss + self._edge_loss(state_RD, (graph_R, node_R), kind_BN, edge_BNN)
        return loss / mask_BN.sum()

    def _edge_loss(
        self, state_RD: Tensor, rows: tuple[Tensor, Tensor], kind_BN: Tensor, edge_BNN: Tensor
    ) -> Tensor:
        """Return the loss of all edges, each node's candidates from the nearest on."""
        graph_R, node_R = rows
        offset_N = torch.arange(1, kind_BN.shape[1])
        candidate_RN = node_R[:, None] - offset_N
        valid_RN = candidate_RN >= 0
        safe_RN = candidate_RN.clamp(min=0)
        edge_RN = edge_BNN[graph_R, node_R].gather(1, safe_RN) * valid_RN
        before_RN = F.pad(edge_RN, (1, 0))[:, :-1]
        code_RN = kind_BN[graph_R].gather(1, safe_RN) + self.kinds * before_RN.long()
        start_RD = self.start_edges(state_RD) + self.own_kind(kind_BN[graph_R, node_R])
        output_RND, _ = self.edges(self.candidate(code_RN), start_RD[None])
        logits_RN = self.is_edge(output_RND)[..., 0]
        return F.binary_cross_entropy_with_logits(
            logits_RN[valid_RN], edge_RN[valid_RN], reduction="sum"
        )

    @torch.inference_mode()
    def draw(self, num: int, generator: torch.Generator) -> list[DAG | None]:
        """Return sampled graphs; one that reaches the largest size is cut there."""
        kind_BN = torch.zeros(num, self.length, dtype=torch.int64)
        edge_BNN = torch.zeros(num, self.length, self.length)
        size_B = torch.full((num,), self.length)
        state: Tensor | None = None
        input_BD = self.kind.weight[self.kinds].expand(num, -1)
        for node in range(self.length):
            output, state = self.nodes(input_BD[:, None], state)
            kind_B = _draw(self.next_kind(output[:, 0]), generator)
            ends_B = (kind_B == self.kinds) & (size_B == self.length)
            size_B[ends_B] = node
            if bool((size_B < self.length).all()):
                break
            kind_BN[:, node] = kind_B.clamp(max=self.kinds - 1)
            self._draw_edges(output[:, 0], node, kind_BN, edge_BNN, generator)
            input_BD = self.kind(kind_BN[:, node]) + self.row(edge_BNN[:, node])
        return [dag_of(kind_BN[i, :n], edge_BNN[i, :n, :n]) for i, n in enumerate(size_B.tolist())]

    def _draw_edges(
        self,
        state_BD: Tensor,
        node: int,
        kind_BN: Tensor,
        edge_BNN: Tensor,
        generator: torch.Generator,
    ) -> None:
        """Draw the edges of a node into ``edge_BNN``."""
        state = (self.start_edges(state_BD) + self.own_kind(kind_BN[:, node]))[None]
        before_B = torch.zeros(kind_BN.shape[0], dtype=torch.int64)
        for candidate in range(node - 1, -1, -1):
            code_B = kind_BN[:, candidate] + self.kinds * before_B
            output, state = self.edges(self.candidate(code_B)[:, None], state)
            chance_B = torch.sigmoid(self.is_edge(output[:, 0])[:, 0])
            before_B = (torch.rand(chance_B.shape, generator=generator) < chance_B).long()
            edge_BNN[:, node, candidate] = before_B.float()


def _draw(logits_BK: Tensor, generator: torch.Generator) -> Tensor:
    return torch.multinomial(logits_BK.softmax(-1), 1, generator=generator)[:, 0]


class FittedRecurrent:
    """A trained pair of networks."""

    def __init__(self, model: Recurrent, steps: int) -> None:
        self.model, self.steps, self.parameters = model, steps, parameters_of(model)

    def sample(self, num: int, seed: int) -> list[DAG | None]:
        """Return graphs."""
        generator = torch.Generator().manual_seed(derive_seed(seed, "recurrent"))
        return self.model.draw(num, generator)


def fit_recurrent(
    data: GraphDataset,
    seconds: float,
    seed: int,
    *,
    width: int = 96,
    edge_width: int = 48,
    learning_rate: float = 3e-3,
    batch: int = 16,
    **settings: Any,
) -> FittedRecurrent:
    """Train the networks."""
    torch.manual_seed(derive_seed(seed, "recurrent"))
    kinds = data.schema.sizes().attributes[0]
    model = Recurrent(kinds, most_nodes(data), width, edge_width)
    orders = Orders(data.graphs["train"], numpy_generator(seed, "recurrent"))
    count = graphs_within(data, batch)

    def loss() -> Tensor:
        dags = orders.draw(count)
        found: Tensor = model(*padded(dags, max(dag.num_nodes for dag in dags)))
        return found

    return FittedRecurrent(model, train(model, loss, seconds, learning_rate))
