"""Statistics of training graphs for models and schemas, and those that several graphs share.

Statistics of training graphs that may lie in a checkpoint: only what several graphs share.

Exact counts name single graphs: an operator that once has seven parents says that this graph was
trained on. So degrees and layer sizes are merged with their neighbors until at least ``SHARED_BY``
graphs stand behind each, and every count is rounded up to a multiple of that number.

A program that was traced several times is one job: what it alone has must not look as if several
jobs shared it.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph

MANY = 3
"""Neighbors of one kind from which on their number does not matter: nodes of a gradient's optimizer
step have one child per parameter, and no two jobs the same number."""

MAX_PARTIAL = 1 << 20
"""Sub-multisets of all listed multisets together, which bounds the automata made of them."""

_MAX_PARTIAL_OF_ONE = 1 << 12

KindMultisets = tuple[tuple[tuple[int, ...], ...], ...]
"""For each kind, multisets of kinds in ascending order, each as ascending codes with repeats."""


@dataclass(frozen=True)
class ListedNeighbors:
    """The neighbors, on one side, that the nodes of each kind have in several graphs.

    Attributes:
        multisets: Of the neighbors' kinds, with at most ``MANY`` of one kind, which stand for more,
            too. A kind of which nothing is shared, or that has too many kinds of neighbors at once,
            has an empty list.
        unlisted: For each kind, the share of nodes that have other neighbors, 0 without a list.
    """

    multisets: KindMultisets
    unlisted: tuple[float, ...]

    @classmethod
    def nothing(cls, kinds: int) -> "ListedNeighbors":
        """Return empty lists."""
        return cls(((),) * kinds, (0.0,) * kinds)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ListedNeighbors":
        """Rebuild from ``asdict``'s data, after JSON has turned its tuples into lists.

        Raises:
            KeyError, TypeError or ValueError: If an entry is missing, or is none.
        """
        table, unlisted = data["multisets"], data["unlisted"]
        _check_multisets(table)
        if len(unlisted) != len(table) or not all(
            0 <= float(fraction) < 1 for fraction in unlisted
        ):
            raise ValueError("every kind needs a share of nodes from 0 to below 1")
        return cls(
            tuple(tuple(tuple(multiset) for multiset in listed) for listed in table),
            tuple(float(fraction) for fraction in unlisted),
        )


def neighbor_kinds(
    dags: Sequence[DAG], kinds: int, needed: int
) -> tuple[ListedNeighbors, ListedNeighbors]:
    """Return the parents, and the children, that nodes of each kind have.

    Args:
        dags: Graphs in any node order; the kind is the first attribute.
        kinds: Number of kinds.
        needed: Only what nodes of at least so many graphs have is listed.
    """
    parents, children = _Tally(needed), _Tally(needed)
    for graph, dag in enumerate(dags):
        kind_N = dag.x_NA[:, 0].numpy()
        source_E, target_E = dag.edge_index_2E.numpy()
        parents.add(graph, kind_N, target_E, kind_N[source_E])
        children.add(graph, kind_N, source_E, kind_N[target_E])
    return parents.shared(kinds, needed), children.shared(kinds, needed)


def _check_multisets(table: Sequence[Sequence[Sequence[int]]]) -> None:
    """Raise TypeError or ValueError if multisets are none, or too many."""
    partial = 0
    for multiset in (multiset for listed in table for multiset in listed):
        if not all(type(kind) is int for kind in multiset):
            raise TypeError(f"kinds must be whole numbers, found {multiset!r:.60}")
        if list(multiset) != sorted(multiset) or (
            multiset and not (0 <= multiset[0] <= multiset[-1] < len(table))
        ):
            raise ValueError(f"neighbors must be ascending codes below {len(table)}")
        partial += partial_multisets(multiset)
        if partial > MAX_PARTIAL:
            raise ValueError(f"neighbors have more than {MAX_PARTIAL} sub-multisets")


def partial_multisets(multiset: Iterable[int]) -> int:
    """Return the number of sub-multisets of a multiset."""
    return math.prod(count + 1 for count in Counter(multiset).values())


class _Tally:
    """The graphs, and the number of nodes, that show each multiset of neighbors, by kind.

    Args:
        needed: Graphs that are told apart; more of them make no difference.
    """

    def __init__(self, needed: int) -> None:
        self._needed = needed
        self.graphs: defaultdict[tuple[int, tuple[int, ...]], set[int]] = defaultdict(set)
        self.nodes: Counter[tuple[int, tuple[int, ...]]] = Counter()

    def add(
        self, graph: int, kind_N: np.ndarray, node_E: np.ndarray, neighbor_E: np.ndarray
    ) -> None:
        """Add a graph; ``neighbor_E`` is the kind of the neighbor of ``node_E``."""
        order_E = np.lexsort((neighbor_E, node_E))
        sorted_E = neighbor_E[order_E].tolist()
        end_N = np.bincount(node_E, minlength=kind_N.size).cumsum().tolist()
        start = 0
        for kind, end in zip(kind_N.tolist(), end_N, strict=True):
            shown = (kind, _capped(sorted_E[start:end]))
            graphs = self.graphs[shown]
            if len(graphs) < self._needed:
                graphs.add(graph)
            self.nodes[shown] += 1
            start = end

    def shared(self, kinds: int, needed: int) -> ListedNeighbors:
        """Return the multisets that at least ``needed`` graphs show, by kind."""
        found: list[list[tuple[int, ...]]] = [[] for _ in range(kinds)]
        nodes, unlisted = [0] * kinds, [0] * kinds
        too_rich, total = set(), 0
        for (kind, multiset), graphs in self.graphs.items():
            count, size = self.nodes[kind, multiset], partial_multisets(multiset)
            nodes[kind] += count
            if size > _MAX_PARTIAL_OF_ONE:
                too_rich.add(kind)
            elif len(graphs) >= needed:
                total += size
                found[kind].append(multiset)
            if len(graphs) < needed:
                unlisted[kind] += count
        if total > MAX_PARTIAL:
            return ListedNeighbors.nothing(kinds)
        empty_K = [not found[k] or k in too_rich for k in range(kinds)]
        return ListedNeighbors(
            tuple(() if empty else tuple(sorted(found[k])) for k, empty in enumerate(empty_K)),
            tuple(
                # Half a node of either kind more, so that few nodes do not make a share of 0.
                0.0 if empty else round((unlisted[k] + 0.5) / (nodes[k] + 1), 2)
                for k, empty in enumerate(empty_K)
            ),
        )


def _capped(ascending: Sequence[int]) -> tuple[int, ...]:
    return tuple(
        member for i, member in enumerate(ascending) if i < MANY or ascending[i - MANY] != member
    )


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
        tally = _StatisticsTally(sizes)
        for dag in dags:
            tally.add(dag)
        return tally.result()

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

    @property
    def mean_in_degree(self) -> float:
        """Edges per node."""
        return sum(self.edge_types) / sum(self.attributes[0])

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


class _StatisticsTally:
    def __init__(self, sizes: GraphSizes) -> None:
        self.graphs = 0
        self.attributes = [np.zeros(size, np.int64) for size in sizes.attributes]
        self.edge_types = np.zeros(sizes.edge_types, np.int64)
        self.in_degrees: list[Counter[int]] = [Counter() for _ in range(sizes.attributes[0])]
        self.out_degrees: list[Counter[int]] = [Counter() for _ in range(sizes.attributes[0])]
        self.layer_sizes: Counter[int] = Counter()
        self.layer_counts: Counter[int] = Counter()

    def add(self, dag: DAG) -> None:
        """Count one graph."""
        self.graphs += 1
        for index, (counts_K, code_N) in enumerate(
            zip(self.attributes, dag.x_NA.numpy().T, strict=True)
        ):
            counts_K += _histogram(code_N, counts_K.size, f"attribute {index} of a node")
        edge_type_E = dag.edge_type_E.numpy()
        self.edge_types += _histogram(edge_type_E, self.edge_types.size, "an edge type")
        source_E, target_E = dag.edge_index_2E.numpy()
        kind_N = dag.x_NA[:, 0].numpy()
        _count_degrees(self.in_degrees, kind_N, target_E)
        _count_degrees(self.out_degrees, kind_N, source_E)
        sizes_L = np.bincount(dag.layer_N.numpy())
        self.layer_sizes.update(sizes_L.tolist())
        self.layer_counts[sizes_L.size] += 1

    def result(self) -> GraphStatistics:
        """Return the counts as plain data."""
        if self.graphs == 0:
            raise GraphError("There is no graph to take statistics of; the training set is empty.")
        return GraphStatistics(
            graphs=self.graphs,
            attributes=tuple(tuple(counts_K.tolist()) for counts_K in self.attributes),
            edge_types=tuple(self.edge_types.tolist()),
            in_degrees=tuple(tuple(sorted(counter.items())) for counter in self.in_degrees),
            out_degrees=tuple(tuple(sorted(counter.items())) for counter in self.out_degrees),
            layer_sizes=tuple(sorted(self.layer_sizes.items())),
            layer_counts=tuple(sorted(self.layer_counts.items())),
        )


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


def _count_degrees(degrees: list[Counter[int]], kind_N: np.ndarray, end_E: np.ndarray) -> None:
    degree_N = np.bincount(end_E, minlength=kind_N.size)
    pairs_P2, counts_P = np.unique(np.stack([kind_N, degree_N]), axis=1, return_counts=True)
    for (kind, degree), count in zip(pairs_P2.T.tolist(), counts_P.tolist(), strict=True):
        degrees[kind][degree] += count


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


SHARED_BY = 5
"""Training graphs that stand behind every figure in a checkpoint, where there are as many."""

FEW_CODES = 16
"""An attribute with more codes is a number in bins, or a name: what was not seen may be."""

Pairs = tuple[tuple[int, int], ...]
Holders = dict[int, set[int]]
"""The graphs that show each value."""


def shared_statistics(
    dags: Sequence[DAG], sizes: GraphSizes, *, layer_cap: int = 0, in_degree_cap: int = 0
) -> GraphStatistics:
    """Measure graphs, and keep what at least ``SHARED_BY`` of them share.

    A kind of which too few graphs have nodes gets the degrees of all other kinds. Where no graphs
    share anything, as in a set of one, all is kept. Numbers of layers are left out.

    Args:
        dags: Training graphs in any node order.
        sizes: Counts of the schema.
        layer_cap: Layer sizes from here on count as this one, which is kept however few graphs
            reach it: the shapes of weights that were trained before depend on it. 0: none.
        in_degree_cap: The same for in-degrees.

    Raises:
        GraphError: As ``GraphStatistics.measure``.
    """
    exact = GraphStatistics.measure(dags, sizes)
    parents: defaultdict[int, Holders] = defaultdict(_no_holders)
    children: defaultdict[int, Holders] = defaultdict(_no_holders)
    layer_holders = _no_holders()
    for graph, dag in enumerate(dags):
        kind_N = dag.x_NA[:, 0].numpy()
        for holders, end_E in zip((children, parents), dag.edge_index_2E.numpy(), strict=True):
            degree_N = np.bincount(end_E, minlength=kind_N.size)
            for kind, degree in np.unique(np.stack([kind_N, degree_N], 1), axis=0).tolist():
                _hold(holders[kind][degree], graph)
        for size in np.unique(np.bincount(dag.layer_N.numpy())).tolist():
            _hold(layer_holders[size], graph)
    listed_parents, listed_children = neighbor_kinds(
        dags, sizes.attributes[0], min(SHARED_BY, len(dags))
    )
    return replace(
        exact,
        graphs=_rounded_up(exact.graphs),
        attributes=tuple(tuple(map(_rounded_up, counts)) for counts in exact.attributes),
        edge_types=tuple(map(_rounded_up, exact.edge_types)),
        in_degrees=_by_kind(exact.in_degrees, parents, in_degree_cap),
        out_degrees=_by_kind(exact.out_degrees, children, 0),
        layer_sizes=_by_kind([exact.layer_sizes], {0: layer_holders}, layer_cap)[0],
        layer_counts=(),
        parents=listed_parents,
        children=listed_children,
        allowed_codes=allowed_codes(dags, sizes),
    )


def allowed_codes(dags: Sequence[DAG], sizes: GraphSizes) -> AllowedCodes:
    """Return which codes of a node go together, as far as ``SHARED_BY`` graphs show it.

    For a code that as many graphs have, the codes of a later attribute are restricted to those that
    its nodes have, if it is one code (a functional dependency), or if the later attribute has at
    most ``FEW_CODES`` and each of its codes stands behind as many graphs.
    """
    needed = min(SHARED_BY, len(dags))
    return tuple(
        tuple(_allowed_of_pair(dags, sizes.attributes, (a, b), needed) for b in later)
        for a, later in (
            (a, range(a + 1, len(sizes.attributes))) for a in range(len(sizes.attributes))
        )
    )


def edge_type_sets(dags: Sequence[DAG], sizes: GraphSizes) -> KindMultisets:
    """Return which types the edges to nodes of each kind have together.

    Where edge types are the places of an operator's arguments, a node has each place once. A kind
    has a list if all of its nodes have multisets that ``SHARED_BY`` graphs show, each with few
    types; empty where no kind has a list that rules anything out.
    """
    shown = _Tally(needed := min(SHARED_BY, len(dags)))
    if sizes.edge_types > 1:
        for graph, dag in enumerate(dags):
            kind_N = dag.x_NA[:, 0].numpy()
            shown.add(graph, kind_N, dag.edge_index_2E[1].numpy(), dag.edge_type_E.numpy())
    listed = shown.shared(sizes.attributes[0], needed).multisets
    nodes, unlisted = Counter[int](), Counter[int]()
    for (kind, multiset), count in shown.nodes.items():
        nodes[kind] += count
        unlisted[kind] += 0 if multiset in listed[kind] else count
    exact = tuple(
        () if unlisted[kind] > _RARE * nodes[kind] or any(map(_is_capped, sets)) else sets
        for kind, sets in enumerate(listed)
    )
    return exact if any(exact) else ()


_RARE = 0.01
"""Share of a kind's nodes whose edge types may be unlisted, which then are never drawn."""


