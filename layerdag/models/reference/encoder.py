"""Prefixes and their encoder.

Graph-level conditions as one vector: several at once, each of which may be unknown.

The encoder of prefixes: message passing along and against the edges.

Partial graphs during sampling: flat arrays that are extended by one layer at a time.

Training examples of the layerwise model: every prefix of every graph, block-diagonally.

In a ``DAGBatch`` the nodes of a graph are sorted by layer and its edges by target, so the prefix of
the first l layers is a contiguous range of nodes and edges: prefixes are built from pointers.

Shape letters: A node attributes, B graphs, C numeric conditions, D width of a state, E edges, I
prefixes, L layers, M categorical conditions, N nodes, R rows, V edges among rows, W new nodes.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import DAG, DAGBatch, GraphSizes
from layerdag.models.conditions import Conditions
from layerdag.models.draws import assemble_dags
from layerdag.models.layers import (
    MLP,
    Linear,
    MessagePassingLayer,
    SumEmbedding,
    gather_rows,
    segment_pointers,
    segment_ranges,
    sinusoids,
    to_float32,
)


def drop_conditions(conditions: Conditions, rate: float, generator: torch.Generator) -> Conditions:
    """Drop conditions as ``Conditions.dropped``; first one number per graph is drawn for all."""
    numeric_BC, category_BM = conditions.numeric_BC, conditions.category_BM
    device = numeric_BC.device
    all_B1 = torch.rand(numeric_BC.shape[0], 1, generator=generator, device=device)
    each_BC = torch.rand(numeric_BC.shape, generator=generator, device=device)
    each_BM = torch.rand(category_BM.shape, generator=generator, device=device)
    return conditions.dropped(torch.cat([each_BC, each_BM, all_B1], dim=1), rate)


class ReferenceConditionEncoder(nn.Module):
    """Sum of one embedding per condition; an unknown one has an embedding of its own.

    Numeric conditions arrive standardized; each passes through a small network of its value, so
    that the whole range of labels varies the embedding.

    Args:
        sizes: Numbers of conditions and categories.
        width: F of the result.
    """

    def __init__(self, sizes: GraphSizes, width: int) -> None:
        super().__init__()
        numeric, categories = sizes.numeric_conditions, sizes.category_conditions
        self.base = nn.Parameter(torch.zeros(width))
        self.numeric = nn.Sequential(
            Linear(2 * numeric, width), nn.GELU(), Linear(width, width)
        ) if numeric else None  # fmt: skip
        self.categories = nn.ModuleList([nn.Embedding(count + 1, width) for count in categories])

    def forward(self, conditions: Conditions) -> Float[Tensor, "B D"]:
        """Return the vectors, shape (B, F)."""
        numeric_BC, category_BM = conditions.numeric_BC, conditions.category_BM
        out_BD = self.base.expand(numeric_BC.shape[0], -1)
        if self.numeric is not None:
            known_BC = ~numeric_BC.isnan()
            value_BC = torch.where(known_BC, numeric_BC, 0.0)
            out_BD = out_BD + self.numeric(torch.cat([value_BC, known_BC.to(value_BC)], dim=1))
        for column, table in enumerate(self.categories):
            out_BD = out_BD + table(category_BM[:, column] + 1)
        return out_BD


# Layers at this distance and beyond share one embedding.
MAX_LAYER_DISTANCE = 32


@dataclass(frozen=True, eq=False)
class PrefixGraphs:
    """Several prefixes end to end: the input of the networks."""

    code_NA: Int[Tensor, "N A"]  # codes of the distinct nodes, in-degree last
    graph_N: Int[Tensor, " N"]  # graph of each distinct node, an index into the condition vectors
    node_R: Int[Tensor, " R"]  # distinct node behind each row
    prefix_R: Int[Tensor, " R"]
    distance_R: Int[Tensor, " R"]  # layers from the row to the next layer, 0 for that layer itself
    graph_I: Int[Tensor, " I"]
    depth_I: Int[Tensor, " I"]  # number of finished layers of each prefix
    edge_index_2V: Int[Tensor, "2 V"]  # rows joined by an edge
    edge_kind_V: Int[Tensor, " V"]  # kind of each edge, below the encoder's number of kinds


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
        self.conditions = ReferenceConditionEncoder(sizes, width)
        self.rounds = nn.ModuleList([MessagePassingLayer(width, edge_kinds) for _ in range(rounds)])
        self.project = Linear((rounds + 1) * width, width)

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


@dataclass(frozen=True, eq=False)
class NewLayer:
    """One layer of every graph that has one, nodes ordered by graph."""

    graph_W: Int[Tensor, " W"]
    code_WA: Int[Tensor, "W A"]
    source_V: Int[Tensor, " V"]  # earlier node of each new edge, numbered through all graphs
    target_V: Int[Tensor, " V"]  # new node of each edge, 0..W
    type_V: Int[Tensor, " V"]


class PartialGraphs:
    """All nodes and edges so far, in the order of sampling.

    Attributes:
        graph_N: Graph of each node.
        layer_N: Layer of each node.
        code_NA: Attribute codes, in-degree last.
        edge_index_2E: Nodes joined.
        edge_type_E: Types.
        depth: Number of layers sampled.
    """

    def __init__(self, columns: int, device: torch.device) -> None:
        empty = torch.zeros(0, dtype=torch.int64, device=device)
        self.graph_N, self.layer_N, self.edge_type_E = empty, empty, empty
        self.code_NA = empty.reshape(0, columns)
        self.edge_index_2E = empty.reshape(2, 0)
        self.depth = 0

    def append(self, layer: NewLayer) -> None:
        """Add the next layer."""
        start = self.graph_N.numel()
        depth_W = torch.full_like(layer.graph_W, self.depth)
        edge_index_2V = torch.stack([layer.source_V, start + layer.target_V])
        self.graph_N = torch.cat([self.graph_N, layer.graph_W])
        self.layer_N = torch.cat([self.layer_N, depth_W])
        self.code_NA = torch.cat([self.code_NA, layer.code_WA])
        self.edge_index_2E = torch.cat([self.edge_index_2E, edge_index_2V], dim=1)
        self.edge_type_E = torch.cat([self.edge_type_E, layer.type_V])
        self.depth += 1

    def finished(self, u_NA: Float[Tensor, "N A"], num_graphs: int) -> tuple[DAG, ...]:
        """Return the graphs, nodes in layer order and edges by (target, source).

        Args:
            u_NA: Positions inside the bins, rows ordered by graph and layer.
            num_graphs: B.
        """
        order_N = torch.argsort(self.graph_N, stable=True)
        rank_N = torch.empty_like(order_N)
        rank_N[order_N] = torch.arange(order_N.numel(), device=order_N.device)
        return assemble_dags(
            self.code_NA[order_N, :-1].cpu(),
            u_NA.cpu(),
            torch.bincount(self.graph_N, minlength=num_graphs).cpu(),
            rank_N[self.edge_index_2E].cpu(),
            self.edge_type_E.cpu(),
            self.layer_N[order_N].cpu(),
        )


@dataclass(frozen=True, eq=False)
class LayerIndex:
    """Positions of the layers of a batch."""

    count_B: Int[Tensor, " B"]  # layers of each graph
    first_B: Int[Tensor, " B"]  # number of the graph's layer 0, counting layers through the batch
    start_L1: Int[Tensor, " L1"]  # first node of each layer; the last entry is the number of nodes

    @classmethod
    def from_batch(cls, batch: DAGBatch) -> "LayerIndex":
        """Find the layers of ``batch``."""
        count_B = batch.num_layers()
        first_B = count_B.cumsum(0) - count_B
        layer_N = first_B[batch.graph_of_node()] + batch.layer_N
        size_L = torch.bincount(layer_N, minlength=int(count_B.sum()))
        return cls(count_B, first_B, segment_pointers(size_L))

    def end_of(self, graph_I: Int[Tensor, " I"], depth_I: Int[Tensor, " I"]) -> Int[Tensor, " I"]:
        """Return the first node beyond the first ``depth_I`` layers of each graph ``graph_I``."""
        return self.start_L1[self.first_B[graph_I] + depth_I]


@dataclass(frozen=True, eq=False)
class PrefixIndex:
    """Prefixes of graphs: the first ``depth_I`` layers of the graphs ``graph_I``."""

    graph_I: Int[Tensor, " I"]
    depth_I: Int[Tensor, " I"]

    def __len__(self) -> int:
        return self.graph_I.numel()

    def where(self, keep_I: Bool[Tensor, " I"] | Int[Tensor, " _"]) -> "PrefixIndex":
        """Return the prefixes for which ``keep_I`` is true, or whose numbers it lists."""
        return PrefixIndex(self.graph_I[keep_I], self.depth_I[keep_I])


def all_prefixes(layers: LayerIndex) -> PrefixIndex:
    """Return every prefix of every graph, from the empty one to the whole graph."""
    zero_B = torch.zeros_like(layers.count_B)
    return PrefixIndex(*segment_ranges(zero_B, layers.count_B + 1))


def subsample_prefixes(
    items: PrefixIndex, cost_I: Int[Tensor, " I"], budget: int, generator: torch.Generator
) -> PrefixIndex:
    """Return all prefixes, or a random subset with a total cost of at most ``budget``.

    At least one prefix is returned, whatever its cost.
    """
    if int(cost_I.sum()) <= budget:
        return items
    key_I = torch.rand(len(items), generator=generator, device=cost_I.device)
    order_I = torch.argsort(key_I)
    affordable = int((cost_I[order_I].cumsum(0) <= budget).sum())
    chosen_I = order_I[: max(affordable, 1)].sort().values
    return items.where(chosen_I)


@dataclass(frozen=True, eq=False)
class Prefixes:
    """Rows and edges of several prefixes laid end to end."""

    node_R: Int[Tensor, " R"]  # node of the batch behind each row
    prefix_R: Int[Tensor, " R"]  # prefix of each row, ascending
    # Layers from the row's node to the next layer; 1 is the latest layer, 0 the next layer itself.
    distance_R: Int[Tensor, " R"]
    row_ptr: Int[Tensor, " I1"]  # rows of prefix i are ``row_ptr[i]:row_ptr[i+1]``
    edge_index_2V: Int[Tensor, "2 V"]  # source and target rows of the known edges
    edge_type_V: Int[Tensor, " V"]

    @property
    def num_prefixes(self) -> int:
        """Number of prefixes."""
        return self.row_ptr.numel() - 1


def prefixes(batch: DAGBatch, layers: LayerIndex, items: PrefixIndex, ahead: int) -> Prefixes:
    """Lay the prefixes ``items`` end to end.

    Args:
        batch: The graphs.
        layers: Their layers.
        items: Which prefixes.
        ahead: 0, or 1 to add the nodes (without edges) of the layer after the prefix.
    """
    start_I = batch.node_ptr[items.graph_I]
    known_I = layers.end_of(items.graph_I, items.depth_I)
    last_I = layers.end_of(items.graph_I, items.depth_I + ahead) if ahead else known_I
    prefix_R, node_R = segment_ranges(start_I, last_I - start_I)
    row_ptr = segment_pointers(last_I - start_I)
    target_E = batch.edge_index_2E[1].contiguous()
    first_edge_I = batch.edge_ptr[items.graph_I]
    edges_I = torch.searchsorted(target_E, known_I) - first_edge_I
    candidate_V, edge_V = segment_ranges(first_edge_I, edges_I)
    shift_V = (row_ptr[:-1] - start_I)[candidate_V]
    return Prefixes(
        node_R=node_R,
        prefix_R=prefix_R,
        distance_R=items.depth_I[prefix_R] - batch.layer_N[node_R],
        row_ptr=row_ptr,
        edge_index_2V=batch.edge_index_2E[:, edge_V] + shift_V,
        edge_type_V=batch.edge_type_E[edge_V],
    )
