"""Power laws of costs in the conditions of a job.

Conditions that are products of others in every training graph: ranks are so many replicas.

Letters: G graphs, C conditions.

Laws from training graphs, by least squares of logarithms: none that few graphs show.

Letters: G graphs, C conditions, R rows (a graph's mean for a kind of node), P parameters.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from layerdag.dag.statistics import all_distinct
from layerdag.errors import DataError, VocabularyError
from layerdag.graph.attributed_graph import LABEL, SIZE_CONDITIONS, AttributedGraph, Condition
from layerdag.graph.rolled_blocks import BLOCK, OUTSIDE
from layerdag.schema.costs import data_edges

_MOST_TERMS = 4
_EQUAL = 1e-6


@dataclass(frozen=True)
class Relation:
    """A product of conditions that equals another: ``world_size = tensor x pipeline x data``.

    Attributes:
        left: Names of the factors on one side.
        right: Names of the factors on the other.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All conditions that it relates."""
        return (*self.left, *self.right)

    def solved(self, name: str, values: Mapping[str, Condition]) -> float | None:
        """Return what a condition must be, given the others; None if one of them is unknown."""
        own, other = (self.left, self.right) if name in self.left else (self.right, self.left)
        logs = [log_of(values.get(n)) for n in (*other, *(n for n in own if n != name))]
        if any(math.isnan(log) for log in logs):
            return None
        found = math.exp(sum(logs[: len(other)]) - sum(logs[len(other) :]))
        return float(round(found)) if abs(found - round(found)) < _EQUAL * found else found

    def holds(self, values: Mapping[str, Condition]) -> bool | None:
        """Return whether conditions are so related; None if one of them is unknown."""
        found = self.solved(self.left[0], values)
        given = log_of(values.get(self.left[0]))
        if found is None or math.isnan(given):
            return None
        return abs(math.log(found) - given) < _EQUAL

    def __str__(self) -> str:
        """Return it as an equation."""
        return " = ".join(" x ".join(side) for side in (self.left, self.right))


def log_of(value: Condition | None) -> float:
    """Return the logarithm of a condition, also of a word that is a number; NaN where it is none.

    The same for what is not positive.
    """
    try:
        number = math.nan if value is None else float(value)
    except ValueError:
        return math.nan
    return math.log(number) if 0 < number < math.inf else math.nan


def find_relations(names: Sequence[str], log_GC: np.ndarray) -> tuple[Relation, ...]:
    """Return the relations of two to four conditions that hold in every graph.

    Args:
        names: Of the conditions, each of which differs among graphs.
        log_GC: Their logarithms.
    """
    found: list[Relation] = []
    for terms in range(2, _MOST_TERMS + 1):
        for chosen in itertools.combinations(range(len(names)), terms):
            if any({names[c] for c in chosen} > set(known.names) for known in found):
                continue
            found.extend(_relation(names, chosen, log_GC))
    return tuple(found)


def _relation(
    names: Sequence[str], chosen: tuple[int, ...], log_GC: np.ndarray
) -> Iterator[Relation]:
    """Yield the relation of exactly these conditions, if there is one."""
    for signs in itertools.product((1, -1), repeat=len(chosen) - 1):
        sign_C = np.array((1, *signs))
        if (sign_C > 0).all():
            continue
        if np.abs(log_GC[:, chosen] @ sign_C).max() < _EQUAL:
            sides = [tuple(names[c] for c, s in zip(chosen, sign_C, strict=True) if s == side)
                     for side in (1, -1)]  # fmt: skip
            yield Relation(*sorted(sides, key=len))
            return


Key = tuple[str, ...]
"""Attribute, kind of node, the words of the switches; the last two may be ``ANY``."""

ANY = "*"
_DIGITS = "0123456789"
_COMPUTE = "COMP"
_RESIDUAL_DIGITS = 3
_MOST_LOG = 300.0


@dataclass(frozen=True)
class PowerLaw:
    """A number as a product of powers of conditions, in logarithms.

    Attributes:
        intercept: At the usual conditions.
        exponents: Of each condition of ``Laws.numbers``.
        factors: Summand for each word of each condition of ``Laws.factors``; 0 for others.
    """

    intercept: float
    exponents: tuple[float, ...]
    factors: tuple[Mapping[str, float], ...] = ()


@dataclass(frozen=True)
class ScalingLaws:
    """How numbers follow from conditions, and conditions from each other.

    Attributes:
        numbers: Conditions whose powers are multiplied.
        usual: Logarithm of each that is taken where it is unknown: the mean of training graphs.
        switches: Conditions of two words; every combination of words has laws of its own.
        factors: Conditions of more words, each of which multiplies.
        laws: By attribute, kind of node and words of the switches.
        relations: Conditions that are products of others.
    """

    numbers: tuple[str, ...] = ()
    usual: tuple[float, ...] = ()
    switches: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()
    laws: Mapping[Key, PowerLaw] = field(default_factory=dict)
    relations: tuple[Relation, ...] = ()

    def __bool__(self) -> bool:
        """Whether numbers are relative."""
        return bool(self.laws)

    def relative(self, graph: AttributedGraph) -> AttributedGraph:
        """Return a graph with numbers over those of the laws, to three digits."""
        return self._scaled(graph, -1.0)

    def absolute(self, graph: AttributedGraph) -> AttributedGraph:
        """Return a graph with relative numbers times those of the laws."""
        return self._scaled(graph, 1.0)

    def _scaled(self, graph: AttributedGraph, sign: float) -> AttributedGraph:
        if not self:
            return graph
        kinds = node_kinds(graph)
        numbers = {}
        for name, value_N in graph.numbers.items():
            log_N = self._logs(name, kinds, graph.conditions)
            scaled_N = value_N * np.exp(np.clip(sign * log_N, -_MOST_LOG, _MOST_LOG))
            numbers[name] = scaled_N if sign > 0 else _to_digits(scaled_N)
        return replace(graph, numbers=numbers)

    def _logs(
        self, attribute: str, kinds: list[str], conditions: Mapping[str, Condition]
    ) -> np.ndarray:
        """Return the logarithm that the laws give to an attribute of each node."""
        known = {kind: self._log(attribute, kind, conditions) for kind in dict.fromkeys(kinds)}
        return np.array([known[kind] for kind in kinds])

    def _log(self, attribute: str, kind: str, conditions: Mapping[str, Condition]) -> float:
        switched = tuple(str(conditions.get(name, ANY)) for name in self.switches)
        anyhow = (ANY,) * len(self.switches)
        known = [
            (k, state) for k in (kind, kind_without_producer(kind)) for state in (switched, anyhow)
        ]
        for place, state in (*known, (ANY, anyhow)):
            key = (attribute, place, *state)
            law = self.laws.get(key)
            if law is not None:
                return self._value(law, conditions)
        return 0.0

    def _value(self, law: PowerLaw, conditions: Mapping[str, Condition]) -> float:
        total = law.intercept
        for name, usual, exponent in zip(self.numbers, self.usual, law.exponents, strict=True):
            log = log_of(conditions.get(name))
            total += exponent * (0.0 if math.isnan(log) else log - usual)
        for name, factor in zip(self.factors, law.factors, strict=True):
            total += factor.get(str(conditions.get(name)), 0.0)
        return total

    # ---- conditions ----

    def determines(self, name: str) -> bool:
        """Return whether a condition follows from others."""
        return any(name in relation.names for relation in self.relations)

    def completed(
        self, given: Mapping[str, Condition], words: Mapping[str, tuple[str, ...]]
    ) -> dict[str, Condition]:
        """Return conditions with those that follow from them.

        Args:
            given: Some conditions.
            words: Known words of categories.

        Raises:
            VocabularyError: If they contradict each other; names the equation.
        """
        found = dict(given)
        for relation in [*self.relations] * len(self.relations):
            unknown = [name for name in relation.names if name not in found]
            if len(unknown) == 1:
                value = relation.solved(unknown[0], found)
                if value is not None:
                    found[unknown[0]] = _word(value) if unknown[0] in words else value
        for relation in self.relations:
            if relation.holds(found) is False:
                said = ", ".join(f"{name}={found[name]}" for name in relation.names)
                raise VocabularyError(
                    f"These conditions contradict each other: {said}; in every training graph "
                    f"{relation}. Leave one of them out."
                )
        return found

    def evaluated(
        self, drawn: Mapping[str, Condition], given: Mapping[str, Condition],
        words: Mapping[str, tuple[str, ...]],
    ) -> dict[str, Condition]:  # fmt: skip
        """Return drawn conditions with one of each broken relation set right, as far as possible.

        Args:
            drawn: All conditions.
            given: Those that must stay.
            words: Known words of categories.
        """
        found, kept = {**drawn, **given}, set(given)
        for relation in self.relations:
            if relation.holds(found) is not False:
                continue
            for name in sorted(relation.names, key=words.__contains__):
                value = None if name in kept else relation.solved(name, found)
                if value is None or (name in words and _word(value) not in words[name]):
                    continue
                found[name] = _word(value) if name in words else value
                break
            kept |= set(relation.names)
        return found

    # ---- in a checkpoint ----

    def to_dict(self) -> dict[str, Any]:
        """Return the laws as JSON-serializable data."""
        return {
            "numbers": list(self.numbers),
            "usual": list(self.usual),
            "switches": list(self.switches),
            "factors": list(self.factors),
            "laws": [
                [list(key), law.intercept, list(law.exponents), [dict(f) for f in law.factors]]
                for key, law in self.laws.items()
            ],
            "relations": [[list(r.left), list(r.right)] for r in self.relations],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ScalingLaws":
        """Rebuild from ``to_dict``. Raises KeyError, TypeError or ValueError if malformed."""
        numbers, usual = _words(data["numbers"]), tuple(map(_finite, data["usual"]))
        switches, factors = _words(data["switches"]), _words(data["factors"])
        laws = dict(_read_laws(data["laws"]))
        sizes = (len(numbers), len(factors), 2 + len(switches))
        for key, law in laws.items():
            if (len(law.exponents), len(law.factors), len(key)) != sizes:
                raise ValueError("a law has other conditions than the rest")
        if len(usual) != len(numbers):
            raise ValueError("there must be a usual value for each condition")
        sides = [(_words(left), _words(right)) for left, right in data["relations"]]
        if not all(left and right for left, right in sides):
            raise ValueError("a relation has two sides")
        relations = tuple(Relation(left, right) for left, right in sides)
        return cls(numbers, usual, switches, factors, laws, relations)


NO_LAWS = ScalingLaws()


def node_kinds(graph: AttributedGraph) -> list[str]:
    """Return what tells the laws of nodes apart.

    It is the operator, whether it is in a block and the kind of its group; of communication also
    the operator that makes what is sent, the first by name.
    """
    count = graph.num_nodes
    word_N = next(iter(graph.categories.values()))
    group_N = graph.categories.get("group", [""] * count)
    block_N = graph.categories.get(BLOCK, [OUTSIDE] * count)
    made_N = _makers(graph, word_N)
    return [
        f"{word}|{'' if where == OUTSIDE else 'block'}|{group.rstrip(_DIGITS)}|{made}"
        for word, where, group, made in zip(word_N, block_N, group_N, made_N, strict=True)
    ]


def kind_without_producer(kind: str) -> str:
    """Return the kind of a node whatever makes what it sends."""
    return kind.rpartition("|")[0] + "|"


def _makers(graph: AttributedGraph, word_N: Sequence[str]) -> list[str]:
    """Return the first operator by name that each communication depends on; "" for the others."""
    found = [""] * graph.num_nodes
    type_N = graph.categories.get("type")
    if type_N is None:
        return found
    for source, target in graph.edge_index_2E[:, data_edges(graph)].T.tolist():
        if type_N[target] != _COMPUTE:
            found[target] = min(found[target] or word_N[source], word_N[source])
    return found


def _to_digits(value_N: np.ndarray) -> np.ndarray:
    """Round positive numbers to a few significant digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size_N = np.floor(np.log10(np.abs(value_N)))
    unit_N = 10.0 ** (np.where(np.isfinite(size_N), size_N, 0.0) - _RESIDUAL_DIGITS + 1)
    rounded_N: np.ndarray = np.rint(value_N / unit_N) * unit_N
    return rounded_N