def _is_capped(multiset: Sequence[int]) -> bool:
    return max(Counter(multiset).values(), default=0) >= MANY


def _allowed_of_pair(
    dags: Sequence[DAG], sizes: Sequence[int], pair: tuple[int, int], needed: int
) -> tuple[tuple[int, ...], ...]:
    """Return the codes of the second attribute for each code of the first; empty: any."""
    first, second = pair
    graphs_KL = np.zeros((sizes[first], sizes[second]), dtype=np.int64)
    for dag in dags:
        code_NA = dag.x_NA.numpy()
        seen = np.unique(code_NA[:, first] * sizes[second] + code_NA[:, second])
        graphs_KL.reshape(-1)[seen] += 1
    seen_KL = graphs_KL > 0
    one_K = (seen_KL.sum(axis=1) == 1) & (graphs_KL.max(axis=1) >= needed)
    shared_K = ((graphs_KL >= needed) | ~seen_KL).all(axis=1) & seen_KL.any(axis=1)
    few_K = shared_K & ~seen_KL.all(axis=1) & (sizes[second] <= FEW_CODES)
    if not (one_K | few_K).any():
        return ()
    return tuple(
        tuple(np.flatnonzero(seen_L).tolist()) if restricted else ()
        for seen_L, restricted in zip(seen_KL, one_K | few_K, strict=True)
    )


