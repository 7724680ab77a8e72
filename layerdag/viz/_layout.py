"""Where to draw the nodes of a DAG: layers from top to bottom, few crossings, straight long edges.

The method of Sugiyama, Tagawa and Toda (IEEE Trans. SMC 11(2), 1981): an edge that spans several
layers is split by way points, the order inside each layer is improved by barycenter sweeps, and
coordinates are moved towards the neighbors' mean under a minimum distance, which is an isotonic
regression. numpy and scipy only; one vectorized step for each layer of a sweep.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from layerdag.graph import expand_ranges, group_by, longest_path_layers, pointers

_WAY_POINT_GAP = 0.35
_MAX_WAY_POINTS = 200_000
# Larger than any drawing is wide: keeps the layers apart inside one isotonic regression.
_FAR = 1e7


@dataclass(frozen=True, eq=False)
class LayeredLayout:
    """Coordinates in units of one node distance; y is the layer, growing downwards.

    Attributes:
        x_N: Horizontal position of each node, from 0.
        layer_N: Layer (vertical position) of each node.
        route_ptr_E1: int64; way points of edge e are rows ``route_ptr_E1[e]:route_ptr_E1[e+1]``.
        route_x_P: Horizontal position of each way point, in order from source to target.
        route_layer_P: Layer of each way point.
    """

    x_N: np.ndarray
    layer_N: np.ndarray
    route_ptr_E1: np.ndarray
    route_x_P: np.ndarray
    route_layer_P: np.ndarray

    @property
    def width(self) -> float:
        """Largest x of all nodes and way points."""
        return float(max(self.x_N.max(initial=0.0), self.route_x_P.max(initial=0.0)))

    @property
    def height(self) -> int:
        """Number of layers."""
        return int(self.layer_N.max(initial=-1)) + 1

    def route(self, edge: int) -> np.ndarray:
        """Return the way points of ``edge``, shape (P, 2), columns x and layer."""
        rows = slice(int(self.route_ptr_E1[edge]), int(self.route_ptr_E1[edge + 1]))
        return np.stack([self.route_x_P[rows], self.route_layer_P[rows]], axis=1)


@dataclass(frozen=True, eq=False)
class _Split:
    """The graph with way points as further nodes; every edge joins neighboring layers."""

    layer_M: np.ndarray
    source_K: np.ndarray
    target_K: np.ndarray
    route_ptr_E1: np.ndarray
    gap_M: np.ndarray


def layered_layout(
    num_nodes: int,
    edge_index_2E: np.ndarray,
    sweeps: int = 12,
    *,
    layer_N: np.ndarray | None = None,
) -> LayeredLayout:
    """Return a layered drawing of a DAG.

    Linear memory; each sweep sorts every layer once; 20,000 nodes take about a second. Where way
    points would outnumber 200,000 the longest edges are drawn straight.

    Args:
        num_nodes: N.
        edge_index_2E: Source and target of each edge.
        sweeps: Number of barycenter sweeps, downwards and upwards in turn.
        layer_N: Longest-path layer of each node, found from the edges if not given.

    Raises:
        GraphError: On a cycle or an endpoint out of range.
    """
    edge_index_2E = np.asarray(edge_index_2E, dtype=np.int64).reshape(2, -1)
    if layer_N is None:
        layer_N = longest_path_layers(num_nodes, edge_index_2E)
    split = _split_long_edges(layer_N, edge_index_2E)
    rank_M = _best_ranks(split, sweeps)
    x_M = _coordinates(split, rank_M, sweeps)
    return LayeredLayout(
        x_N=x_M[:num_nodes],
        layer_N=layer_N,
        route_ptr_E1=split.route_ptr_E1,
        route_x_P=x_M[num_nodes:],
        route_layer_P=split.layer_M[num_nodes:],
    )


def _split_long_edges(layer_N: np.ndarray, edge_index_2E: np.ndarray) -> _Split:
    """Put one way point on each layer that an edge passes."""
    source_E, target_E = edge_index_2E
    passed_E = layer_N[target_E] - layer_N[source_E] - 1
    longest_kept = np.sort(passed_E)[np.cumsum(np.sort(passed_E)) <= _MAX_WAY_POINTS].max(initial=0)
    passed_E = np.where(passed_E <= longest_kept, passed_E, 0)
    ptr_E1 = pointers(passed_E)
    first_E = layer_N[source_E] + 1
    layer_P = expand_ranges(first_E, first_E + passed_E)
    point_P = layer_N.size + np.arange(layer_P.size)
    # A chain source -> way points -> target: heads are the source and the points, tails follow.
    edge_K = np.concatenate(
        [np.arange(source_E.size), np.repeat(np.arange(passed_E.size), passed_E)]
    )
    position_K = np.concatenate([np.full(source_E.size, -1), point_P])
    order_K = np.lexsort((position_K, edge_K))
    head_K = np.concatenate([source_E, point_P])[order_K]
    last_K = np.append(edge_K[order_K][1:] != edge_K[order_K][:-1], True)[: head_K.size]
    tail_K = np.append(head_K[1:], -1)[: head_K.size]
    tail_K = np.where(last_K, target_E[edge_K[order_K]], tail_K)
    gap_M = np.concatenate([np.ones(layer_N.size), np.full(layer_P.size, _WAY_POINT_GAP)])
    return _Split(np.concatenate([layer_N, layer_P]), head_K, tail_K, ptr_E1, gap_M)


def _best_ranks(split: _Split, sweeps: int) -> np.ndarray:
    """Return the order inside each layer with the least sideways travel that the sweeps met."""
    rank_M = _ranks(split.layer_M, np.zeros(split.layer_M.size))
    best_M, least = rank_M, _sideways_travel(split, rank_M)
    for sweep in range(sweeps):
        rank_M = _swept(split, rank_M, downwards=sweep % 2 == 0)
        travel = _sideways_travel(split, rank_M)
        if travel < least:
            best_M, least = rank_M, travel
    return best_M


def _swept(split: _Split, rank_M: np.ndarray, *, downwards: bool) -> np.ndarray:
    """Sort each layer in turn by the mean place of its neighbors in the layer just sorted."""
    near_K, far_K = split.source_K, split.target_K
    if not downwards:
        near_K, far_K = far_K, near_K
    num_layers = int(split.layer_M.max(initial=0)) + 1
    node_ptr, node_order = group_by(split.layer_M, num_layers)
    edge_ptr, edge_order = group_by(split.layer_M[far_K], num_layers)
    position_M = _centered(split, rank_M)
    count_M = np.maximum(np.bincount(far_K, minlength=position_M.size), 1)
    free_M = np.bincount(far_K, minlength=position_M.size) == 0
    layers = range(num_layers) if downwards else range(num_layers - 1, -1, -1)
    rank_M = rank_M.copy()
    for layer in layers:
        nodes = node_order[node_ptr[layer] : node_ptr[layer + 1]]
        edges = edge_order[edge_ptr[layer] : edge_ptr[layer + 1]]
        mean_M = np.where(free_M[nodes], position_M[nodes], 0.0)
        np.add.at(mean_M, np.searchsorted(nodes, far_K[edges]), position_M[near_K[edges]])
        order = np.argsort(mean_M / count_M[nodes], kind="stable")
        rank_M[nodes[order]] = np.arange(nodes.size)
        position_M[nodes[order]] = np.arange(nodes.size) - (nodes.size - 1) / 2
    return rank_M


def _centered(split: _Split, rank_M: np.ndarray) -> np.ndarray:
    """Return the place of each node when its layer is packed and centered on zero."""
    return rank_M - (np.bincount(split.layer_M)[split.layer_M] - 1) / 2


def _ranks(layer_M: np.ndarray, key_M: np.ndarray) -> np.ndarray:
    """Return the rank of each node inside its layer when sorted by ``key_M`` (stable)."""
    order_M = np.lexsort((key_M, layer_M))
    starts_L = np.searchsorted(layer_M[order_M], np.arange(layer_M.max(initial=0) + 1))
    rank_M = np.empty(layer_M.size, dtype=np.int64)
    rank_M[order_M] = np.arange(layer_M.size) - starts_L[layer_M[order_M]]
    return rank_M


def _neighbor_mean(split: _Split, value_M: np.ndarray, *, downwards: bool) -> np.ndarray:
    """Return the mean value of parents (or children); a node without any keeps its own."""
    near_K, far_K = split.source_K, split.target_K
    if not downwards:
        near_K, far_K = far_K, near_K
    count_M = np.bincount(far_K, minlength=value_M.size)
    total_M = np.bincount(far_K, weights=value_M[near_K], minlength=value_M.size)
    return np.where(count_M > 0, total_M / np.maximum(count_M, 1), value_M)


def _sideways_travel(split: _Split, rank_M: np.ndarray) -> float:
    """Return the summed sideways travel of all edges: cheap, and falls with the crossings."""
    position_M = _centered(split, rank_M)
    return float(np.abs(position_M[split.source_K] - position_M[split.target_K]).sum())


def _coordinates(split: _Split, rank_M: np.ndarray, sweeps: int) -> np.ndarray:
    """Move every node towards its neighbors, keeping order and distance inside the layer."""
    order_M = np.lexsort((rank_M, split.layer_M))
    layer_M = split.layer_M[order_M]
    # offset: where a node stands when its layer is packed; distances are half of either gap.
    gap_M = split.gap_M[order_M]
    step_M = np.concatenate(([0.0], (gap_M[1:] + gap_M[:-1]) / 2))[: gap_M.size]
    run_M = np.cumsum(step_M)
    starts_L = np.searchsorted(layer_M, np.arange(layer_M.max(initial=0) + 1))
    offset_M = run_M - run_M[starts_L][layer_M] if run_M.size else run_M
    packed_L = np.zeros(starts_L.size)
    np.maximum.at(packed_L, layer_M, offset_M)
    x_M = np.empty(gap_M.size)
    x_M[order_M] = offset_M - packed_L[layer_M] / 2
    for sweep in range(2 * sweeps):
        wish_M = _neighbor_mean(split, x_M, downwards=sweep % 2 == 0)
        slack_M = wish_M[order_M] - offset_M + _FAR * layer_M
        if slack_M.size:
            x_M[order_M] = isotonic_regression(slack_M).x + offset_M - _FAR * layer_M
    return x_M - x_M.min() if x_M.size else x_M
