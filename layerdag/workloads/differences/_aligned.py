"""Two programs aligned, with everything that is found on the way."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layerdag.graph import neighborhood_colors, repeated_runs
from layerdag.workloads.differences._alignment import Alignment, align
from layerdag.workloads.differences._figures import AlignedPrograms, Block, Stretch
from layerdag.workloads.differences._program import Program

_RADIUS = 2
_MOST_ROUNDS = 64
_MOST_RUNS = 2_000


@dataclass(frozen=True, eq=False)
class AlignedPair:
    """Two programs with the pairs of nodes that correspond to each other.

    Attributes:
        name: Which ranks, or which graph.
        a: One program.
        b: The other.
        label_a: A number for each operator of A, the same one in B.
        label_b: The same for B.
        alignment: The pairs.
    """

    name: str
    a: Program
    b: Program
    label_a: np.ndarray
    label_b: np.ndarray
    alignment: Alignment

    @classmethod
    def of(cls, name: str, a: Program, b: Program) -> "AlignedPair":
        """Align two programs."""
        numbers: dict[str, int] = {}
        label_a, label_b = (
            np.array([numbers.setdefault(op, len(numbers)) for op in p.operators], dtype=np.int64)
            for p in (a, b)
        )
        colors = [
            neighborhood_colors(label_N, program.edges_2E, _RADIUS)[-1]
            for label_N, program in ((label_a, a), (label_b, b))
        ]
        return cls(name, a, b, label_a, label_b, align(label_a, label_b, *colors))

    @cached_property
    def rewired(self) -> tuple[int, int]:
        """Number of dependencies between aligned nodes that only A has, and that only B has."""
        position_N = np.full(self.a.num_nodes, -1)
        pairs_2P = self.alignment.pairs_2P
        position_N[pairs_2P[0]] = pairs_2P[1]
        has_partner_N = np.isin(np.arange(self.b.num_nodes), pairs_2P[1])
        keys_a = self._keys(position_N[self.a.edges_2E], self.a.kind_E)
        inside_E = has_partner_N[self.b.edges_2E].all(axis=0)
        keys_b = self._keys(self.b.edges_2E[:, inside_E], self.b.kind_E[inside_E])
        only = np.setdiff1d(keys_a, keys_b).size, np.setdiff1d(keys_b, keys_a).size
        return (0, 0) if only != (0, 0) and self._is_renumbered() else only

    def _is_renumbered(self) -> bool:
        """Return whether the graphs are one graph with its nodes in another order.

        Refinement of the colors of both goes on until they fall into no more classes.
        """
        if self.a.num_nodes != self.b.num_nodes or self.alignment.only_a.size:
            return False
        count_a, shift = self.a.num_nodes, np.array([[self.a.num_nodes], [self.a.num_nodes]])
        edges_2E = np.concatenate([self.a.edges_2E, self.b.edges_2E + shift], axis=1)
        label_N = np.concatenate([self.label_a, self.label_b])
        classes = 0
        for _ in range(_MOST_ROUNDS):
            color_N = neighborhood_colors(label_N, edges_2E, 1)[-1]
            label_N = np.unique(color_N, return_inverse=True)[1].astype(np.int64)
            if not np.array_equal(np.sort(label_N[:count_a]), np.sort(label_N[count_a:])):
                return False
            if int(label_N.max()) + 1 == classes:
                break
            classes = int(label_N.max()) + 1
        return self._same_kinds_of_edges(label_N[:count_a], label_N[count_a:])

    def _same_kinds_of_edges(self, color_a: np.ndarray, color_b: np.ndarray) -> bool:
        """Return whether edges join the same colors by the same kinds in both."""
        keys_a, keys_b = (
            np.sort(self._keys(color[program.edges_2E], program.kind_E))
            for color, program in ((color_a, self.a), (color_b, self.b))
        )
        return np.array_equal(keys_a, keys_b)

    def _keys(self, ends_2E: np.ndarray, kind_E: np.ndarray) -> np.ndarray:
        """Return a number for each edge whose ends are known, the same one in both programs."""
        kinds = 1 + max(int(program.kind_E.max(initial=0)) for program in (self.a, self.b))
        known_E = (ends_2E >= 0).all(axis=0)
        source_E, target_E = ends_2E[:, known_E]
        ends_E = source_E * (self.a.num_nodes + self.b.num_nodes) + target_E
        return ends_E * kinds + kind_E[known_E]

    def programs(self) -> AlignedPrograms:
        """Return the figures of the alignment."""
        return AlignedPrograms(
            name=self.name,
            nodes=(self.a.num_nodes, self.b.num_nodes),
            aligned=self.alignment.pairs_2P.shape[1],
            moved=self.alignment.moved_2M.shape[1],
            edges=(self.a.edges_2E.shape[1], self.b.edges_2E.shape[1]),
            rewired=self.rewired,
            runs=tuple(self._runs())[:_MOST_RUNS],
            resized=int(self.a.is_communication_N[self.changed(("comm_bytes",))].sum()),
        )

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield what is aligned in a row, and what only one has."""
        at_a, at_b = self.alignment.in_order_2P
        cuts = np.flatnonzero((np.diff(at_a) != 1) | (np.diff(at_b) != 1)) + 1
        for part in np.split(np.arange(at_a.size), cuts) if at_a.size else ():
            yield int(at_a[part[0]]), int(at_b[part[0]]), part.size
        for start, length in _consecutive(self.alignment.only_a):
            yield start, -1, length
        for start, length in _consecutive(self.alignment.only_b):
            yield -1, start, length

    def stretches(self) -> Iterator[Stretch]:
        """Yield what only one of the two has."""
        sides = (("a", self.a, self.alignment.only_a), ("b", self.b, self.alignment.only_b))
        for side, program, only in sides:
            for start, length in _consecutive(only):
                operators = _counts(program.operators[start : start + length])
                yield Stretch(side, self.name, start, operators)

    def blocks(self) -> Iterator[Block]:
        """Yield blocks that repeat another number of times, the largest difference first."""
        first, second = (_blocks(p, label) for p, label in ((self.a, self.label_a),
            (self.b, self.label_b)))  # fmt: skip
        for key in dict.fromkeys((*first, *second)):
            count = first.get(key, 0), second.get(key, 0)
            operators = dict(key)
            if count[0] != count[1]:
                yield Block(self.name, sum(operators.values()), operators, count)

    def changed(self, names: Sequence[str]) -> np.ndarray:
        """Return the places in A of aligned nodes one of whose attributes is another one in B."""
        at_a, at_b = self.alignment.pairs_2P
        differs_P = np.zeros(at_a.size, dtype=bool)
        for name in names:
            absent = np.full(max(self.a.num_nodes, self.b.num_nodes), np.nan)
            value_a = self.a.columns.get(name, absent)[at_a]
            value_b = self.b.columns.get(name, absent)[at_b]
            differs_P |= (value_a != value_b) & ~(np.isnan(value_a) & np.isnan(value_b))
        return at_a[differs_P]


def _consecutive(rows: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield first place and length of each run of consecutive places."""
    if not rows.size:
        return
    for part in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
        yield int(part[0]), part.size


def _counts(operators: Sequence[str]) -> Mapping[str, int]:
    """Return operators and counts, the most frequent first."""
    return dict(sorted(Counter(operators).items(), key=lambda item: (-item[1], item[0])))


def _blocks(program: Program, label_N: np.ndarray) -> dict[tuple[tuple[str, int], ...], int]:
    """Return how often each block of at least two nodes occurs in a row, by its operators."""
    found: Counter[tuple[tuple[str, int], ...]] = Counter()
    for run in repeated_runs(label_N):
        if run.period > 1:
            block = program.operators[run.start : run.start + run.period]
            found[tuple(_counts(block).items())] += run.count
    return dict(found)
