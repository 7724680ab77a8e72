"""``DAG`` and ``DAGBatch`` as tensors, their sizes, and Weisfeiler-Leman hashes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import LABEL, Condition
from layerdag.graph.topology import MIX, longest_path_layers, mix, pointers, refined, union_layers
from layerdag.runtime.settings import shorten

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False, init=False)
class DAG:
    """A DAG with several categorical attributes per node, typed edges and graph-level conditions.

    It may hold whatever a user gives: ``check`` says in a sentence which shape is wrong. Its layers
    (``layer_N``) are given with it or found once, and copies with the same edges carry them.

    Attributes:
        x_NA: int64 codes of the A node attributes; code ranges are the attribute schema's business.
        u_NA: float32 position in [0, 1) inside the bin of a numeric attribute, else 0.
        edge_index_2E: int64; row 0 is the source, row 1 the target.
        edge_type_E: int64 edge-type codes.
        conditions: Raw graph-level values by name ("label", "family", ...); missing is unknown.
    """

    x_NA: Tensor
    edge_index_2E: Tensor
    edge_type_E: Tensor
    u_NA: Tensor
    conditions: Mapping[str, Condition] = field(default_factory=dict)

    def __init__(
        self,
        x_NA: Any,
        edge_index_2E: Any,
        edge_type_E: Any = None,
        u_NA: Any = None,
        conditions: Mapping[str, Condition] | None = None,
    ) -> None:
        """Make a DAG of tensors, arrays or lists; see the attributes.

        ``DAG(x, edge_index)`` is enough: edge types default to 0, positions in bins to 0.
        """
        x_NA, edge_index_2E = torch.as_tensor(x_NA), torch.as_tensor(edge_index_2E)
        if edge_type_E is None:
            edge_type_E = torch.zeros(edge_index_2E.shape[-1:], dtype=torch.int64)
        if u_NA is None:
            u_NA = torch.zeros(x_NA.shape, dtype=torch.float32)
        object.__setattr__(self, "x_NA", x_NA)
        object.__setattr__(self, "edge_index_2E", edge_index_2E)
        object.__setattr__(self, "edge_type_E", torch.as_tensor(edge_type_E))
        object.__setattr__(self, "u_NA", torch.as_tensor(u_NA))
        object.__setattr__(self, "conditions", {} if conditions is None else conditions)

    @classmethod
    def build(
        cls,
        x_NA: Tensor,
        edge_index_2E: Tensor,
        *,
        edge_type_E: Tensor | None = None,
        u_NA: Tensor | None = None,
        conditions: Mapping[str, Condition] | None = None,
        layer_N: Tensor | None = None,
    ) -> "DAG":
        """Make a DAG from what is known: edge types default to 0, positions in bins to 0.

        Layers that are not given are found from the edges when first asked for; given ones are
        believed until ``check`` compares them with the edges.
        """
        dag = cls(x_NA, edge_index_2E, edge_type_E, u_NA, dict(conditions or {}))
        return dag._carrying(layer_N)

    def without_columns(self, columns: Sequence[int]) -> "DAG":
        """Return the graph with code 0 in some columns of ``x_NA``, which then tell nothing."""
        x_NA = self.x_NA.clone()
        x_NA[:, list(columns)] = 0
        return self.with_columns(x_NA)

    def with_columns(
        self, x_NA: Int[Tensor, "N A"], u_NA: Float[Tensor, "N A"] | None = None
    ) -> "DAG":
        """Return the DAG with other attributes of the same nodes; without ``u_NA`` it keeps its."""
        u_NA = self.u_NA if u_NA is None else u_NA
        return replace(self, x_NA=x_NA, u_NA=u_NA)._carrying(self._known_layer_N)

    def with_conditions(self, conditions: Mapping[str, Condition]) -> "DAG":
        """Return the DAG with these conditions instead of its own."""
        return replace(self, conditions=dict(conditions))._carrying(self._known_layer_N)

    @property
    def x(self) -> Int[Tensor, "N A"]:
        """The codes of all nodes, as PyG calls them."""
        return self.x_NA

    @property
    def edge_index(self) -> Int[Tensor, "2 E"]:
        """Source and target of each edge, as PyG calls them."""
        return self.edge_index_2E

    @property
    def num_nodes(self) -> int:
        """Number of nodes (N)."""
        return self.x_NA.shape[0]

    @property
    def num_edges(self) -> int:
        """Number of edges (E)."""
        return self.edge_index_2E.shape[1]

    def to_pyg(self) -> "Data":
        """Return the graph as PyG ``Data``: x, u, edge_index, edge_attr (types), and the label y.

        Tensors are shared, not copied. ``y`` is NaN where the label is unknown or a word.
        """
        from torch_geometric.data import Data

        label = self.conditions.get(LABEL)
        y = float("nan") if label is None or isinstance(label, str) else float(label)
        return Data(
            x=self.x_NA,
            edge_index=self.edge_index_2E,
            edge_attr=self.edge_type_E[:, None],
            y=torch.tensor([[y]], dtype=torch.float32),
            u=self.u_NA,
            num_nodes=self.num_nodes,
        )

    @classmethod
    def from_pyg(cls, data: "Data", *, check: bool = True) -> "DAG":
        """Return PyG ``Data``: ``x`` holds codes; ``u``, ``edge_attr`` and ``y`` are optional.

        Layers are found from the edges, so that a transform may have changed them.

        Args:
            data: The graph.
            check: Whether cycles, double edges and wrong shapes are refused.

        Raises:
            GraphError: If codes or edge types are no integers, ``x`` is one-hot, ``y`` holds
                several numbers, shapes disagree, or there is a cycle.
        """
        dag = _of_pyg(data)
        return dag.check() if check else dag

    def __repr__(self) -> str:
        """Return the sizes and conditions, not the tensors."""
        try:
            layers: object = self.num_layers
        except GraphError:
            layers = "none (cyclic or damaged)"
        stated = [
            f"{name}={value}" if isinstance(value, str) else f"{name}={value:.4g}"
            for name, value in self.conditions.items()
        ]
        sizes = (
            f"DAG(nodes={self.num_nodes}, edges={self.num_edges}, layers={layers}, "
            f"attributes={self.x_NA.shape[-1]}, conditions=("
        )
        return f"{sizes}{shorten(', '.join(stated), 110 - len(sizes))}))"

    @property
    def num_layers(self) -> int:
        """Number of layers, the nodes on the longest path. Raises GraphError on a cycle."""
        return int(self.layer_N.max()) + 1 if self.num_nodes else 0

    @cached_property
    def layer_N(self) -> Int[Tensor, " N"]:
        """Longest-path layer of each node, int64, found once. Raises GraphError on a cycle."""
        return self.layers()

    @property
    def _known_layer_N(self) -> Tensor | None:
        return self.__dict__.get("layer_N")

    def _carrying(self, layer_N: Tensor | None) -> "DAG":
        if layer_N is not None:
            self.__dict__["layer_N"] = layer_N
        return self

    def layers(self) -> Int[Tensor, " N"]:
        """Return the longest-path layer of each node, shape (N,), found anew from the edges.

        Raises:
            GraphError: If there is a cycle, or an edge names a node that does not exist.
        """
        edge_index_2E = self.edge_index_2E.cpu().numpy()
        layer_N = torch.from_numpy(longest_path_layers(self.num_nodes, edge_index_2E))
        return layer_N.to(self.edge_index_2E.device)

    def in_layer_order(self) -> "DAG":
        """Return the same DAG with nodes sorted by layer (stable) and edges by (target, source)."""
        order_N = torch.argsort(self.layer_N, stable=True)
        return self.permuted(order_N)

    def permuted(self, order_N: Int[Tensor, " N"]) -> "DAG":
        """Return the same DAG whose node i is the old node ``order_N[i]``; edges are sorted."""
        rank_N = torch.empty_like(order_N)
        rank_N[order_N] = torch.arange(self.num_nodes)
        edge_index_2E = rank_N[self.edge_index_2E]
        sort_E = torch.argsort(edge_index_2E[1] * max(self.num_nodes, 1) + edge_index_2E[0])
        layer_N = self._known_layer_N
        moved = replace(
            self,
            x_NA=self.x_NA[order_N],
            u_NA=self.u_NA[order_N],
            edge_index_2E=edge_index_2E[:, sort_E],
            edge_type_E=self.edge_type_E[sort_E],
        )
        return moved._carrying(None if layer_N is None else layer_N[order_N])

    def to(self, device: torch.device | str) -> "DAG":
        """Return the DAG with its tensors on ``device``."""
        layer_N = self._known_layer_N
        moved = replace(
            self,
            x_NA=self.x_NA.to(device),
            u_NA=self.u_NA.to(device),
            edge_index_2E=self.edge_index_2E.to(device),
            edge_type_E=self.edge_type_E.to(device),
        )
        return moved._carrying(None if layer_N is None else layer_N.to(device))

    def check(self) -> "DAG":
        """Return self if shapes, dtypes, ranges and layers agree, without a cycle or double edge.

        Raises:
            GraphError: With one sentence that names the first fault and the values found.
        """
        if self.x_NA.ndim != 2 or self.x_NA.dtype != torch.int64:
            raise GraphError(
                f"x_NA must be an int64 matrix of shape (nodes, attributes), found "
                f"{self.x_NA.dtype} of shape {tuple(self.x_NA.shape)}."
            )
        if self.u_NA.shape != self.x_NA.shape:
            raise GraphError(
                f"u_NA has shape {tuple(self.u_NA.shape)} but x_NA {tuple(self.x_NA.shape)}; "
                "pass one position in [0, 1) for each attribute code."
            )
        if self.edge_index_2E.ndim != 2 or self.edge_index_2E.shape[0] != 2:
            raise GraphError(
                f"edge_index must have shape (2, edges), found {tuple(self.edge_index_2E.shape)}."
            )
        if self.edge_type_E.shape != (self.num_edges,):
            raise GraphError(
                f"There are {self.num_edges} edges but {self.edge_type_E.shape[0]} edge types."
            )
        self._check_layers()
        key_E = self.edge_index_2E[0] * self.num_nodes + self.edge_index_2E[1]
        if key_E.unique().numel() != self.num_edges:
            raise GraphError(
                f"{self.num_edges - key_E.unique().numel()} edges occur twice; "
                "keep one edge for each (source, target) pair."
            )
        return self

    def _check_layers(self) -> None:
        """Raise GraphError if the edges form a cycle, or give other layers than the DAG carries."""
        found_N = self.layers()
        known_N = self._known_layer_N
        if known_N is None:
            self._carrying(found_N)
            return
        if known_N.shape != found_N.shape:
            raise GraphError(
                f"layer_N has shape {tuple(known_N.shape)} for {self.num_nodes} nodes; pass one "
                "layer for each node."
            )
        wrong_N = known_N != found_N
        if not bool(wrong_N.any()):
            return
        node = int(wrong_N.nonzero()[0, 0])
        raise GraphError(
            f"layer_N puts node {node} into layer {int(known_N[node])}, but by its edges it is in "
            f"layer {int(found_N[node])}; leave layer_N out, and it is found from the edges."
        )


def _of_pyg(data: "Data") -> DAG:
    if data.x is None or data.edge_index is None:
        raise GraphError(
            "PyG data without x or edge_index cannot be read as a DAG; where nodes have no "
            "attributes, set data.x = torch.zeros(data.num_nodes, dtype=torch.long)."
        )
    x_NA = _integers(data.x, "x")
    x_NA = x_NA[:, None] if x_NA.ndim == 1 else x_NA
    one_hot_N = ((x_NA == 0) | (x_NA == 1)).all(1) & (x_NA.sum(1) == 1)
    if data.x.is_floating_point() and x_NA.shape[1] > 1 and bool(one_hot_N.all()):
        raise GraphError(
            f"PyG 'x' has a single 1 in each row of {x_NA.shape[1]} columns, which would be read "
            "as that many attributes; give one column of codes, data.x = data.x.argmax(1), or "
            "integers if the columns are attributes of their own."
        )
    edge_attr, u_NA, label = data.get("edge_attr"), data.get("u"), data.get("y")
    if edge_attr is not None and edge_attr.ndim > 1 and edge_attr.shape[1] != 1:
        raise GraphError(
            f"PyG 'edge_attr' has {edge_attr.shape[1]} columns, where an edge has one type; give "
            "codes of types, of one-hot rows data.edge_attr.argmax(1), or None."
        )
    edge_type_E = None if edge_attr is None else _integers(edge_attr, "edge_attr").reshape(-1)
    y = torch.as_tensor(math.nan if label is None else label)  # PyG takes plain numbers, too
    if y.numel() > 1:
        raise GraphError(
            f"PyG 'y' holds {y.numel()} numbers, where a graph has one label; keep that "
            "alone, or set data.y = None."
        )
    known = y.numel() == 1 and bool(torch.isfinite(y).all())
    conditions: dict[str, Condition] = {LABEL: float(y)} if known else {}
    return DAG(x_NA, data.edge_index, edge_type_E, u_NA, conditions)


def _integers(tensor: Tensor, name: str) -> Tensor:
    """Return codes as int64. Raises GraphError if some are not whole numbers."""
    if tensor.is_floating_point() and not torch.equal(tensor, tensor.round()):
        raise GraphError(
            f"PyG '{name}' holds fractions; layerdag reads codes of categories, so encode first."
        )
    return tensor.long()


def layers_of(dags: Sequence[DAG]) -> list[Tensor]:
    """Return ``layer_N`` of each graph, found in one pass over those that do not know theirs.

    Raises:
        GraphError: If a graph has a cycle; the message says which.
    """
    new = [dag for dag in dags if dag._known_layer_N is None]
    try:
        found = union_layers(
            [dag.num_nodes for dag in new], [dag.edge_index_2E.cpu().numpy() for dag in new]
        )
    except GraphError:
        for number, dag in enumerate(dags):
            try:
                dag.layer_N  # noqa: B018
            except GraphError as error:
                raise GraphError(f"Graph {number}: {error}") from None
        raise
    for dag, layer_N in zip(new, found, strict=True):
        dag._carrying(torch.from_numpy(layer_N.copy()).to(dag.edge_index_2E.device))
    return [dag.layer_N for dag in dags]


@dataclass(frozen=True, eq=False)
class DAGBatch:
    """B DAGs in layer order, concatenated.

    Nodes of a graph are sorted by layer, edges by target; ``edge_index_2E`` counts through the
    whole batch. The conditions of a graph are encoded already: NaN in ``numeric_BC`` and -1 in
    ``category_BM`` mean "unknown" and are the same as dropped.

    Attributes:
        x_NA: int64 attribute codes.
        u_NA: float32 positions inside the bins.
        layer_N: int64 layer of each node inside its own graph.
        edge_index_2E: int64 source and target.
        edge_type_E: int64.
        node_ptr: int64 (B+1,); nodes of graph b are ``node_ptr[b]:node_ptr[b+1]``.
        edge_ptr: int64 (B+1,).
        numeric_BC: float32 standardized numeric conditions.
        category_BM: int64 categorical conditions.
    """

    x_NA: Int[Tensor, "N A"]
    u_NA: Float[Tensor, "N A"]
    layer_N: Int[Tensor, " N"]
    edge_index_2E: Int[Tensor, "2 E"]
    edge_type_E: Int[Tensor, " E"]
    node_ptr: Int[Tensor, " B1"]
    edge_ptr: Int[Tensor, " B1"]
    numeric_BC: Float[Tensor, "B C"]
    category_BM: Int[Tensor, "B M"]

    @classmethod
    def from_dags(
        cls,
        dags: Sequence[DAG],
        numeric_BC: Float[Tensor, "B C"],
        category_BM: Int[Tensor, "B M"],
    ) -> "DAGBatch":
        """Lay ``dags``, each in layer order, end to end.

        Raises:
            GraphError: If a graph has a cycle, or lists a node before one of an earlier layer.
        """
        layers = layers_of(dags)
        _require_layer_order(layers)
        node_ptr = torch.from_numpy(pointers([dag.num_nodes for dag in dags]))
        edge_ptr = torch.from_numpy(pointers([dag.num_edges for dag in dags]))
        shift_E = torch.repeat_interleave(node_ptr[:-1], edge_ptr.diff())
        return cls(
            x_NA=torch.cat([dag.x_NA for dag in dags]),
            u_NA=torch.cat([dag.u_NA for dag in dags]),
            layer_N=torch.cat(layers),
            edge_index_2E=torch.cat([dag.edge_index_2E for dag in dags], dim=1) + shift_E,
            edge_type_E=torch.cat([dag.edge_type_E for dag in dags]),
            node_ptr=node_ptr,
            edge_ptr=edge_ptr,
            numeric_BC=numeric_BC,
            category_BM=category_BM,
        )

    @property
    def num_graphs(self) -> int:
        """Number of graphs (B)."""
        return self.node_ptr.shape[0] - 1

    @property
    def num_nodes(self) -> int:
        """N over all graphs."""
        return self.x_NA.shape[0]

    def graph_of_node(self) -> Int[Tensor, " N"]:
        """Return the graph index of each node, shape (N,)."""
        known_N: Tensor | None = self.__dict__.get("_graph_N")
        if known_N is None:
            sizes_B = self.node_ptr.diff()
            index_B = torch.arange(self.num_graphs, device=sizes_B.device)
            known_N = torch.repeat_interleave(index_B, sizes_B, output_size=self.num_nodes)
            self.__dict__["_graph_N"] = known_N
        return known_N

    def num_layers(self) -> Int[Tensor, " B"]:
        """Return the number of layers of each graph, shape (B,)."""
        zero_B = torch.zeros(self.num_graphs, dtype=torch.int64, device=self.layer_N.device)
        return zero_B.scatter_reduce(0, self.graph_of_node(), self.layer_N + 1, "amax")

    @property
    def derived(self) -> object:
        """What a model derived from the graphs, which the batch carries; None for nothing."""
        return self.__dict__.get("_derived")

    def carrying(self, derived: object) -> "DAGBatch":
        """Return the same batch with what a model derived from its graphs."""
        same = replace(self)
        same.__dict__["_derived"] = derived
        return same

    def to(self, device: torch.device | str) -> "DAGBatch":
        """Return the batch on ``device`` with what it carries."""
        device = torch.device(device)
        moved = on_device(replace(self), device)
        return moved if self.derived is None else moved.carrying(on_device(self.derived, device))


def _require_layer_order(layers: Sequence[Tensor]) -> None:
    """Raise GraphError if a graph lists a node before one of an earlier layer."""
    layer_N = torch.cat([torch.zeros(1, dtype=torch.int64), *layers])
    first_B = torch.from_numpy(pointers([layer.shape[0] for layer in layers]))[:-1]
    falls_N = layer_N.diff() < 0
    falls_N[first_B[first_B < falls_N.shape[0]]] = False
    if bool(falls_N.any()):
        node = int(falls_N.nonzero()[0, 0])
        graph = int((first_B <= node).nonzero()[-1, 0])
        raise GraphError(
            f"Graph {graph} is not in layer order: its node {node - int(first_B[graph])} "
            "comes after a node of a later layer; call in_layer_order() on each graph first."
        )


_NODES_AT_ONCE = 1 << 14


def node_colors(dag: DAG, rounds: int = 3) -> np.ndarray:
    """Return a 64-bit color a node after ``rounds`` of directed, edge-typed WL refinement.

    Two nodes with the same attributed neighborhood of radius ``rounds`` get the same color. In
    and out neighbors enter separately; colors of neighbors are summed, so order does not matter.
    """
    *_, color_N = color_rounds([dag], rounds)
    return color_N


def color_rounds(dags: Sequence[DAG], rounds: int) -> Iterator[np.ndarray]:
    """Yield the colors of all nodes of some graphs, end to end, after 0, 1, ... rounds.

    Args:
        dags: Graphs with the same number of attributes.
        rounds: Number of the last round.
    """
    x_NA = np.concatenate([dag.x_NA.numpy() for dag in dags])
    color_N = np.full(len(x_NA), 1, dtype=np.uint64)
    for column in x_NA.T.astype(np.uint64):
        color_N = mix(color_N * MIX + column + np.uint64(1))
    first_B = pointers([dag.num_nodes for dag in dags])[:-1]
    shift_E = np.repeat(first_B, [dag.num_edges for dag in dags])
    source_E, target_E = np.concatenate([d.edge_index_2E.numpy() for d in dags], axis=1) + shift_E
    types_E = np.concatenate([dag.edge_type_E.numpy() for dag in dags])
    salt_E = mix(types_E.astype(np.uint64) + np.uint64(7))
    yield color_N
    for _ in range(rounds):
        color_N = refined(color_N, source_E, target_E, salt_E)
        yield color_N


HASH_DIGITS = 16
COPY_ROUNDS = 8
"""Rounds of ``graph_hashes`` that tell the graphs of programs apart, for tests of copies."""


def graph_hash(dag: DAG, rounds: int = 3) -> str:
    """Return a hexadecimal hash that is equal for isomorphic attributed DAGs.

    Different DAGs collide only if ``rounds`` of WL refinement cannot tell them apart; use an exact
    isomorphism test to break ties where that matters.
    """
    return _hashes([dag], rounds)[0]


def graph_hashes(dags: Iterable[DAG], rounds: int = 3) -> Iterator[str]:
    """Yield ``graph_hash`` of each graph of a stream, many at a time; a tenth of the work."""
    waiting: list[DAG] = []
    nodes = 0
    for dag in dags:
        alike = not waiting or dag.x_NA.shape[1] == waiting[0].x_NA.shape[1]
        if waiting and (nodes + dag.num_nodes > _NODES_AT_ONCE or not alike):
            yield from _hashes(waiting, rounds)
            waiting, nodes = [], 0
        waiting.append(dag)
        nodes += dag.num_nodes
    if waiting:
        yield from _hashes(waiting, rounds)


def _hashes(dags: Sequence[DAG], rounds: int) -> list[str]:
    *_, color_N = color_rounds(dags, rounds)
    ptr = pointers([dag.num_nodes for dag in dags])
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(color_N, dtype=np.uint64)])
    xors = np.concatenate([np.zeros(1, np.uint64), np.bitwise_xor.accumulate(mix(color_N))])
    total_B = np.array([dag.num_edges for dag in dags], dtype=np.uint64)
    for word_B in (sums[ptr[1:]] - sums[ptr[:-1]], xors[ptr[1:]] ^ xors[ptr[:-1]]):
        total_B = mix(total_B * MIX + word_B)
    return [f"{word:0{HASH_DIGITS}x}" for word in total_B.tolist()]


@dataclass(frozen=True)
class GraphSizes:
    """Counts that fix the shapes of a model; what the codes mean stays with the data set's schema.

    Attributes:
        attributes: Number of codes of each node attribute.
        edge_types: Number of edge-type codes, at least 1.
        numeric_conditions: Number of standardized numeric conditions, C.
        category_conditions: Number of codes of each categorical condition, M of them.
    """

    attributes: tuple[int, ...]
    edge_types: int = 1
    numeric_conditions: int = 0
    category_conditions: tuple[int, ...] = ()


T = TypeVar("T")


def tensors_of(tree: object) -> Iterator[Shaped[Tensor, "..."]]:
    """Return the tensors of a tree in the order of the fields."""
    if isinstance(tree, Tensor):
        yield tree
    elif is_dataclass(tree):
        for field in fields(tree):
            yield from tensors_of(getattr(tree, field.name))


def with_each(tree: T, change: Callable[[Tensor], Tensor]) -> T:
    """Return a tree with another tensor in place of each; what is no tensor is kept."""
    if isinstance(tree, Tensor):
        return cast(T, change(tree))
    if not is_dataclass(tree) or isinstance(tree, type):
        return tree
    parts = {field.name: with_each(getattr(tree, field.name), change) for field in fields(tree)}
    return cast(T, replace(cast(Any, tree), **parts))


def on_device(tree: T, device: torch.device) -> T:
    """Return a tree with its tensors on ``device``."""
    return with_each(tree, lambda tensor: tensor.to(device))
