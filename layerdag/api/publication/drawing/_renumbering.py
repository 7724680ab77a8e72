"""Other numbers for the nodes of a sample that have those of a single real run."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import final

import numpy as np
import torch

from layerdag._runtime import derive_seed, numpy_generator
from layerdag.codec import AttributedGraph
from layerdag.datasets.schema import GraphSchema, NumericAttribute
from layerdag.datasets.schema.costs import COST_NAMES, Cost
from layerdag.evaluation.privacy import tuple_keys
from layerdag.sampling import GeneratedGraph
from layerdag.sampling.numbers import NumberAssigner

SAME_BIN = 2
"""Trials in which drawn numbers stay in their bins; later ones move one to a neighboring bin."""
_DURATION = "duration"
_MOST_CHANGED = 0.1
"""By how much the logarithm of a duration changes at most."""


@final
class Renumbering:
    """Gives nodes other numbers until they have none of a single real run."""

    def __init__(self, schema: GraphSchema, unique: np.ndarray) -> None:
        """Avoid the keys ``unique`` (sorted, see ``tuple_keys``)."""
        self._schema = schema
        self._unique = unique

    @cached_property
    def _assigner(self) -> NumberAssigner:
        """Assigns costs that programs have."""
        return NumberAssigner(self._schema)

    def hits(self, graph: AttributedGraph) -> np.ndarray:
        """Return which nodes have the numbers of a single real run, bool (N,)."""
        return np.isin(keys_of(graph), self._unique)

    def again(self, sample: GeneratedGraph, trial: int) -> GeneratedGraph:
        """Return a sample with other numbers where it has those of a single run.

        Costs and durations of jobs are chosen anew among those that programs have and no single
        run alone has; numbers of other graphs are drawn anew in their bins, and then in the bins
        beside.

        Args:
            sample: What earlier trials made of it.
            trial: Counts from 0; another one gives other numbers.
        """
        if not self._schema.costs:
            return self._drawn_anew(sample, trial)
        seed = derive_seed(sample.seed, "numbers of a single run", trial)
        numbers = dict(sample.numbers)
        duration_N = sample.decoded.numbers.get(_DURATION)
        if duration_N is not None and np.isfinite(duration_N).any() and trial % 2 == 0:
            hit_N = self.hits(sample.decoded)
            numbers[_DURATION] = _other_durations(duration_N, hit_N, seed)
            if not self.hits(_with(sample, numbers)).any():
                return sample.with_numbers(numbers)
        allowed = _Allowed(sample, numbers, self._unique)
        found = self._assigner.numbers(sample.dag, seed if trial else sample.seed, allows=allowed)
        return sample.with_numbers({**numbers, **{name: found[name] for name in COST_NAMES}})

    def _drawn_anew(self, sample: GeneratedGraph, trial: int) -> GeneratedGraph:
        """Return a sample with other positions in bins, and in later trials other bins."""
        hit_N = self.hits(sample.decoded)
        rows = np.flatnonzero(hit_N) if hit_N.any() else np.arange(sample.dag.num_nodes)
        rng = numpy_generator(sample.seed, "numbers of a single run", trial)
        x_NA, u_NA = sample.dag.x_NA.clone(), sample.dag.u_NA.clone()
        counts = [
            a.num_codes if isinstance(a, NumericAttribute) else 0 for a in self._schema.attributes
        ]
        columns = [column for column, count in enumerate(counts) if count]
        fresh = rng.random((len(rows), len(columns)), dtype=np.float32)
        at = np.ix_(rows, np.array(columns, dtype=np.int64))
        u_NA[at] = torch.from_numpy(np.minimum(fresh, np.float32(1 - 2**-24)))
        for row in rows.tolist() if trial >= SAME_BIN else ():
            stated = [c for c in columns if x_NA[row, c] > 0 and counts[c] > 2]
            if stated:
                column = stated[int(rng.integers(len(stated)))]
                step = 1 if rng.random() < 0.5 else -1
                code = int(x_NA[row, column]) + step
                inside = 1 <= code < counts[column]
                x_NA[row, column] = code if inside else code - 2 * step
        u_NA[x_NA == 0] = 0
        drawn = replace(sample, dag=sample.dag.with_columns(x_NA, u_NA), numbers={})
        if not sample.numbers:
            return drawn
        numbers = {name: value_N.copy() for name, value_N in sample.numbers.items()}
        for name, value_N in numbers.items():
            value_N[rows] = drawn.decoded.numbers[name][rows]
        return drawn.with_numbers(numbers)


@final
class _Allowed:
    """Which costs the nodes of a sample may have beside the rest of their numbers."""

    def __init__(
        self, sample: GeneratedGraph, numbers: dict[str, np.ndarray], unique: np.ndarray
    ) -> None:
        graph = _with(sample, numbers)
        self._operators = next(iter(graph.categories.values()))
        self._numbers = graph.numbers
        self._unique = unique

    def __call__(self, node: int, costs: Sequence[Cost]) -> Sequence[bool]:
        """Return for each cost whether no single real run alone has it."""
        column_of = dict(zip(COST_NAMES, np.array(costs, dtype=np.float64).T, strict=True))
        columns = [
            column_of.get(name, np.full(len(costs), value_N[node]))
            for name, value_N in self._numbers.items()
        ]
        keys = tuple_keys([self._operators[node]] * len(costs), columns)
        return [not hit for hit in np.isin(keys, self._unique).tolist()]


def _other_durations(duration_N: np.ndarray, hit_N: np.ndarray, seed: int) -> np.ndarray:
    """Return durations of which some are a little longer or shorter, at least 1."""
    rng = numpy_generator(seed, _DURATION)
    factor_N = np.exp(rng.uniform(-_MOST_CHANGED, _MOST_CHANGED, len(duration_N)))
    return np.where(hit_N, np.maximum(np.rint(duration_N * factor_N), 1), duration_N)


def _with(sample: GeneratedGraph, numbers: dict[str, np.ndarray]) -> AttributedGraph:
    """Return the graph of a sample, node by node of its DAG, with some of its numbers replaced."""
    return replace(sample.decoded, numbers={**sample.decoded.numbers, **numbers})


def keys_of(graph: AttributedGraph) -> np.ndarray:
    """Return a key of each node's operator and numbers, uint64 (N,)."""
    operators = next(iter(graph.categories.values()))
    return tuple_keys(operators, list(graph.numbers.values()))
