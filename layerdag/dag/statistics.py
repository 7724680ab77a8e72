"""Statistics of training graphs for models and schemas."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.neighbors import MAX_PARTIAL, KindMultisets, ListedNeighbors, partial_multisets
from layerdag.errors import GraphError

MAX_COUNTED = 1_000_000_000
"""No degree, layer or depth of a graph is larger."""

MAX_TALLY = 1 << 53

AllowedCodes = tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]
"""``allowed[a][b - a - 1][code]``: codes of attribute b of nodes whose attribute a is ``code``."""


@dataclass(frozen=True)
class GraphStatistics:
    """What a model may know of its training graphs before it has seen one; plain data only.

    The *kind* of a node is its first attribute (for traces the operator). A node lies in layer 0
    exactly if its in-degree is 0, so ``in_degrees`` also tells which kinds can start a graph.

    Attributes:
        graphs: Number of graphs counted.
        attributes: For each attribute, the number of nodes with each code.
        edge_types: Number of edges of each type.
        in_degrees: For each kind, pairs (in-degree, number of nodes), ascending in-degree.
        out_degrees: The same for out-degrees.
        layer_sizes: Pairs (layer size, number of layers), ascending.
        layer_counts: Pairs (number of layers, number of graphs), ascending.
        parents: The parents that nodes of each kind have in several graphs; by default unknown.
        children: The same for children.
        allowed_codes: For each attribute, each later one and each code of the former: the codes of
            the later that training nodes with it have; empty where any may be.
        edge_type_sets: For each kind, the multisets of types that the edges to its nodes have, each
            as ascending codes; empty where any may be.
    """

    graphs: int
    attributes: tuple[tuple[int, ...], ...]
    edge_types: tuple[int, ...]
    in_degrees: tuple[tuple[tuple[int, int], ...], ...]
    out_degrees: tuple[tuple[tuple[int, int], ...], ...]
    layer_sizes: tuple[tuple[int, int], ...]
    layer_counts: tuple[tuple[int, int], ...]
    parents: ListedNeighbors = field(default_factory=lambda: ListedNeighbors.nothing(0))
    children: ListedNeighbors = field(default_factory=lambda: ListedNeighbors.nothing(0))
    allowed_codes: AllowedCodes = ()
    edge_type_sets: KindMultisets = ()

    def __post_init__(self) -> None:
        kinds = len(self.attributes[0])
        for name in ("parents", "children"):
            if not getattr(self, name).multisets:
                object.__setattr__(self, name, ListedNeighbors.nothing(kinds))

    @classmethod
    def measure(cls, dags: Iterable[DAG], sizes: GraphSizes) -> "GraphStatistics":
        """Count over ``dags``, which may come in any node order.

        Raises:
            GraphError: If there is no graph, or a graph has a cycle or codes outside ``sizes``.
        """
        graphs = 0
        attributes = [np.zeros(size, np.int64) for size in sizes.attributes]
        edge_types = np.zeros(sizes.edge_types, np.int64)
        # Histograms of out-degree and in-degree for each kind of node.
        degrees = [[Counter[int]() for _ in range(sizes.attributes[0])] for _ in range(2)]
        layer_sizes, layer_counts = Counter[int](), Counter[int]()
        for dag in dags:
            graphs += 1
            for index, (counts_K, code_N) in enumerate(
                zip(attributes, dag.x_NA.numpy().T, strict=True)
            ):
                counts_K += _histogram(code_N, counts_K.size, f"attribute {index} of a node")
            edge_types += _histogram(dag.edge_type_E.numpy(), edge_types.size, "an edge type")
            kind_N = dag.x_NA[:, 0].numpy()
            for counters, end_E in zip(degrees, dag.edge_index_2E.numpy(), strict=True):
                degree_N = np.bincount(end_E, minlength=kind_N.size)
                pairs = Counter(zip(kind_N.tolist(), degree_N.tolist(), strict=True))
                for (kind, degree), count in pairs.items():
                    counters[kind][degree] += count
            sizes_L = np.bincount(dag.layer_N.numpy())
            layer_sizes.update(sizes_L.tolist())
            layer_counts[sizes_L.size] += 1
        if graphs == 0:
            raise GraphError("There is no graph to take statistics of; the training set is empty.")
        out_degrees, in_degrees = (
            tuple(tuple(sorted(counter.items())) for counter in counters) for counters in degrees
        )
        return cls(
            graphs=graphs,
            attributes=tuple(tuple(counts_K.tolist()) for counts_K in attributes),
            edge_types=tuple(edge_types.tolist()),
            in_degrees=in_degrees,
            out_degrees=out_degrees,
            layer_sizes=tuple(sorted(layer_sizes.items())),
            layer_counts=tuple(sorted(layer_counts.items())),
        )

    @property
    def max_in_degree(self) -> int:
        """Largest in-degree of any kind."""
        return max((degree for pairs in self.in_degrees for degree, _ in pairs), default=0)

    @property
    def max_out_degree(self) -> int:
        """Largest out-degree of any kind."""
        return max((degree for pairs in self.out_degrees for degree, _ in pairs), default=0)

    @property
    def max_layer_size(self) -> int:
        """Largest number of nodes of a layer."""
        return self.layer_sizes[-1][0]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data that ``from_dict`` accepts."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "GraphStatistics":
        """Rebuild from ``to_dict``'s data, after JSON has turned its tuples into lists.

        Raises:
            KeyError, TypeError or ValueError: If an entry is missing or no such count.
        """
        _check_tables(data)
        sides = {name: ListedNeighbors.from_dict(data[name]) for name in ("parents", "children")}
        if any(len(side.unlisted) != len(data["attributes"][0]) for side in sides.values()):
            raise ValueError("every kind needs its neighbors")
        counts = {name: _frozen(value) for name, value in data.items() if name not in sides}
        named: dict[str, Any] = {**counts, **sides}
        return cls(**named)


def _check_tables(data: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError if a count is none, or tables contradict each other."""
    in_degrees, out_degrees = data["in_degrees"], data["out_degrees"]
    _check_counts((data["graphs"],), *data["attributes"], data["edge_types"])
    for pairs in (*in_degrees, *out_degrees, data["layer_sizes"], data["layer_counts"]):
        firsts = [first for first, _ in pairs]
        _check_counts(firsts, [count for _, count in pairs])
        if max(firsts, default=0) > MAX_COUNTED or firsts != sorted(set(firsts)):
            raise ValueError(f"degrees or sizes must ascend to at most {MAX_COUNTED}")
    if not data["attributes"] or not sum(data["attributes"][0]) or not data["layer_sizes"]:
        raise ValueError("there must be a node and a layer")
    if not len(in_degrees) == len(out_degrees) == len(data["attributes"][0]):
        raise ValueError("every kind needs its degrees")
    _check_type_sets(data)
    if data["allowed_codes"]:
        _check_allowed(data["allowed_codes"], [len(counts) for counts in data["attributes"]])