def _no_holders() -> Holders:
    return defaultdict(set)


def _hold(holders: set[int], graph: int) -> None:
    """Add a graph; more than ``SHARED_BY`` need not be told apart."""
    if len(holders) < SHARED_BY:
        holders.add(graph)


def _by_kind(exact: Sequence[Pairs], holders: Mapping[int, Holders], cap: int) -> tuple[Pairs, ...]:
    capped = {kind: _capped_counts(table, cap) for kind, table in holders.items()}
    most = max(len(graphs) for table in capped.values() for graphs in table.values())
    positions = {kind: _positions(t, min(SHARED_BY, most), cap) for kind, t in capped.items()}
    common = sorted({position for table in positions.values() for position in table.values()})
    merged: list[Pairs] = []
    for kind, pairs in enumerate(exact):
        if pairs and not positions[kind]:
            each = sum(count for _, count in pairs) // len(common)
            merged.append(tuple((position, _rounded_up(max(each, 1))) for position in common))
            continue
        total: defaultdict[int, int] = defaultdict(int)
        for value, count in pairs:
            total[positions[kind][min(value, cap) if cap else value]] += count
        merged.append(tuple((position, _rounded_up(total[position])) for position in sorted(total)))
    return tuple(merged)


def _capped_counts(holders: Holders, cap: int) -> Holders:
    """Return the holders with all values from ``cap`` on as one; 0 is no cap."""
    found = _no_holders()
    for value, graphs in holders.items():
        found[min(value, cap) if cap else value] |= graphs
    return found