def _word(value: float) -> str:
    return f"{value:.15g}"


def _words(data: Any) -> tuple[str, ...]:
    if not isinstance(data, list) or not all(isinstance(word, str) for word in data):
        raise TypeError("names must be a list of texts")
    return tuple(data)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("logarithms must be finite")
    return number


def _read_laws(rows: Any) -> Iterator[tuple[Key, PowerLaw]]:
    for key, intercept, exponents, factors in rows:
        yield (
            _words(key),
            PowerLaw(
                _finite(intercept),
                tuple(map(_finite, exponents)),
                tuple({str(word): _finite(v) for word, v in factor.items()} for factor in factors),
            ),
        )


_LEFT_OUT = (LABEL, *SIZE_CONDITIONS)
_ROWS_PER_PARAMETER = 2
_FIT_DIGITS = 6
_TWO = 2


def fit_laws(
    graphs: Sequence[AttributedGraph], needed: int, program_G: np.ndarray | None = None
) -> ScalingLaws:
    """Return how numbers of nodes follow from the conditions of graphs.

    Args:
        graphs: Training graphs.
        needed: Programs that must stand behind a law, and twice as many as it has parameters.
        program_G: Number of the program of each graph; all differ by default.

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
        all_distinct(graphs) if program_G is None else program_G,
    )
    laws = dict(sorted(table.laws(_means(graphs), needed).items()))
    if not laws:
        raise DataError(
            "Numbers cannot be made relative: no condition that differs among the training graphs "
            "is a positive number, or there are too few graphs; leave numbers=absolute."
        )
    usual = tuple(round(float(mean), _FIT_DIGITS) for mean in table.log_GC.mean(axis=0))
    return ScalingLaws(
        tuple(free), usual, tuple(table.switches), tuple(table.factors), laws, relations
    )


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
                    for each in dict.fromkeys((kind, kind_without_producer(kind), ANY)):
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
        program_G: Number of the program of each graph.
    """

    def __init__(
        self, numbers: tuple[str, ...], log_GC: np.ndarray, switches: Mapping[str, tuple[str, ...]],
        factors: Mapping[str, tuple[str, ...]], values: Mapping[str, Sequence[object]],
        program_G: np.ndarray,
    ) -> None:  # fmt: skip
        self._program_G = program_G
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
        count = len(np.unique(self._program_G[graph_R]))
        if count < max(needed, _ROWS_PER_PARAMETER * parameters):
            return None
        slope_P = np.zeros(design_RP.shape[1])
        centered_RP = (design_RP - center_P)[:, used_P]
        slope_P[used_P] = np.linalg.lstsq(centered_RP, log_R - log_R.mean(), rcond=1e-6)[0]
        intercept = round(float(log_R.mean() - center_P @ slope_P), _FIT_DIGITS)
        slopes = [round(float(slope), _FIT_DIGITS) + 0.0 for slope in slope_P]
        exponents, rest = slopes[: self.log_GC.shape[1]], slopes[self.log_GC.shape[1] :]
        factors = []
        for words in self.factors.values():
            factors.append(dict(zip(words[1:], rest[: len(words) - 1], strict=True)))
            rest = rest[len(words) - 1 :]
        return PowerLaw(intercept, tuple(exponents), tuple(factors))
