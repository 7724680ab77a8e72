"""Partially given graphs: first and last layers, and joining them with what is drawn.

The given first layers of a graph, which a model completes.

Shape letters: A node attributes, E edges, N nodes.

A gap in a graph: layers that are drawn anew between given ones.

Shape letters: A node attributes, E edges, N nodes, P pairs (of a removed and a kept node that
depends on it).

Which new nodes kept later ones depend on, in place of those that were removed.

Shape letters: A node attributes, C children (kept nodes), D degrees, E edges, K codes (kinds), N
nodes, P pairs (of a removed node and a kept one that depends on it), R rows (removed nodes of such
pairs), W new nodes.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.statistics import GraphStatistics, ListedNeighbors
from layerdag.errors import UsageError


@dataclass(frozen=True, eq=False)
class Prefix:
    """The first layers of a graph.

    Attributes:
        dag: The given layers, nodes in layer order.
        out_degrees: Number of children of each given node in the whole graph, which models that
            predict out-degrees are told.
        reserved: Number of those children that are given, too, and come after the drawn nodes;
            empty where all that follows is drawn.
    """

    dag: DAG
    out_degrees: tuple[int, ...]
    reserved: tuple[int, ...] = ()

    @classmethod
    def from_dag(cls, dag: DAG, num_layers: int) -> "Prefix":
        """Return the first layers of a whole graph.

        Raises:
            UsageError: If the graph does not have so many layers.
            GraphError: If the graph has a cycle.
        """
        require_layers(num_layers, dag.num_layers)
        dag = dag.in_layer_order()
        count = int((dag.layer_N < num_layers).sum())
        degree_N = torch.bincount(dag.edge_index_2E[0], minlength=dag.num_nodes)
        inside_E = dag.edge_index_2E[1] < count
        first = DAG.build(
            dag.x_NA[:count],
            dag.edge_index_2E[:, inside_E],
            edge_type_E=dag.edge_type_E[inside_E],
            u_NA=dag.u_NA[:count],
            layer_N=dag.layer_N[:count],
        )
        return cls(first, tuple(degree_N[:count].tolist()))

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the given layers."""
        return self.dag.num_nodes

    @property
    def num_layers(self) -> int:
        """Number of given layers."""
        return self.dag.num_layers

    @cached_property
    def layer_sizes(self) -> tuple[int, ...]:
        """Number of nodes of each given layer."""
        return tuple(torch.bincount(self.dag.layer_N).tolist())

    @cached_property
    def parents(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Parent and edge type of each edge into each given node, the last parent first."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.dag.num_nodes)]
        edges = zip(*self.dag.edge_index_2E.tolist(), self.dag.edge_type_E.tolist(), strict=True)
        for source, target, edge_type in edges:
            found[target].append((source, edge_type))
        return tuple(tuple(sorted(parents, reverse=True)) for parents in found)

    def require_room(self, max_nodes: int, max_layers: int) -> None:
        """Refuse limits of a graph that leave nothing to complete.

        Raises:
            UsageError: If the prefix reaches one of them.
        """
        if self.num_nodes >= max_nodes or self.num_layers >= max_layers:
            raise UsageError(
                f"The prefix has {self.num_nodes} nodes in {self.num_layers} layers, and a graph "
                f"may have {max_nodes} nodes and {max_layers} layers: nothing is left to complete; "
                "raise max_nodes, or give fewer layers."
            )

    def require_known(self, sizes: GraphSizes) -> None:
        """Refuse nodes and edges that a model of these sizes does not know.

        Raises:
            UsageError: If attributes, codes or edge types are others, or an edge points back.
        """
        x_NA, (source_E, target_E) = self.dag.x_NA, self.dag.edge_index_2E
        known = len(sizes.attributes)
        if x_NA.shape[1] != known:
            raise UsageError(
                f"The given nodes have {x_NA.shape[1]} attributes and the model's have {known}; "
                "encode them with the schema of its checkpoint."
            )
        wrong_X2 = ((x_NA < 0) | (x_NA >= torch.tensor(sizes.attributes))).nonzero().tolist()
        if wrong_X2:
            node, attribute = wrong_X2[0]
            raise UsageError(
                f"Attribute {attribute} of given node {node} has the code "
                f"{int(x_NA[node, attribute])}; the model knows 0 to "
                f"{sizes.attributes[attribute] - 1}. Encode them with the schema of its checkpoint."
            )
        type_E = self.dag.edge_type_E
        if ((type_E < 0) | (type_E >= sizes.edge_types)).any():
            raise UsageError(
                f"Types of given edges are from {int(type_E.min())} to {int(type_E.max())}; the "
                f"model knows 0 to {sizes.edge_types - 1}. Encode them with the schema of its "
                "checkpoint."
            )
        wrong_E = (source_E < 0) | (source_E >= target_E) | (target_E >= self.num_nodes)
        if wrong_E.any():
            edge = int(wrong_E.nonzero()[0])
            raise UsageError(
                f"Given nodes must be in layer order, each after its parents; found an edge from "
                f"{int(source_E[edge])} to {int(target_E[edge])} of {self.num_nodes} nodes. "
                "Prefix.from_dag brings them into order."
            )

    def kept_in(self, dag: DAG) -> DAG:
        """Return a completed graph whose given nodes have their own positions inside bins.

        One that a check ended early may have fewer nodes than are given.
        """
        own_NA, drawn_NA = self.dag.u_NA[: dag.num_nodes], dag.u_NA[self.num_nodes :]
        return dag.with_columns(dag.x_NA, torch.cat([own_NA, drawn_NA]))


def require_layers(given: int, layers: int) -> None:
    """Refuse a prefix of no layers, or of more than there are.

    Raises:
        UsageError: If it is one.
    """
    if not 1 <= given <= layers:
        raise UsageError(f"A prefix of this graph has from 1 to {layers} layers, found {given}.")


@dataclass(frozen=True, eq=False)
class Gap:
    """Layers of a graph that are to be drawn anew, while those before and after are kept.

    Attributes:
        dag: The whole given graph, nodes in layer order, edges by target.
        first_layer: The first layer to be drawn anew.
        end_layer: The first layer after it that is kept.
    """

    dag: DAG
    first_layer: int
    end_layer: int

    @classmethod
    def from_dag(cls, dag: DAG, prefix_layers: int, suffix_layers: int) -> "Gap":
        """Return the gap that keeps so many first and so many last layers of a graph.

        Raises:
            UsageError: If no layer is left between them, or one of them is empty.
            GraphError: If the graph has a cycle.
        """
        layers = dag.num_layers
        require_layers(prefix_layers, layers)
        if suffix_layers < 1 or prefix_layers + suffix_layers >= layers:
            raise UsageError(
                f"Of the {layers} layers of this graph the first {prefix_layers} and the last "
                f"{suffix_layers} are to be kept, which leaves none between them to be drawn anew; "
                "keep at least one layer on each side and fewer together."
            )
        return cls(dag.in_layer_order(), prefix_layers, layers - suffix_layers)

    @cached_property
    def start(self) -> int:
        """Number of nodes before the gap."""
        return int((self.dag.layer_N < self.first_layer).sum())

    @cached_property
    def end(self) -> int:
        """First node after the gap."""
        return int((self.dag.layer_N < self.end_layer).sum())

    @property
    def num_later(self) -> int:
        """Number of nodes after the gap."""
        return self.dag.num_nodes - self.end

    @cached_property
    def prefix(self) -> Prefix:
        """The layers before the gap; children after it are reserved."""
        first = Prefix.from_dag(self.dag, self.first_layer)
        source_E, target_E = self.dag.edge_index_2E
        after_E = source_E[target_E >= self.end]
        reserved_N = torch.bincount(after_E, minlength=self.start)[: self.start]
        return replace(first, reserved=tuple(reserved_N.tolist()))

    @cached_property
    def open_P(self) -> Int[Tensor, " P"]:
        """The edges of ``dag`` from a removed node to a kept later one."""
        source_E, target_E = self.dag.edge_index_2E
        inside_E = (source_E >= self.start) & (source_E < self.end) & (target_E >= self.end)
        return inside_E.nonzero()[:, 0]

    def filled(self, begun: DAG, parent_P: Int[Tensor, " P"]) -> DAG:
        """Return a graph that goes on after new layers as the given one did.

        Args:
            begun: The kept first layers and new ones, as many as were removed.
            parent_P: For each open edge the node of ``begun`` that it comes from; -1 leaves it out.
        """
        shift = begun.num_nodes - self.end
        source_E, target_E = self.dag.edge_index_2E.clone()
        source_E = torch.where(source_E >= self.end, source_E + shift, source_E)
        source_E[self.open_P] = parent_P
        kept_E = (target_E >= self.end) & (source_E >= 0)
        later_2E = torch.stack([source_E, target_E + shift])[:, kept_E]
        edges_2E = torch.cat([begun.edge_index_2E, later_2E], dim=1)
        type_E = torch.cat([begun.edge_type_E, self.dag.edge_type_E[kept_E]])
        nodes = begun.num_nodes + self.num_later
        order_E = torch.argsort(edges_2E[1] * nodes + edges_2E[0])
        return DAG.build(
            torch.cat([begun.x_NA, self.dag.x_NA[self.end :]]),
            edges_2E[:, order_E],
            edge_type_E=type_E[order_E],
            u_NA=torch.cat([begun.u_NA, self.dag.u_NA[self.end :]]),
            layer_N=torch.cat([begun.layer_N, self.dag.layer_N[self.end :]]),
        )


# What speaks for a new node, in nats. They only order proposals, among which the likelihood of all
# that follows chooses.
_SAME_KIND = 4.0
_SAME_ATTRIBUTES = 4.0
_KNOWN_PAIR = 3.0
_LAYERS_APART = 4.0
_RANKS_APART = 2.0
_USED_ALREADY = 3.0
_SHARES_CHILD = 1e6
_MOST_DEGREE_GAIN = 6.0
# Number of nodes that are added to the count of each degree of a kind.
_SMOOTHING = 0.01


@dataclass(frozen=True, eq=False)
class Replacement:
    """Puts new nodes in the place of removed ones.

    A removed node is replaced by a new one of the same kind, with the same attributes and about the
    same place, or else by one that kept children may have by the training graphs. New nodes
    that have fewer children than their kind has come first.

    Attributes:
        statistics: Of the training graphs.
    """

    statistics: GraphStatistics

    def parents(
        self, gap: Gap, begun: DAG, rng: np.random.Generator, spread: float
    ) -> Int[Tensor, " P"]:
        """Return the new parent of each open edge of a gap; -1 where there is no further one.

        Each node of the first kept layer after the gap has a parent in the layer before, and no two
        edges are equal.

        Args:
            gap: What is kept.
            begun: The kept first layers and new ones.
            rng: Of this graph.
            spread: Of the noise on what is proposed, nats; 0 is the nearest replacement.
        """
        source_P, target_P = gap.dag.edge_index_2E[:, gap.open_P].numpy()
        removed_R, row_P = np.unique(source_P, return_inverse=True)
        score_RW = self._likeness(gap, begun, removed_R, row_P, target_P)
        score_RW += spread * rng.gumbel(size=score_RW.shape)
        last_W = begun.layer_N[gap.start :].numpy() == gap.end_layer - 1
        bound_P = _bound_edges(gap, source_P, target_P)
        allowed_RW = score_RW.copy()
        allowed_RW[np.ix_(np.unique(row_P[bound_P]), ~last_W)] = -np.inf
        chosen_R = self._chosen(gap, begun, allowed_RW, row_P, target_P)
        parent_P = _without_doubles(chosen_R, score_RW, row_P, target_P, bound_P)
        return torch.from_numpy(np.where(parent_P < 0, -1, parent_P + gap.start))

    def _likeness(
        self, gap: Gap, begun: DAG, removed_R: np.ndarray, row_P: np.ndarray, target_P: np.ndarray
    ) -> Float[np.ndarray, "R W"]:
        x_NA, new_WA = gap.dag.x_NA.numpy(), begun.x_NA[gap.start :].numpy()
        old_NA = x_NA[gap.start : gap.end]
        same_RWA = x_NA[removed_R][:, None] == new_WA[None]
        score_RW = _SAME_KIND * same_RWA[..., 0] + _SAME_ATTRIBUTES * same_RWA.mean(2)
        layer_R = gap.dag.layer_N.numpy()[removed_R]
        layer_W = begun.layer_N[gap.start :].numpy()
        apart_RW = np.abs(layer_R[:, None] - layer_W) / (gap.end_layer - gap.first_layer)
        rank_R = _rank_in_kind(old_NA[:, 0])[removed_R - gap.start]
        ranks_RW = np.abs(rank_R[:, None] - _rank_in_kind(new_WA[:, 0]))
        score_RW -= _LAYERS_APART * apart_RW + _RANKS_APART * ranks_RW
        known_PW = self._known_pairs_KK[new_WA[:, 0]][:, x_NA[target_P, 0]].T
        known_RW = np.zeros(score_RW.shape)
        np.add.at(known_RW, row_P, known_PW)
        return score_RW + _KNOWN_PAIR * known_RW / np.bincount(row_P)[:, None]

    def _chosen(
        self, gap: Gap, begun: DAG, score_RW: np.ndarray, row_P: np.ndarray, target_P: np.ndarray
    ) -> Int[np.ndarray, " R"]:
        kind_W = begun.x_NA[gap.start :, 0].numpy()
        source_E = begun.edge_index_2E[0].numpy()
        children_W = np.bincount(source_E, minlength=begun.num_nodes)[gap.start :]
        further_R = np.bincount(row_P)
        share_RR = _sharing(row_P, target_P)
        gain_RW = score_RW + self._degree_gain(kind_W[None], children_W[None], further_R[:, None])
        chosen_R = np.full(len(further_R), -1)
        for _ in range(len(further_R)):
            r, m = np.unravel_index(int(gain_RW.argmax()), gain_RW.shape)
            chosen_R[r] = m
            gain_RW[r] = -np.inf
            before_R = self._degree_gain(kind_W[[m]], children_W[[m]], further_R)
            children_W[m] += further_R[r]
            after_R = self._degree_gain(kind_W[[m]], children_W[[m]], further_R)
            gain_RW[:, m] += after_R - before_R - _USED_ALREADY - _SHARES_CHILD * share_RR[r]
        return chosen_R

    def _degree_gain(
        self, kind: np.ndarray, children: np.ndarray, further: np.ndarray
    ) -> Float[np.ndarray, "..."]:
        most = self._log_degrees_KD.shape[1] - 1
        after = self._log_degrees_KD[kind, np.minimum(children + further, most)]
        before = self._log_degrees_KD[kind, np.minimum(children, most)]
        return np.clip(after - before, -_MOST_DEGREE_GAIN, _MOST_DEGREE_GAIN)

    @cached_property
    def _log_degrees_KD(self) -> Float[np.ndarray, "K D"]:
        most = self.statistics.max_out_degree
        count_KD = np.full((len(self.statistics.out_degrees), most + 2), _SMOOTHING)
        for kind, pairs in enumerate(self.statistics.out_degrees):
            for degree, nodes in pairs:
                count_KD[kind, degree] += nodes
        log_KD: np.ndarray = np.log(count_KD / count_KD.sum(1, keepdims=True))
        return log_KD

    @cached_property
    def _known_pairs_KK(self) -> Bool[np.ndarray, "K K"]:
        of_parents = _known_neighbors(self.statistics.parents)
        known_KK: np.ndarray = _known_neighbors(self.statistics.children) & of_parents.T
        return known_KK


def _known_neighbors(listed: ListedNeighbors) -> Bool[np.ndarray, "K K"]:
    """Return which kinds are listed as neighbors of each kind; all of one without a list."""
    known_KK = np.zeros((len(listed.multisets),) * 2, dtype=bool)
    for kind, multisets in enumerate(listed.multisets):
        known_KK[kind, sorted({k for multiset in multisets for k in multiset})] = True
        known_KK[kind] |= not multisets
    return known_KK


def _bound_edges(gap: Gap, source_P: np.ndarray, target_P: np.ndarray) -> Bool[np.ndarray, " P"]:
    """Return the edge of each node of the first kept layer that tells its layer.

    It is the last one from the removed layer before.
    """
    layer_N = gap.dag.layer_N.numpy()
    near_P = (layer_N[source_P] == gap.end_layer - 1) & (layer_N[target_P] == gap.end_layer)
    last: dict[int, int] = {int(target_P[edge]): int(edge) for edge in near_P.nonzero()[0]}
    bound_P = np.zeros(len(source_P), dtype=bool)
    bound_P[list(last.values())] = True
    return bound_P


def _without_doubles(
    chosen_R: np.ndarray,
    score_RW: np.ndarray,
    row_P: np.ndarray,
    target_P: np.ndarray,
    bound_P: np.ndarray,
) -> Int[np.ndarray, " P"]:
    """Return the new node of each open edge, another one where two edges would be equal.

    An edge is left out (-1) if its child has all new nodes as parents.
    """
    parent_P = chosen_R[row_P]
    taken: dict[int, set[int]] = {int(child): set() for child in target_P}
    for edge in [*bound_P.nonzero()[0], *(~bound_P).nonzero()[0]]:
        mine = taken[int(target_P[edge])]
        if int(parent_P[edge]) in mine:
            score_W = score_RW[row_P[edge]]
            free = np.setdiff1d(np.arange(len(score_W)), sorted(mine))
            parent_P[edge] = free[score_W[free].argmax()] if len(free) else -1
        mine.add(int(parent_P[edge]))
    return parent_P


def _sharing(row_P: np.ndarray, target_P: np.ndarray) -> Bool[np.ndarray, "R R"]:
    _, child_P = np.unique(target_P, return_inverse=True)
    has_RC = np.zeros((row_P.max() + 1, child_P.max() + 1), dtype=np.float32)
    has_RC[row_P, child_P] = 1
    share_RR: np.ndarray = has_RC @ has_RC.T > 0
    return share_RR


def _rank_in_kind(kind_N: np.ndarray) -> Float[np.ndarray, " N"]:
    """Return the relative position of each node among those of its kind, in (0, 1)."""
    rank_N = np.zeros(len(kind_N))
    for kind in np.unique(kind_N):
        mine = kind_N == kind
        rank_N[mine] = (np.arange(mine.sum()) + 0.5) / mine.sum()
    return rank_N