def _positions(holders: Holders, needed: int, cap: int) -> dict[int, int]:
    """Return the value that stands for each value; empty if too few graphs have any.

    From the largest value down, values are merged until enough graphs show one of them; the
    smallest of them stands for all, so that as many graphs reach it. What is left over at the lower
    end goes to its neighbor. 0 is merged only if too few graphs show it: a node without parents is
    another thing than one with few.
    """
    positions: dict[int, int] = {}
    waiting: list[int] = []
    seen: set[int] = set()
    for value in sorted((value for value in holders if value > 0), reverse=True):
        waiting.append(value)
        seen |= holders[value]
        if len(seen) >= needed or value == cap:
            positions |= dict.fromkeys(waiting, value)
            waiting, seen = [], set()
    if len(holders.get(0, ())) >= needed:
        positions[0] = 0
    if not positions:
        return {}
    lowest = min(
        position for position in positions.values() if position or len(set(positions.values())) == 1
    )
    return {value: positions.get(value, lowest) for value in holders}


def _rounded_up(count: int) -> int:
    """Return the next multiple of ``SHARED_BY``; 0 stays 0."""
    return -(-count // SHARED_BY) * SHARED_BY


MEASURED = ("duration",)
"""Numeric attributes that differ from run to run of the same program."""

# Odd constants of MurmurHash3 and SplitMix64, which spread the bits of products modulo 2 ** 64.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xFF51AFD7ED558CCD)


def program_numbers(graphs: Sequence[AttributedGraph]) -> np.ndarray:
    """Return the number of each graph's program, int64 (G,), by first occurrence.

    Graphs whose nodes and edges have the same words and numbers are of one program, in whatever
    order they list them; durations may differ. What tells programs apart are the words and numbers
    at both ends of edges, so that rare graphs which differ elsewhere count as one: rather too few
    are counted.
    """
    codes: dict[str, int] = {}
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(_digest(g, codes), len(seen)) for g in graphs], np.int64)


