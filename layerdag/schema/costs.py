"""Costs of operators that several jobs share.

What a matrix product takes and moves: FLOPs and bytes from the sizes of its matrices.

The product of B pairs of (M, K) and (K, N) matrices takes 2 B M K N operations and moves
B (MK + KN + MN) elements; ``addmm`` adds a bias of N, ``baddbmm`` a third batch of (M, N).

Costs of operators from training graphs: nothing that fewer than ``needed`` graphs show.

What is counted are graphs, so that a number enters only if several jobs have it; shares are
of nodes or of data dependencies, rounded to two digits.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from layerdag.dag.statistics import all_distinct, condition_units
from layerdag.graph.attributed_graph import LABEL, AttributedGraph
from layerdag.graph.rolled_blocks import in_copy
from layerdag.schema.durations import Durations, StepTime, fit_durations, fit_step_time

_SLACK = 1e-9
_LARGEST_ELEMENT = 8


class ExtraOperand(Enum):
    """What a product reads besides its two factors."""

    NONE = "none"
    ROW = "row"
    MATRIX = "matrix"


@dataclass(frozen=True)
class ProductForm:
    """The cost rule of an operator that multiplies matrices.

    Attributes:
        batched: Whether there are several pairs of matrices.
        addend: What is added.
    """

    batched: bool
    addend: ExtraOperand

    def cost(
        self, b_S: np.ndarray, m_S: np.ndarray, k_S: np.ndarray, n_S: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the operations and the elements moved for some shapes."""
        added_S = {
            ExtraOperand.NONE: 0 * n_S,
            ExtraOperand.ROW: n_S,
            ExtraOperand.MATRIX: m_S * n_S,
        }[self.addend]
        return 2 * b_S * m_S * k_S * n_S, b_S * (m_S * k_S + k_S * n_S + m_S * n_S + added_S)


PRODUCTS = {
    "aten::mm": ProductForm(False, ExtraOperand.NONE),
    "aten::addmm": ProductForm(False, ExtraOperand.ROW),
    "aten::bmm": ProductForm(True, ExtraOperand.NONE),
    "aten::baddbmm": ProductForm(True, ExtraOperand.MATRIX),
}
"""Operators by name, as ``layerdag.traces.pytorch`` counts what they take and move."""


def fits_shapes(flops_N: np.ndarray, bytes_N: np.ndarray) -> np.ndarray:
    """Return which numbers of matrix products some shapes may have, bool (N,).

    Operations are even. Of F, at least 3 (F/2)^(2/3) elements are moved, for that is the least
    that MK + KN + MN can be (inequality of means), and at most 4 F/2, of at most 8 bytes.
    """
    pairs_N = flops_N / 2
    least_N, most_N = 3 * pairs_N ** (2 / 3) * (1 - _SLACK), 4 * pairs_N * _LARGEST_ELEMENT
    fits_N: np.ndarray = (flops_N % 2 == 0) & (bytes_N >= least_N) & (bytes_N <= most_N)
    return fits_N


COST_NAMES = ("flops", "bytes", "comm_bytes")
"""The numbers of a cost, in their order; 0 stands for absent."""
MOST = 1 << 62

Cost = tuple[int, int, int]


