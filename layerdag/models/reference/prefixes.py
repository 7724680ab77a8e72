"""Prefixes of graphs: what the networks read, from training graphs and from partial samples.

A prefix is the first layers of a graph. The networks read many of them at once, end to end.

Shape letters: A node attributes, B graphs, E edges, I prefixes, L layers, N nodes, P pairs, R rows,
V edges among rows, W new nodes.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerdag.dag.dag import DAG, DAGBatch
from layerdag.models.draws import assemble_dags
from layerdag.models.layers import segment_pointers, segment_ranges


@dataclass(frozen=True, eq=False)
class PrefixGraphs:
    """Several prefixes end to end: the input of the networks."""

    code_NA: Int[Tensor, "N A"]  # codes of the distinct nodes, in-degree last
    graph_N: Int[Tensor, " N"]  # graph of each distinct node, an index into the conditions
    node_R: Int[Tensor, " R"]  # distinct node behind each row
    prefix_R: Int[Tensor, " R"]
    distance_R: Int[Tensor, " R"]  # layers from the row to the next layer, 0 for that layer itself
    graph_I: Int[Tensor, " I"]
    depth_I: Int[Tensor, " I"]  # number of finished layers of each prefix
    edge_index_2V: Int[Tensor, "2 V"]  # rows joined by an edge
    edge_kind_V: Int[Tensor, " V"]  # below the encoder's number of kinds

    def with_new_nodes(
        self, code_WA: Int[Tensor, "W A"], prefix_W: Int[Tensor, " W"]
    ) -> "PrefixGraphs":
        """Return the prefixes with the nodes of their next layers, without edges, at the end."""
        nodes, new_W = self.code_NA.shape[0], torch.arange(prefix_W.numel(), device=prefix_W.device)
        return replace(
            self,
            code_NA=torch.cat([self.code_NA, code_WA]),
            graph_N=torch.cat([self.graph_N, self.graph_I[prefix_W]]),
            node_R=torch.cat([self.node_R, nodes + new_W]),
            prefix_R=torch.cat([self.prefix_R, prefix_W]),
            distance_R=torch.cat([self.distance_R, torch.zeros_like(prefix_W)]),
        )


@dataclass(frozen=True, eq=False)
class Prefixes:
    """The first ``depth_I`` layers of the graphs ``graph_I`` of a batch: training examples.

    In a ``DAGBatch`` the nodes of a graph are sorted by layer and its edges by target, so a prefix
    is a contiguous range of nodes and edges.
    """

    batch: DAGBatch
    code_NA: Int[Tensor, "N A"]
    layers_B: Int[Tensor, " B"]  # layers of each graph
    start_L1: Int[Tensor, " L1"]  # first node of each layer of the batch, then the number of nodes
    graph_I: Int[Tensor, " I"]
    depth_I: Int[Tensor, " I"]

    @classmethod
    def all_of(cls, batch: DAGBatch, code_NA: Int[Tensor, "N A"]) -> "Prefixes":
        """Return every prefix of every graph, from the empty one to the whole graph."""
        layers_B = batch.num_layers()
        first_B = layers_B.cumsum(0) - layers_B
        layer_N = first_B[batch.graph_of_node()] + batch.layer_N
        size_L = torch.bincount(layer_N, minlength=int(layers_B.sum()))
        every = segment_ranges(torch.zeros_like(layers_B), layers_B + 1)
        return cls(batch, code_NA, layers_B, segment_pointers(size_L), *every)

    def __len__(self) -> int:
        return self.graph_I.numel()

    def where(self, keep_I: Bool[Tensor, " I"] | Int[Tensor, " _"]) -> "Prefixes":
        """Return the prefixes for which ``keep_I`` is true, or whose numbers it lists."""
        return replace(self, graph_I=self.graph_I[keep_I], depth_I=self.depth_I[keep_I])

    @property
    def is_whole_I(self) -> Bool[Tensor, " I"]:
        """Whether a prefix is the whole graph."""
        return self.depth_I == self.layers_B[self.graph_I]

    def end_of(self, depth_I: Int[Tensor, " I"]) -> Int[Tensor, " I"]:
        """Return the first node of the batch beyond so many layers of each graph."""
        first_B = self.layers_B.cumsum(0) - self.layers_B
        return self.start_L1[first_B[self.graph_I] + depth_I]

    def new_nodes(self) -> tuple[Int[Tensor, " W"], Int[Tensor, " I1"]]:
        """Return (nodes, ptr) of the layer after each prefix; it is empty after a whole graph."""
        start_I = self.end_of(self.depth_I)
        size_I = self.end_of(self.depth_I + (~self.is_whole_I).long()) - start_I
        return segment_ranges(start_I, size_I)[1], segment_pointers(size_I)

    def subsampled(self, budget: int, generator: torch.Generator) -> "Prefixes":
        """Return all prefixes, or a random part that costs at most ``budget``, one at least.

        The cost is the number of nodes plus that of pairs of a node and a new one.
        """
        nodes_I = self.end_of(self.depth_I) - self.batch.node_ptr[self.graph_I]
        cost_I = nodes_I * (1 + self.new_nodes()[1].diff())
        if int(cost_I.sum()) <= budget:
            return self
        order_I = torch.argsort(torch.rand(len(self), generator=generator, device=cost_I.device))
        affordable = int((cost_I[order_I].cumsum(0) <= budget).sum())
        return self.where(order_I[: max(affordable, 1)].sort().values)

    def end_to_end(self, *, ahead: bool = False) -> PrefixGraphs:
        """Lay the prefixes end to end; ``ahead`` adds the nodes, without edges, of the next layer.

        The rows of a prefix follow each other in the order of the batch.
        """
        batch, start_I = self.batch, self.batch.node_ptr[self.graph_I]
        known_I, last_I = self.end_of(self.depth_I), self.end_of(self.depth_I + int(ahead))
        prefix_R, node_R = segment_ranges(start_I, last_I - start_I)
        target_E = batch.edge_index_2E[1].contiguous()
        first_edge_I = batch.edge_ptr[self.graph_I]
        edges_I = torch.searchsorted(target_E, known_I) - first_edge_I
        prefix_V, edge_V = segment_ranges(first_edge_I, edges_I)
        shift_I = segment_pointers(last_I - start_I)[:-1] - start_I
        return PrefixGraphs(
            code_NA=self.code_NA,
            graph_N=batch.graph_of_node(),
            node_R=node_R,
            prefix_R=prefix_R,
            distance_R=self.depth_I[prefix_R] - batch.layer_N[node_R],
            graph_I=self.graph_I,
            depth_I=self.depth_I,
            edge_index_2V=batch.edge_index_2E[:, edge_V] + shift_I[prefix_V],
            edge_kind_V=batch.edge_type_E[edge_V],
        )


@dataclass(frozen=True, eq=False)
class Pairs:
    """Candidate edges: each earlier node of a prefix with each new one, ordered by new node."""

    source_P: Int[Tensor, " P"]  # row of the earlier node
    target_P: Int[Tensor, " P"]  # row of the new node
    new_P: Int[Tensor, " P"]  # number of the new node, ascending from 0
    prefix_P: Int[Tensor, " P"]
    latest_P: Bool[Tensor, " P"]  # whether the source is in the layer right before
    in_degree_W: Int[Tensor, " W"]
    candidates_W: Int[Tensor, " W"]  # number of earlier nodes of each new node

    @classmethod
    def of(cls, graphs: PrefixGraphs, in_degree_W: Int[Tensor, " W"]) -> "Pairs":
        """Return the pairs of prefixes with new nodes, which have the distance 0."""
        new_W = (graphs.distance_R == 0).nonzero()[:, 0]
        earlier_R = (graphs.distance_R > 0).nonzero()[:, 0]
        earlier_R = earlier_R[torch.argsort(graphs.prefix_R[earlier_R], stable=True)]
        prefix_W = graphs.prefix_R[new_W]
        size_I = torch.bincount(graphs.prefix_R[earlier_R], minlength=graphs.graph_I.numel())
        first_I, candidates_W = size_I.cumsum(0) - size_I, size_I[prefix_W]
        new_P, place_P = segment_ranges(first_I[prefix_W], candidates_W)
        source_P = earlier_R[place_P]
        return cls(
            source_P=source_P,
            target_P=new_W[new_P],
            new_P=new_P,
            prefix_P=prefix_W[new_P],
            latest_P=graphs.distance_R[source_P] == 1,
            in_degree_W=in_degree_W,
            candidates_W=candidates_W,
        )

    @classmethod
    def true_of(cls, graphs: PrefixGraphs, batch: DAGBatch) -> tuple["Pairs", Int[Tensor, " P"]]:
        """Return the pairs of training examples and their states: 0, or the edge type plus 1."""
        node_W = graphs.node_R[graphs.distance_R == 0]
        target_E = batch.edge_index_2E[1].contiguous()
        first_W = torch.searchsorted(target_E, node_W)
        pairs = cls.of(graphs, torch.searchsorted(target_E, node_W, right=True) - first_W)
        # The pairs of a new node begin with the first node of its graph.
        new_V, edge_V = segment_ranges(first_W, pairs.in_degree_W)
        first_pair_W = pairs.candidates_W.cumsum(0) - pairs.candidates_W
        first_pair_W = first_pair_W - batch.node_ptr[graphs.graph_N[node_W]]
        state_P = torch.zeros_like(pairs.new_P)
        state_P[first_pair_W[new_V] + batch.edge_index_2E[0, edge_V]] = (
            batch.edge_type_E[edge_V] + 1
        )
        return pairs, state_P


class PartialGraphs:
    """All nodes and edges sampled so far, flat, in the order of sampling: a layer at a time."""

    def __init__(self, columns: int, device: torch.device) -> None:
        empty = torch.zeros(0, dtype=torch.int64, device=device)
        self.graph_N, self.layer_N, self.edge_type_E = empty, empty, empty
        self.code_NA = empty.reshape(0, columns)
        self.edge_index_2E = empty.reshape(2, 0)
        self.depth = 0

    def append(
        self,
        graph_W: Int[Tensor, " W"],
        code_WA: Int[Tensor, "W A"],
        source_V: Int[Tensor, " V"],
        new_V: Int[Tensor, " V"],
        type_V: Int[Tensor, " V"],
    ) -> None:
        """Add the next layer, nodes ordered by graph; ``new_V`` is an edge's target, from 0 on."""
        edge_index_2V = torch.stack([source_V, self.graph_N.numel() + new_V])
        self.graph_N = torch.cat([self.graph_N, graph_W])
        self.layer_N = torch.cat([self.layer_N, torch.full_like(graph_W, self.depth)])
        self.code_NA = torch.cat([self.code_NA, code_WA])
        self.edge_index_2E = torch.cat([self.edge_index_2E, edge_index_2V], dim=1)
        self.edge_type_E = torch.cat([self.edge_type_E, type_V])
        self.depth += 1

    def prefixes(self, active_B: Bool[Tensor, " B"]) -> PrefixGraphs:
        """Return the active graphs as prefixes."""
        node_R = active_B[self.graph_N].nonzero()[:, 0]
        edge_V = active_B[self.graph_N[self.edge_index_2E[1]]].nonzero()[:, 0]
        row_N = torch.zeros_like(self.graph_N)
        row_N[node_R] = torch.arange(node_R.numel(), device=node_R.device)
        graph_I = active_B.nonzero()[:, 0]
        return PrefixGraphs(
            code_NA=self.code_NA,
            graph_N=self.graph_N,
            node_R=node_R,
            prefix_R=(active_B.cumsum(0) - 1)[self.graph_N[node_R]],
            distance_R=self.depth - self.layer_N[node_R],
            graph_I=graph_I,
            depth_I=torch.full_like(graph_I, self.depth),
            edge_index_2V=row_N[self.edge_index_2E[:, edge_V]],
            edge_kind_V=self.edge_type_E[edge_V],
        )

    def finished(self, u_NA: Float[Tensor, "N A"], num_graphs: int) -> tuple[DAG, ...]:
        """Return the graphs; ``u_NA`` are positions inside bins, ordered by graph and layer."""
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
