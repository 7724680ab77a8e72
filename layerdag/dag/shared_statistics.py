"""Statistics of training graphs that may lie in a checkpoint: only what several graphs share.

Exact counts name single graphs: an operator that once has seven parents says that this graph was
trained on. So degrees and layer sizes are merged with their neighbors until at least ``SHARED_BY``
graphs stand behind each, and every count is rounded up to a multiple of that number.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.neighbors import neighbor_kinds
from layerdag.dag.program_numbers import SHARED_BY
from layerdag.dag.statistics import AllowedCodes, GraphStatistics

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
