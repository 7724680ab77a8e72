"""The encoder of prefixes: message passing along and against the edges.

Shape letters: A node attributes, D width of a state, I prefixes, N nodes, R rows (nodes of the
prefixes, end to end), V edges among rows.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.graph import GraphSizes
from layerdag.models import Conditions
from layerdag.models.diffusion._conditioning import ConditionEncoder
from layerdag.models.layers import (
    MLP,
    MessagePassingLayer,
    SumEmbedding,
    gather_rows,
    sinusoids,
    to_float32,
)

# Layers at this distance and beyond share one embedding.
MAX_LAYER_DISTANCE = 32


@dataclass(frozen=True, eq=False)
class PrefixGraphs:
    """Several prefixes end to end: the input of the networks.

    Attributes:
        code_NA: Codes of the distinct nodes, in-degree last.
        graph_N: Graph of each distinct node, an index into the condition vectors.
        node_R: Distinct node behind each row.
        prefix_R: Prefix of each row.
        distance_R: Layers from the row to the next layer, 0 for that layer itself.
        graph_I: Graph of each prefix.
        depth_I: Number of finished layers of each prefix.
        edge_index_2V: Rows joined by an edge.
        edge_kind_V: Kind of each edge, below the encoder's number of kinds.
    """

    code_NA: Int[Tensor, "N A"]
    graph_N: Int[Tensor, " N"]
    node_R: Int[Tensor, " R"]
    prefix_R: Int[Tensor, " R"]
    distance_R: Int[Tensor, " R"]
    graph_I: Int[Tensor, " I"]
    depth_I: Int[Tensor, " I"]
    edge_index_2V: Int[Tensor, "2 V"]
    edge_kind_V: Int[Tensor, " V"]


def code_embedding(cardinalities: tuple[int, ...], width: int) -> SumEmbedding:
    """Return the embedding of node columns, with the scale and the name of published weights."""
    return SumEmbedding(cardinalities, width, std=0.5, name="table")


class PrefixNodeEncoder(nn.Module):
    """States of the rows of a ``PrefixGraphs``: outputs of all rounds, concatenated and projected.

    Args:
        sizes: Of the data set, for the conditions.
        cardinalities: Number of codes of each node column, in-degree included.
        width: F.
        rounds: Number of message-passing rounds.
        edge_kinds: Number of edge kinds.
    """

    def __init__(
        self,
        sizes: GraphSizes,
        cardinalities: tuple[int, ...],
        *,
        width: int,
        rounds: int,
        edge_kinds: int,
    ) -> None:
        super().__init__()
        self.codes = code_embedding(cardinalities, width)
        self.ages = nn.Embedding(MAX_LAYER_DISTANCE + 1, width)
        self.conditions = ConditionEncoder(sizes, width)
        self.rounds = nn.ModuleList([MessagePassingLayer(width, edge_kinds) for _ in range(rounds)])
        self.project = nn.Linear((rounds + 1) * width, width)

    def forward(self, partial: PrefixGraphs, conditions: Conditions) -> Float[Tensor, "R D"]:
        """Return the state of each row, shape (R, F)."""
        node_ND = self.codes(partial.code_NA) + gather_rows(
            self.conditions(conditions), partial.graph_N
        )
        rows_RD = gather_rows(node_ND, partial.node_R) + self.ages(
            partial.distance_R.clamp(max=MAX_LAYER_DISTANCE)
        )
        outputs = [rows_RD]
        for layer in self.rounds:
            outputs.append(layer(outputs[-1], partial.edge_index_2V, partial.edge_kind_V))
        return to_float32(self.project(torch.cat(outputs, dim=-1)))


class PrefixEncoder(nn.Module):
    """States of the prefixes of a ``PrefixGraphs``, one vector per prefix.

    The sum over the rows plus a start vector (the dummy node of the empty prefix) is normalized and
    joined by the conditions and by sinusoids of the numbers of layers and nodes.

    Args:
        sizes: Of the data set.
        cardinalities: Number of codes of each node column, in-degree included.
        width: F.
        rounds: Number of message-passing rounds.
    """

    def __init__(
        self, sizes: GraphSizes, cardinalities: tuple[int, ...], *, width: int, rounds: int
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
        """Return the state of each prefix, shape (I, F)."""
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