@dataclass(frozen=True)
class ByteRule:
    """Bytes that follow from the size of a node: ``times * size / per + plus``.

    The size is that of the message if the node communicates, else the FLOPs, which for element-wise
    operators count the elements.
    """

    times: int
    per: int
    plus: int

    def bytes_of(self, size: int) -> int:
        """Return the bytes of a size that is a multiple of ``per``."""
        return self.times * (size // self.per) + self.plus


@dataclass(frozen=True)
class OperatorCosts:
    """What calls of one operator cost.

    Attributes:
        costs: FLOPs, bytes, bytes of communication, as several training jobs have them together.
        shares: How often each of them occurs among the operator's calls.
        rules: How bytes follow from the size in several jobs, the most frequent first.
    """

    costs: tuple[Cost, ...]
    fractions: tuple[float, ...]
    rules: tuple[ByteRule, ...]


@dataclass(frozen=True)
class CostTable:
    """What nodes cost, and how costs of parents and children go together.

    Attributes:
        operators: By operator.
        steps: By the operators of a parent and its child along a data dependency: the share of such
            pairs in which the child's size is so many times the parent's.
        products: Matrix products whose FLOPs and bytes follow from shapes, as
            ``layerdag.schema.costs.PRODUCTS`` says.
        time: How the sum of durations goes with the step time; None if that is not known.
        durations: How long nodes take; None if that is not known.
    """

    operators: Mapping[str, OperatorCosts] = field(default_factory=dict)
    steps: Mapping[tuple[str, str], Mapping[Fraction, float]] = field(default_factory=dict)
    products: tuple[str, ...] = ()
    time: StepTime | None = None
    durations: Durations | None = None

    def __bool__(self) -> bool:
        """Return whether there is any operator."""
        return bool(self.operators)

    @cached_property
    def step_shares(self) -> Mapping[tuple[str, str], Mapping[float, float]]:
        """``steps`` with quotients as float64, as division of two whole numbers gives them."""
        return {
            pair: {
                ratio.numerator / ratio.denominator: fraction for ratio, fraction in found.items()
            }
            for pair, found in self.steps.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON-serializable data."""
        return {
            "operators": {
                name: {
                    "costs": [
                        [*cost, fraction]
                        for cost, fraction in zip(entry.costs, entry.fractions, strict=True)
                    ],
                    "rules": [[rule.times, rule.per, rule.plus] for rule in entry.rules],
                }
                for name, entry in self.operators.items()
            },
            "steps": [
                [*pair, [[r.numerator, r.denominator, fraction] for r, fraction in found.items()]]
                for pair, found in self.steps.items()
            ],
            "products": list(self.products),
            "time": None if self.time is None else self.time.to_dict(),
            **({} if self.durations is None else {"durations": self.durations.to_dict()}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "CostTable":
        """Rebuild from ``to_dict``. Raises KeyError, TypeError or ValueError if malformed."""
        operators = {str(name): _entry(entry) for name, entry in data["operators"].items()}
        steps = {
            (str(parent), str(child)): {
                Fraction(_whole(top, 1), _whole(bottom, 1)): _fraction(fraction)
                for top, bottom, fraction in found
            }
            for parent, child, found in data["steps"]
        }
        products = tuple(str(name) for name in data["products"])
        if set(products) - set(PRODUCTS):
            raise ValueError(f"matrix products are {', '.join(PRODUCTS)}")
        time = None if data["time"] is None else StepTime.from_dict(data["time"])
        durations = Durations.from_dict(data["durations"]) if "durations" in data else None
        return cls(operators, steps, products, time, durations)


NO_COSTS = CostTable()


def _entry(data: Mapping[str, Any]) -> OperatorCosts:
    rows = [(_cost(row[:3]), _fraction(row[3])) for row in data["costs"]]
    return OperatorCosts(
        costs=tuple(cost for cost, _ in rows),
        fractions=tuple(fraction for _, fraction in rows),
        rules=tuple(
            ByteRule(_whole(times, 1), _whole(per, 1), _whole(plus, 0))
            for times, per, plus in data["rules"]
        ),
    )


def _cost(row: Any) -> Cost:
    flops, moved, sent = (_whole(number, 0) for number in row)
    return flops, moved, sent


def _whole(number: Any, least: int) -> int:
    if not isinstance(number, int) or not least <= number < MOST:
        raise ValueError(f"whole numbers from {least} are needed, found {number!r:.40}")
    return number


def _fraction(fraction: Any) -> float:
    """Return a share, above 0 and at most 1."""
    if not 0 < float(fraction) <= 1:
        raise ValueError(f"a share is above 0 and at most 1, found {fraction!r:.40}")
    return float(fraction)


MOST_RULES = 24
_DIGITS = 2
_PLUS = (0, 4, 8)
_LARGEST_PER = 1 << 12


@dataclass(frozen=True, eq=False)
class _Shared:
    rows_RC: np.ndarray
    count_R: np.ndarray


def fit_costs(
    graphs: Sequence[AttributedGraph], needed: int, program_G: np.ndarray | None = None
) -> CostTable:
    """Return the costs that at least ``needed`` programs share; none for other graphs than jobs.

    Args:
        graphs: Training graphs.
        needed: Programs that must stand behind everything.
        program_G: Number of the program of each graph; all differ by default.
    """
    if not graphs or "op" not in graphs[0].categories or set(COST_NAMES) - set(graphs[0].numbers):
        return NO_COSTS
    operators = sorted({operator for graph in graphs for operator in graph.categories["op"]})
    code_of = {operator: code for code, operator in enumerate(operators)}
    op_N = np.array([code_of[w] for graph in graphs for w in graph.categories["op"]])
    size_G = [graph.num_nodes for graph in graphs]
    program_G = all_distinct(graphs) if program_G is None else program_G
    graph_N = np.repeat(program_G, size_G)
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
        _steps(graphs, operators, (op_N, sizes_of(cost_NC), offset_G), needed, program_G),
        _products(operators, op_N, cost_NC),
    )
    return with_times(table, graphs, needed, program_G)


def with_times(
    table: CostTable,
    graphs: Sequence[AttributedGraph],
    needed: int,
    program_G: np.ndarray | None = None,
) -> CostTable:
    """Return costs with the times of these jobs, which may be other jobs than the costs are from.

    Args:
        table: Costs; none stay none.
        graphs: Training graphs, as ``fit_costs`` needs them.
        needed: Programs that must stand behind everything.
        program_G: Number of the program of each graph; all differ by default.
    """
    if not table or not graphs:
        return table
    cost_NC = np.concatenate([cost_columns(graph.numbers, graph.num_nodes) for graph in graphs])
    unit_G = None if program_G is None else condition_units(program_G)
    return replace(
        table,
        time=fit_step_time(graphs, LABEL, needed, unit_G),
        durations=fit_durations(graphs, cost_NC, LABEL, needed, program_G),
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
    mine_R = nodes.rows_RC[:, 0] == code
    costs: list[Cost] = [(f, b, c) for f, b, c in nodes.rows_RC[mine_R, 1:].tolist()]
    fractions = [_rounded(count / calls) for count in nodes.count_R[mine_R].tolist()]
    return OperatorCosts(tuple(costs), tuple(fractions), rules)


def _rules(
    op_N: np.ndarray, cost_NC: np.ndarray, graph_N: np.ndarray, needed: int
) -> dict[int, tuple[ByteRule, ...]]:
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
    program_G: np.ndarray,
) -> dict[tuple[str, str], dict[Fraction, float]]:
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
        np.column_stack([*op_2E, above_E // common_E, below_E // common_E]),
        program_G[graph_E],
        needed,
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
    return float(f"{fraction:.{_DIGITS}g}")