def needed_programs(program_G: np.ndarray) -> int:
    """Return how many programs must share what the schema holds: all where there are few."""
    return min(SHARED_BY, len(np.unique(program_G)))


def condition_units(program_G: np.ndarray) -> np.ndarray:
    """Return what conditions are counted by: programs, or graphs where programs are too few.

    Of fewer programs than ``SHARED_BY`` nothing could be said else, such as of one program on many
    clusters.
    """
    few = len(np.unique(program_G)) < SHARED_BY
    return np.arange(len(program_G)) if few else program_G


def all_distinct(graphs: Sequence[AttributedGraph]) -> np.ndarray:
    """Return numbers that take each graph for a program of its own, int64 (G,)."""
    return np.arange(len(graphs))


def _digest(graph: AttributedGraph, codes: dict[str, int]) -> bytes:
    node_N = np.zeros(graph.num_nodes, np.uint64)
    with np.errstate(over="ignore"):
        for name in sorted(graph.categories):
            column = [codes.setdefault(word, len(codes)) for word in graph.categories[name]]
            node_N = _mixed(node_N, np.array(column, dtype=np.uint64))
        for name in sorted(set(graph.numbers) - set(MEASURED)):
            value_N = np.asarray(graph.numbers[name], dtype=np.float64)
            known_N = np.where(np.isnan(value_N), -1.0, value_N) + 0.0
            node_N = _mixed(node_N, known_N.view(np.uint64))
        kinds = [codes.setdefault(word, len(codes)) for word in graph.edge_type_names]
        kind_E = np.array(kinds, dtype=np.uint64)[graph.edge_type_E]
        source_E, target_E = graph.edge_index_2E
        edge_E = _mixed(_mixed(node_N[source_E], node_N[target_E]), kind_E)
    found = hashlib.blake2b(np.sort(node_N).tobytes(), digest_size=16)
    found.update(np.sort(edge_E).tobytes())
    return found.digest()


def _mixed(hash_N: np.ndarray, value_N: np.ndarray) -> np.ndarray:
    mixed_N = (hash_N ^ (value_N + _SPREAD)) * _MIX
    found_N: np.ndarray = mixed_N ^ (mixed_N >> np.uint64(29))
    return found_N
