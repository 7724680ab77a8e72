"""Laws as they lie in a schema, and what they say of the nodes of a graph."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from layerdag.codec import AttributedGraph
from layerdag.codec.blocks import BLOCK, OUTSIDE
from layerdag.datasets.schema.costs import data_edges
from layerdag.datasets.schema.laws._relations import Relation, log_of
from layerdag.errors import VocabularyError
from layerdag.graph import Condition

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
class Laws:
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
        known = [(k, state) for k in (kind, without_maker(kind)) for state in (switched, anyhow)]
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

    def settled(
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
    def from_dict(cls, data: Mapping[str, Any]) -> "Laws":
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


NO_LAWS = Laws()


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


def without_maker(kind: str) -> str:
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
