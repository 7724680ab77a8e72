"""Costs of operators from training graphs: nothing that fewer than ``needed`` graphs show.

What is counted are graphs, so that a number enters only if several jobs have it; shares are
of nodes or of data dependencies, rounded to two digits.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from layerdag.codec import AttributedGraph
from layerdag.codec.blocks import in_copy
from layerdag.datasets.schema import LABEL
from layerdag.datasets.schema.costs._fit_durations import fit_durations
from layerdag.datasets.schema.costs._products import PRODUCTS, fits_shapes
from layerdag.datasets.schema.costs._step_time import fit_step_time
from layerdag.datasets.schema.costs._table import (
    COST_NAMES,
    MOST,
    NO_COSTS,
    ByteRule,
    Cost,
    CostTable,
    OperatorCosts,
)

MOST_RULES = 24
_DIGITS = 2
_PLUS = (0, 4, 8)
_LARGEST_PER = 1 << 12


@dataclass(frozen=True, eq=False)
class _Shared:
    """Distinct rows that several graphs have, with the number of times they occur."""

    rows_RC: np.ndarray
    count_R: np.ndarray


def fit_costs(graphs: Sequence[AttributedGraph], needed: int) -> CostTable:
    """Return the costs that at least ``needed`` graphs share; none for other graphs than jobs.

    Args:
        graphs: Training graphs.
        needed: Graphs that must stand behind everything.
    """
    if not graphs or "op" not in graphs[0].categories or set(COST_NAMES) - set(graphs[0].numbers):
        return NO_COSTS
    operators = sorted({operator for graph in graphs for operator in graph.categories["op"]})
    code_of = {operator: code for code, operator in enumerate(operators)}
    op_N = np.array([code_of[w] for graph in graphs for w in graph.categories["op"]])
    size_G = [graph.num_nodes for graph in graphs]
    graph_N = np.repeat(np.arange(len(graphs)), size_G)
    cost_NC = np.concatenate([cost_columns(graph.numbers, graph.num_nodes) for graph in graphs])
    nodes = _shared(np.column_stack([op_N, cost_NC]), graph_N, needed)
    rules = _rules(op_N, cost_NC, graph_N, needed)
    calls_K = np.bincount(op_N, minlength=len(operators))
    costs_of = {
        operators[code]: _operator(nodes, code, int(calls_K[code]), rules.get(code, ()))
        for code in np.unique(nodes.rows_RC[:, 0]).tolist() + sorted(rules)
    }
    offset_G = np.cumsum([0, *size_G[:-1]])
    table = CostTable(
        dict(sorted(costs_of.items())),
        _steps(graphs, operators, (op_N, sizes_of(cost_NC), offset_G), needed),
        _products(operators, op_N, cost_NC),
    )
    return with_times(table, graphs, needed)


def with_times(table: CostTable, graphs: Sequence[AttributedGraph], needed: int) -> CostTable:
    """Return costs with the times of these jobs, which may be other jobs than the costs are from.

    Args:
        table: Costs; none stay none.
        graphs: Training graphs, as ``fit_costs`` needs them.
        needed: Graphs that must stand behind everything.
    """
    if not table or not graphs:
        return table
    cost_NC = np.concatenate([cost_columns(graph.numbers, graph.num_nodes) for graph in graphs])
    return replace(
        table,
        time=fit_step_time(graphs, LABEL, needed),
        durations=fit_durations(graphs, cost_NC, LABEL, needed),
    )


def cost_columns(numbers: Mapping[str, np.ndarray], num_nodes: int) -> np.ndarray:
    """Return ``COST_NAMES`` as int64 columns, 0 for absent."""
    absent_N = np.zeros(num_nodes)
    columns = [np.nan_to_num(numbers.get(name, absent_N), posinf=0) for name in COST_NAMES]
    return np.rint(np.clip(np.stack(columns, axis=1), 0, MOST / 2)).astype(np.int64)


def sizes_of(cost_NC: np.ndarray) -> np.ndarray:
    """Return the size of each node: of its message if there is one, else its FLOPs; 0 for none."""
    return np.where(cost_NC[:, 2] > 0, cost_NC[:, 2], cost_NC[:, 0])


def _shared(rows_NC: np.ndarray, graph_N: np.ndarray, needed: int) -> _Shared:
    """Return the distinct rows that at least ``needed`` graphs have."""
    order_N = np.lexsort((graph_N, *rows_NC.T[::-1]))
    rows_NC, graph_N = rows_NC[order_N], graph_N[order_N]
    new_N = np.ones(len(rows_NC), dtype=bool)
    new_N[1:] = (rows_NC[1:] != rows_NC[:-1]).any(axis=1)
    new_graph_N = new_N.copy()
    new_graph_N[1:] |= graph_N[1:] != graph_N[:-1]
    row_N = np.cumsum(new_N) - 1
    count_R = np.bincount(row_N)
    kept_R = np.bincount(row_N, weights=new_graph_N) >= needed
    return _Shared(rows_NC[new_N][kept_R], count_R[kept_R])


def _operator(nodes: _Shared, code: int, calls: int, rules: tuple[ByteRule, ...]) -> OperatorCosts:
    """Return what one operator costs."""
    mine_R = nodes.rows_RC[:, 0] == code
    costs: list[Cost] = [(f, b, c) for f, b, c in nodes.rows_RC[mine_R, 1:].tolist()]
    fractions = [_rounded(count / calls) for count in nodes.count_R[mine_R].tolist()]
    return OperatorCosts(tuple(costs), tuple(fractions), rules)


def _rules(
    op_N: np.ndarray, cost_NC: np.ndarray, graph_N: np.ndarray, needed: int
) -> dict[int, tuple[ByteRule, ...]]:
    """Return how bytes follow from sizes, by operator, the most frequent rules first."""
    size_N, bytes_N = sizes_of(cost_NC), cost_NC[:, 1]
    found: dict[int, tuple[ByteRule, ...]] = {}
    parts = []
    for plus in _PLUS:
        told_N = (size_N > 0) & (bytes_N > plus)
        top_N, size = bytes_N[told_N] - plus, size_N[told_N]
        common_N = np.gcd(top_N, size)
        row_NC = np.column_stack(
            [op_N[told_N], top_N // common_N, size // common_N, np.full(len(top_N), plus)]
        )
        # With an addend, only whole bytes per element: else anything would be a rule.
        simple_N = row_NC[:, 2] <= (_LARGEST_PER if plus == 0 else 1)
        parts.append(_shared(row_NC[simple_N], graph_N[told_N][simple_N], needed))
    rows_RC = np.concatenate([part.rows_RC for part in parts])
    count_R = np.concatenate([part.count_R for part in parts])
    for row in np.argsort(-count_R, kind="stable").tolist():
        code, times, per, plus = rows_RC[row].tolist()
        if len(found.get(code, ())) < MOST_RULES:
            found[code] = (*found.get(code, ()), ByteRule(times, per, plus))
    return found


def _products(operators: Sequence[str], op_N: np.ndarray, cost_NC: np.ndarray) -> tuple[str, ...]:
    """Return the matrix products of which all calls with both numbers may have shapes."""
    told_N = (cost_NC[:, :2] > 0).all(axis=1)
    fits_N = fits_shapes(cost_NC[:, 0].astype(np.float64), cost_NC[:, 1].astype(np.float64))
    found = []
    for code, operator in enumerate(operators):
        mine_N = told_N & (op_N == code)
        if operator in PRODUCTS and mine_N.any() and fits_N[mine_N].all():
            found.append(operator)
    return tuple(found)


def _steps(
    graphs: Sequence[AttributedGraph],
    operators: Sequence[str],
    nodes: tuple[np.ndarray, np.ndarray, np.ndarray],
    needed: int,
) -> dict[tuple[str, str], dict[Fraction, float]]:
    """Return how sizes change from parents to children, by their operators."""
    op_N, size_N, offset_G = nodes
    edges = [graph.edge_index_2E[:, data_edges(graph)] for graph in graphs]
    graph_E = np.repeat(np.arange(len(graphs)), [part.shape[1] for part in edges])
    edge_2E = np.concatenate(edges, axis=1) + offset_G[graph_E]
    told_E = (size_N[edge_2E] > 0).all(axis=0)
    edge_2E, graph_E = edge_2E[:, told_E], graph_E[told_E]
    below_E, above_E = size_N[edge_2E]
    common_E = np.gcd(below_E, above_E)
    op_2E = op_N[edge_2E]
    shared = _shared(
        np.column_stack([*op_2E, above_E // common_E, below_E // common_E]), graph_E, needed
    )
    total = np.bincount(op_2E[0] * len(operators) + op_2E[1], minlength=len(operators) ** 2)
    steps: dict[tuple[str, str], dict[Fraction, float]] = defaultdict(dict)
    for row, count in zip(shared.rows_RC.tolist(), shared.count_R.tolist(), strict=True):
        parent, child, top, bottom = row
        fraction = _rounded(count / int(total[parent * len(operators) + child]))
        steps[operators[parent], operators[child]][Fraction(top, bottom)] = fraction
    return dict(steps)


def data_edges(graph: AttributedGraph) -> np.ndarray:
    """Return which edges carry data, bool (E,); all where there is no such type.

    Of rolled blocks, those inside a copy.
    """
    if "data" not in graph.edge_type_names:
        return np.ones(graph.edge_index_2E.shape[1], dtype=bool)
    carries_T = np.array([in_copy(name, "data") for name in graph.edge_type_names], dtype=bool)
    carries_E: np.ndarray = carries_T[graph.edge_type_E]
    return carries_E


def _rounded(fraction: float) -> float:
    """Round to few significant digits."""
    return float(f"{fraction:.{_DIGITS}g}")
