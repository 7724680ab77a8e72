"""The decoder of D-VAE: nodes one by one, each with its kind and then its edges.

Shape letters: B graphs, C kinds and the end, D width, E edges, L length of a draw, M nodes of all
graphs, N nodes, P pairs, Z code.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.dag.dag import DAG

from ._base import dag_of, padded
from ._gated import Flat, GatedUnit


class Decoder(nn.Module):
    """Likelihood of graphs, and graphs, given codes."""

    def __init__(self, kinds: int, width: int, code: int) -> None:
        super().__init__()
        self.kinds, self.width = kinds, width
        self.start = nn.Sequential(nn.Linear(code, width), nn.Tanh())
        self.unit = GatedUnit(kinds, width)
        self.next_kind = nn.Sequential(
            nn.Linear(3 * width + 1, width), nn.GELU(), nn.Linear(width, kinds + 1)
        )
        self.child, self.parent = nn.Linear(width, width), nn.Linear(width, width)
        self.is_edge = nn.Sequential(nn.GELU(), nn.Linear(width, 1))

    def loss(self, dags: Sequence[DAG], flat: Flat, code_BZ: Tensor) -> Tensor:
        """Return the negative log-likelihood, mean per node."""
        start_BD = self.start(code_BZ)
        state_MD = self.unit.states(flat, start_BD.index_select(0, flat.graph_M))
        padding = padded(dags, max(dag.num_nodes for dag in dags))
        loss = self._kind_loss(state_MD, start_BD, padding[0], padding[2])
        loss = loss + self._edge_loss(state_MD, start_BD, flat, padding[1], padding[2])
        return loss / len(state_MD)

    def _kind_loss(
        self, state_MD: Tensor, start_BD: Tensor, kind_BN: Tensor, mask_BN: Tensor
    ) -> Tensor:
        """Return the loss of all kinds and ends."""
        state_BND = torch.zeros(*mask_BN.shape, self.width).index_put(
            mask_BN.nonzero(as_tuple=True), state_MD
        )
        last_BND = torch.cat([start_BD[:, None], state_BND], dim=1)
        sum_BND = F.pad(state_BND.cumsum(1), (0, 0, 1, 0))
        count_N = torch.arange(last_BND.shape[1])
        logits_BNC = self._kind_logits(last_BND, sum_BND, count_N[:, None], start_BD[:, None])
        target_BN = F.pad(kind_BN.masked_fill(~mask_BN, self.kinds), (0, 1), value=self.kinds)
        counted_BN = F.pad(mask_BN, (1, 0), value=True)
        return F.cross_entropy(logits_BNC[counted_BN], target_BN[counted_BN], reduction="sum")

    def _kind_logits(self, last: Tensor, total: Tensor, count: Tensor, start: Tensor) -> Tensor:
        parts = [last, total / count.clamp(min=1), start.expand_as(last)]
        count = (count / 50.0).expand(*last.shape[:-1], 1)
        logits: Tensor = self.next_kind(torch.cat([*parts, count], dim=-1))
        return logits

    def _edge_loss(
        self, state_MD: Tensor, start_BD: Tensor, flat: Flat, edge_BNN: Tensor, mask_BN: Tensor
    ) -> Tensor:
        """Return the loss of all pairs: a node's state has only the edges that were drawn before.

        With k parents a node has k + 1 states, which many pairs share.
        """
        source_E, target_E = flat.edge_index_2E  # by target, the nearest parent first
        parents_M = torch.bincount(target_E, minlength=len(state_MD))
        first_M = parents_M.cumsum(0) - parents_M
        # index_select and not [...]: its gradient is many times faster on processors.
        message_ED = self.unit.message(state_MD).index_select(0, source_E)
        total_ED = F.pad(message_ED.cumsum(0), (0, 0, 1, 0))
        into_MD = start_BD.index_select(0, flat.graph_M)
        into_ED = total_ED[1:] - total_ED.index_select(0, first_M[target_E])
        into_ED = into_ED + into_MD.index_select(0, target_E)
        kinds = torch.cat([flat.kind_M, flat.kind_M[target_E]])
        child = self.child(self.unit(kinds, torch.cat([into_MD, into_ED])))
        parent_MD = self.parent(state_MD)
        graph_P, node_P, other_P = _pairs(mask_BN).nonzero(as_tuple=True)
        first_B = F.pad(mask_BN.sum(1).cumsum(0), (1, 0))
        row_P = first_B[graph_P] + node_P
        drawn_BNN = (edge_BNN.flip(2).cumsum(2).flip(2) - edge_BNN).long()
        drawn_P = drawn_BNN[graph_P, node_P, other_P]
        state_P = torch.where(drawn_P == 0, row_P, len(state_MD) + first_M[row_P] + drawn_P - 1)
        pair_PD = child.index_select(0, state_P)
        pair_PD = pair_PD + parent_MD.index_select(0, first_B[graph_P] + other_P)
        logits_P = self.is_edge(pair_PD)[:, 0]
        edge_P = edge_BNN[graph_P, node_P, other_P]
        return F.binary_cross_entropy_with_logits(logits_P, edge_P, reduction="sum")

    @torch.inference_mode()
    def draw(self, code_BZ: Tensor, length: int, generator: torch.Generator) -> list[DAG | None]:
        """Return a graph for each code; None where the end did not come in time."""
        start_BD = self.start(code_BZ)
        size_B = torch.full((len(code_BZ),), -1)
        kind_BL = torch.zeros(len(code_BZ), length, dtype=torch.int64)
        edge_BLL = torch.zeros(len(code_BZ), length, length, dtype=torch.bool)
        state_BLD = torch.zeros(len(code_BZ), length, self.width)
        last_BD, total_BD = start_BD, torch.zeros_like(start_BD)
        for node in range(length):
            count = torch.tensor([float(node)])
            logits_BC = self._kind_logits(last_BD, total_BD, count, start_BD)
            kind_B = torch.multinomial(logits_BC.softmax(-1), 1, generator=generator)[:, 0]
            size_B[(kind_B == self.kinds) & (size_B < 0)] = node
            if bool((size_B >= 0).all()):
                break
            kind_BL[:, node] = kind_B.clamp(max=self.kinds - 1)
            state_BND, edge_BN = state_BLD[:, :node], edge_BLL[:, node, :node]
            last_BD = self._draw_edges(kind_BL[:, node], start_BD, state_BND, edge_BN, generator)
            state_BLD[:, node], total_BD = last_BD, total_BD + last_BD
        return [
            None if n < 0 else dag_of(kind_BL[i, :n], edge_BLL[i, :n, :n])
            for i, n in enumerate(size_B.tolist())
        ]

    def _draw_edges(
        self,
        kind_B: Tensor,
        start_BD: Tensor,
        state_BND: Tensor,
        edge_BN: Tensor,
        generator: torch.Generator,
    ) -> Tensor:
        """Draw the edges of a node into ``edge_BN`` and return its state.

        All candidates are tried with the state so far; the nearest that becomes a parent counts,
        and those behind it are tried again with the next state.
        """
        into_BD, below_B = start_BD, torch.full(kind_B.shape, edge_BN.shape[1])
        place_N, row_B = torch.arange(edge_BN.shape[1]), torch.arange(len(kind_B))
        message_BND, parent_BND = self.unit.message(state_BND), self.parent(state_BND)
        while True:
            last_BD: Tensor = self.unit(kind_B, into_BD)
            chance_BN = self.is_edge(self.child(last_BD)[:, None] + parent_BND)[..., 0].sigmoid()
            hit_BN = torch.rand(chance_BN.shape, generator=generator) < chance_BN
            hit_BN = hit_BN & (place_N < below_B[:, None])
            found_B = hit_BN.any(1)
            if not bool(found_B.any()):
                return last_BD
            below_B = (hit_BN * (place_N + 1)).amax(1) - 1
            below_B = below_B.clamp(min=0)
            edge_BN[row_B[found_B], below_B[found_B]] = True
            into_BD = into_BD + message_BND[row_B, below_B] * found_B[:, None]


def _pairs(mask_BN: Tensor) -> Tensor:
    """Return which (node, earlier node) pairs there are."""
    both_BNN = mask_BN[:, :, None] & mask_BN[:, None]
    return both_BNN.tril(-1)
