"""Laws from training graphs, by least squares of logarithms: none that few graphs show.

Letters: G graphs, C conditions, R rows (a graph's mean for a kind of node), P parameters.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from layerdag.codec import SIZE_CONDITIONS, AttributedGraph
from layerdag.datasets.schema import LABEL
from layerdag.datasets.schema.laws._laws import ANY, Key, Laws, PowerLaw, node_kinds, without_maker
from layerdag.datasets.schema.laws._relations import find_relations, log_of
from layerdag.errors import DataError

_LEFT_OUT = (LABEL, *SIZE_CONDITIONS)
_ROWS_PER_PARAMETER = 2
_DIGITS = 6
_TWO = 2


def fit_laws(graphs: Sequence[AttributedGraph], needed: int) -> Laws:
    """Return how numbers of nodes follow from the conditions of graphs.

    Args:
        graphs: Training graphs.
        needed: Graphs that must stand behind a law, and twice as many as it has parameters.

    Raises:
        DataError: If no number goes with any condition.
    """
    names = [
        n for n in dict.fromkeys(n for g in graphs for n in g.conditions) if n not in _LEFT_OUT
    ]
    values = {name: [graph.conditions.get(name) for graph in graphs] for name in names}
    logs = {name: np.array([log_of(value) for value in column]) for name, column in values.items()}
    numbers = [n for n in names if np.isfinite(logs[n]).all() and np.ptp(logs[n]) > 0]
    words = {n: sorted({str(v) for v in values[n]}) for n in names if n not in numbers}
    log_GC = np.stack([logs[n] for n in numbers], axis=1) if numbers else np.zeros((len(graphs), 0))
    relations = find_relations(numbers, log_GC)
    free = _independent(numbers, [relation.names for relation in relations])
    table = _Table(
        tuple(free),
        log_GC[:, [numbers.index(name) for name in free]],
        {n: tuple(w) for n, w in words.items() if len(w) == _TWO},
        {n: tuple(w) for n, w in words.items() if len(w) > _TWO},
        values,
    )
    laws = dict(sorted(table.laws(_means(graphs), needed).items()))
    if not laws:
        raise DataError(
            "Numbers cannot be made relative: no condition that differs among the training graphs "
            "is a positive number, or there are too few graphs; leave numbers=absolute."
        )
    usual = tuple(round(float(mean), _DIGITS) for mean in table.log_GC.mean(axis=0))
    return Laws(tuple(free), usual, tuple(table.switches), tuple(table.factors), laws, relations)


def _independent(numbers: Sequence[str], related: Sequence[tuple[str, ...]]) -> list[str]:
    """Leave out one condition of each relation: the one that comes last."""
    dropped: set[str] = set()
    for names in related:
        rest = [name for name in numbers if name in names and name not in dropped]
        if len(rest) == len(names):
            dropped.add(rest[-1])
    return [name for name in numbers if name not in dropped]


_Means = Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]]


def _means(graphs: Sequence[AttributedGraph]) -> _Means:
    """Return (graph, mean logarithm) of each attribute of each kind of node, and of all kinds."""
    rows: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for number, graph in enumerate(graphs):
        kinds = node_kinds(graph)
        for name, value_N in graph.numbers.items():
            logs: dict[str, list[float]] = defaultdict(list)
            for kind, value in zip(kinds, value_N.tolist(), strict=True):
                if value > 0:
                    for each in dict.fromkeys((kind, without_maker(kind), ANY)):
                        logs[each].append(float(np.log(value)))
            for kind, found in logs.items():
                rows[name, kind].append((number, float(np.mean(found))))
    return {
        key: (np.array([g for g, _ in found]), np.array([log for _, log in found]))
        for key, found in rows.items()
    }


class _Table:
    """Conditions of training graphs, as laws need them.

    Args:
        numbers: Conditions with exponents.
        log_GC: Their logarithms.
        switches: Words of conditions of two words.
        factors: Words of conditions of more words.
        values: Every condition of every graph.
    """

    def __init__(
        self, numbers: tuple[str, ...], log_GC: np.ndarray, switches: Mapping[str, tuple[str, ...]],
        factors: Mapping[str, tuple[str, ...]], values: Mapping[str, Sequence[object]],
    ) -> None:  # fmt: skip
        self.log_GC, self.switches, self.factors = log_GC, switches, factors
        self._center_C = log_GC.mean(axis=0)
        states = zip(*([str(v) for v in values[name]] for name in switches), strict=True)
        self._state_G = [*states] if switches else [()] * len(log_GC)
        self._flag_GP = [
            np.array([[str(v) == word for word in words[1:]] for v in values[name]], dtype=float)
            for name, words in factors.items()
        ]

    def laws(self, means: _Means, needed: int) -> dict[Key, PowerLaw]:
        """Return every law that enough graphs show."""
        found: dict[Key, PowerLaw] = {}
        for (attribute, kind), (graph_R, log_R) in means.items():
            by_state: dict[tuple[str, ...], list[int]] = defaultdict(list)
            by_state[(ANY,) * len(self.switches)] = [*range(len(graph_R))]
            if kind != ANY and self.switches:
                for row, graph in enumerate(graph_R.tolist()):
                    by_state[self._state_G[graph]].append(row)
            for state, rows in by_state.items():
                law = self._law(graph_R[rows], log_R[rows], needed)
                if law is not None:
                    found[(attribute, kind, *state)] = law
        return found

    def _law(self, graph_R: np.ndarray, log_R: np.ndarray, needed: int) -> PowerLaw | None:
        """Fit one law; None where too few graphs show it."""
        parts = [(self.log_GC - self._center_C)[graph_R], *(f[graph_R] for f in self._flag_GP)]
        design_RP = np.concatenate(parts, axis=1)
        center_P = design_RP.mean(axis=0)
        used_P = np.ptp(design_RP, axis=0) > 0
        parameters = 1 + int(used_P.sum())
        if len(graph_R) < max(needed, _ROWS_PER_PARAMETER * parameters):
            return None
        slope_P = np.zeros(design_RP.shape[1])
        centered_RP = (design_RP - center_P)[:, used_P]
        slope_P[used_P] = np.linalg.lstsq(centered_RP, log_R - log_R.mean(), rcond=1e-6)[0]
        intercept = round(float(log_R.mean() - center_P @ slope_P), _DIGITS)
        slopes = [round(float(slope), _DIGITS) + 0.0 for slope in slope_P]
        exponents, rest = slopes[: self.log_GC.shape[1]], slopes[self.log_GC.shape[1] :]
        factors = []
        for words in self.factors.values():
            factors.append(dict(zip(words[1:], rest[: len(words) - 1], strict=True)))
            rest = rest[len(words) - 1 :]
        return PowerLaw(intercept, tuple(exponents), tuple(factors))
