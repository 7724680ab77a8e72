"""One kind of rank, or one graph, as a sequence of operators with figures and dependencies."""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layerdag.codec import AttributedGraph, rank_classes
from layerdag.errors import TraceError
from layerdag.graph import longest_path_layers, neighborhood_colors
from layerdag.traces import NodeType, Trace, Workload, dependency_edges, trace_layers
from layerdag.traces.analysis import collective_name, program_order

# Numbers of copies: layer 3 of "mm.3", "L3", "layer3"; micro-batch 0 of "F0"; call 12 of "mm#12".
_COPY_NUMBER = re.compile(r"(?<![^\W_])([A-Za-z]|layer|block|stage)?\d+(?![^\W_])")
_RADIUS = 8
_COLUMNS = {"flops": "num_ops", "tensor_bytes": "tensor_size", "comm_bytes": "comm_size"}


@dataclass(frozen=True, eq=False)
class Program:
    """A sequence of operators.

    Attributes:
        name: Which ranks, or which graph.
        operators: What each node does, in program order.
        is_communication_N: Which nodes are sends, receives or collectives.
        columns: Numeric attributes of each node, float64, NaN for absent.
        edges_2E: Dependencies as places in program order, int64.
        kind_E: Kind of each dependency.
    """

    name: str
    operators: Sequence[str]
    is_communication_N: np.ndarray
    columns: Mapping[str, np.ndarray]
    edges_2E: np.ndarray
    kind_E: np.ndarray

    @property
    def num_nodes(self) -> int:
        """Number of nodes (N)."""
        return len(self.operators)

    @cached_property
    def layer_N(self) -> np.ndarray:
        """Longest-path layer of each node."""
        return longest_path_layers(self.num_nodes, self.edges_2E)

    @classmethod
    def empty(cls, like: "Program") -> "Program":
        """Return a program without nodes, with the columns of another."""
        nothing = np.zeros(0)
        columns = dict.fromkeys(like.columns, nothing)
        edges_2E = np.zeros((2, 0), np.int64)
        return cls(like.name, (), nothing.astype(bool), columns, edges_2E, np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class RankKind:
    """Ranks that run one program."""

    program: Program
    ranks: tuple[int, ...]


def kinds_of_ranks(workload: Workload) -> list[RankKind]:
    """Return the program of each kind of rank.

    Raises:
        TraceError: If a trace's dependencies are faulty.
    """
    try:
        classes = [(one.trace, one.ranks) for one in rank_classes(workload)]
    except TraceError:  # one rank of a job has no groups and no partners: take ranks as they are
        same: dict[int, list[int]] = {}
        for rank, trace in enumerate(workload.traces):
            same.setdefault(id(trace), []).append(rank)
        classes = [(workload.traces[ranks[0]], tuple(ranks)) for ranks in same.values()]
    return [RankKind(_program_of(trace), ranks) for trace, ranks in classes]


def _program_of(trace: Trace) -> Program:
    """Return the program of a trace."""
    order_N = program_order(trace)
    position_N = np.empty_like(order_N)
    position_N[order_N] = np.arange(order_N.size)
    edges_2E, kind_E = dependency_edges(trace)
    trace_layers(trace, edges_2E)  # refuses cycles by the ids of their nodes
    names = [_COPY_NUMBER.sub(r"\1#", name) for name in trace.names()]
    kind_N = trace.integers("comm_type", -1)[0]
    for row in np.flatnonzero(trace.type_N == NodeType.COMM_COLL).tolist():
        names[row] = f"{names[row]} [{collective_name(int(kind_N[row]))}]"
    columns = {"duration_us": trace.duration_us_N.astype(np.float64)}
    for name, attribute in _COLUMNS.items():
        value_N, present_N = trace.integers(attribute)
        columns[name] = np.where(present_N, value_N, np.nan).astype(np.float64)
    return Program(
        trace.source,
        [names[row] for row in order_N.tolist()],
        trace.type_N[order_N] >= NodeType.COMM_SEND,
        {name: value_N[order_N] for name, value_N in columns.items()},
        position_N[edges_2E],
        kind_E.astype(np.int64),
    )


def program_of_graph(graph: AttributedGraph, edge_types: Sequence[str]) -> Program:
    """Return the program of a graph: its nodes by layer, inside a layer by their neighborhoods.

    A graph with its nodes in another order is then the same program, except where the neighborhoods
    of two nodes look the same.

    Args:
        graph: The graph.
        edge_types: Names of edge types; their places become the kinds of edges.
    """
    columns = list(graph.categories.values())
    labels = [", ".join(row) for row in zip(*columns, strict=True)] if columns else []
    labels = labels or ["node"] * graph.num_nodes
    label_N = np.array([zlib.crc32(label.encode()) for label in labels], dtype=np.int64)
    color_N = neighborhood_colors(label_N, graph.edge_index_2E, _RADIUS)[-1]
    order_N = np.lexsort((color_N, graph.layer_N))
    position_N = np.empty_like(order_N)
    position_N[order_N] = np.arange(order_N.size)
    table = np.array([edge_types.index(name) for name in graph.edge_type_names], dtype=np.int64)
    return Program(
        graph.name,
        [labels[row] for row in order_N.tolist()],
        np.zeros(graph.num_nodes, dtype=bool),
        {name: value_N[order_N].astype(np.float64) for name, value_N in graph.numbers.items()},
        position_N[graph.edge_index_2E],
        table[graph.edge_type_E] if graph.edge_type_E.size else graph.edge_type_E,
    )
