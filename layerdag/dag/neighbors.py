"""Multisets of neighbors that the nodes of each kind have in several graphs."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.program_numbers import SHARED_BY

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
            own = sorted_E[start:end]
            kept = (one for i, one in enumerate(own) if i < MANY or own[i - MANY] != one)
            shown = (kind, tuple(kept))
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
        ()
        if unlisted[kind] > _RARE * nodes[kind]
        or any(max(Counter(multiset).values(), default=0) >= MANY for multiset in sets)
        else sets
        for kind, sets in enumerate(listed)
    )
    return exact if any(exact) else ()


_RARE = 0.01
"""Share of a kind's nodes whose edge types may be unlisted, which then are never drawn."""