def _check_type_sets(data: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError unless there are multisets of edge types for each kind."""
    sets = data.get("edge_type_sets", ())
    if sets and len(sets) != len(data["attributes"][0]):
        raise ValueError("every kind needs its sets of edge types, be there none")
    partial = 0
    for multiset in (multiset for listed in sets for multiset in listed):
        _check_counts(multiset)
        if list(multiset) != sorted(multiset) or max(multiset, default=0) >= len(
            data["edge_types"]
        ):
            raise ValueError("edge types must be ascending codes of edge types")
        partial += partial_multisets(multiset)
    if partial > MAX_PARTIAL:
        raise ValueError(f"edge types have more than {MAX_PARTIAL} sub-multisets")


def _check_allowed(allowed: Sequence[Any], sizes: Sequence[int]) -> None:
    """Raise ValueError unless there is a list of codes for each code of each pair of attributes."""
    for a, later in enumerate(allowed):
        if len(allowed) != len(sizes) or len(later) != len(sizes) - a - 1:
            raise ValueError("every attribute needs its codes for every later one")
        for size, lists in zip(sizes[a + 1 :], later, strict=True):
            if lists and len(lists) != sizes[a]:
                raise ValueError("every code needs its list of codes, be it empty")
            for codes in lists:
                _check_counts(codes)
                if max(codes, default=0) >= size:
                    raise ValueError(f"a code must be below {size}")


def _check_counts(*tables: Sequence[int]) -> None:
    """Raise TypeError or ValueError unless all are whole numbers from 0 on."""
    for table in tables:
        if not all(type(count) is int for count in table):
            raise TypeError(f"counts must be whole numbers, found {table!r:.60}")
        if min(table, default=0) < 0 or max(table, default=0) > MAX_TALLY:
            raise ValueError(f"counts must be from 0 to {MAX_TALLY}")


def _histogram(code_N: np.ndarray, size: int, what: str) -> np.ndarray:
    """Return how often each code occurs; a code outside [0, size) raises GraphError."""
    if code_N.size and not 0 <= code_N.min() <= code_N.max() < size:
        raise GraphError(
            f"The code of {what} is {int(code_N.min())} to {int(code_N.max())}, but the sizes "
            f"allow 0 to {size - 1}; encode the graphs with the schema that the sizes come from."
        )
    return np.bincount(code_N, minlength=size)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list | tuple) else value
