"""What differs between two programs, as figures and as text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np

from layerdag.differences.alignment import Alignment, OperatorSequence, align
from layerdag.graph.repeats import repeated_runs
from layerdag.graph.topology import neighborhood_colors
from layerdag.runtime.settings import shorten

Pair: TypeAlias = tuple[float | int | None, float | int | None]
"""A figure of A and of B; None where there is none."""


@dataclass(frozen=True)
class PairedValue:
    """One figure of both.

    Attributes:
        name: What it is.
        a: Of A; None if A has none.
        b: Of B; None if B has none.
        unit: Its unit, "" for none.
    """

    name: str
    a: float | None
    b: float | None
    unit: str = ""

    @property
    def differs(self) -> bool:
        """Whether A and B have different figures."""
        return self.a != self.b


@dataclass(frozen=True)
class Operator:
    """An operator in both programs.

    Attributes:
        name: Its name; numbers that stand alone in it are written as "#".
        count: Number of its nodes in A and in B.
        numbers: Sums of the numeric attributes, in A and in B.
        changed: Aligned nodes one of whose attributes, times aside, is another one in B.
    """

    name: str
    count: tuple[int, int]
    numbers: Mapping[str, Pair]
    changed: int

    @property
    def differs(self) -> bool:
        """Whether counts or sums differ, times aside."""
        timeless = (pair for name, pair in self.numbers.items() if name not in TIMES)
        sums = any(a != b for a, b in timeless)
        return self.changed > 0 or sums or self.count[0] != self.count[1]


TIMES = ("duration_us",)
"""Numeric attributes that are times."""


@dataclass(frozen=True)
class UnmatchedRun:
    """Nodes in a row, in program order, that only one of the two has.

    Attributes:
        side: "a" or "b", which one has them.
        program: Which ranks, or which graph.
        start: Place of the first one in program order.
        operators: Names and counts, the most frequent first.
    """

    side: str
    program: str
    start: int
    operators: Mapping[str, int]

    @property
    def length(self) -> int:
        """Number of nodes."""
        return sum(self.operators.values())


@dataclass(frozen=True)
class RepeatedBlockDelta:
    """A block of nodes that occurs several times in a row, another number of times in B.

    Attributes:
        program: Which ranks, or which graph.
        nodes: Nodes of one block.
        operators: Names and counts in one block, the most frequent first.
        count: How often it occurs in A and in B.
    """

    program: str
    nodes: int
    operators: Mapping[str, int]
    count: tuple[int, int]


@dataclass(frozen=True)
class CommunicationDelta:
    """Collectives of one kind in groups of one size, or messages.

    Attributes:
        kind: Kind of collective, or "message".
        ranks: Ranks in a group; 0 if it is not described, 2 for messages.
        count: How many in A and in B; a collective counts once for its group.
        bytes: Their bytes in A and in B: of each, what one member gives.
    """

    kind: str
    ranks: int
    count: tuple[int, int]
    bytes: tuple[int, int]

    @property
    def differs(self) -> bool:
        """Whether count or bytes differ."""
        return self.count[0] != self.count[1] or self.bytes[0] != self.bytes[1]


@dataclass(frozen=True)
class AlignedPrograms:
    """One kind of rank (or the graph) of A beside one of B.

    Attributes:
        name: Which ranks, or which graph.
        nodes: Nodes of A and of B.
        aligned: Pairs of nodes that correspond to each other.
        moved: Those among them that stand elsewhere in the order of the program.
        edges: Dependencies of A and of B.
        rewired: Dependencies between aligned nodes that only A has, and that only B has.
        runs: (place in A, place in B, length) of what is aligned in a row; a place of -1 and the
            length for what only one has.
        resized: Aligned sends, receives and collectives of other bytes.
    """

    name: str
    nodes: tuple[int, int]
    aligned: int
    moved: int
    edges: tuple[int, int]
    rewired: tuple[int, int]
    runs: tuple[tuple[int, int, int], ...]
    resized: int = 0

    @property
    def differs(self) -> bool:
        """Whether nodes or dependencies differ."""
        all_aligned = self.aligned == self.nodes[0] == self.nodes[1]
        return not all_aligned or self.rewired != (0, 0)


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
    a: OperatorSequence
    b: OperatorSequence
    label_a: np.ndarray
    label_b: np.ndarray
    alignment: Alignment

    @classmethod
    def from_sequences(cls, name: str, a: OperatorSequence, b: OperatorSequence) -> "AlignedPair":
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
        keys_a, keys_b = (
            np.sort(self._keys(color[program.edges_2E], program.kind_E))
            for color, program in ((label_N[:count_a], self.a), (label_N[count_a:], self.b))
        )
        return np.array_equal(keys_a, keys_b)

    def _keys(self, ends_2E: np.ndarray, kind_E: np.ndarray) -> np.ndarray:
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
        at_a, at_b = self.alignment.in_order_2P
        cuts = np.flatnonzero((np.diff(at_a) != 1) | (np.diff(at_b) != 1)) + 1
        for part in np.split(np.arange(at_a.size), cuts) if at_a.size else ():
            yield int(at_a[part[0]]), int(at_b[part[0]]), part.size
        for start, length in _consecutive(self.alignment.only_a):
            yield start, -1, length
        for start, length in _consecutive(self.alignment.only_b):
            yield -1, start, length

    def stretches(self) -> Iterator[UnmatchedRun]:
        """Yield what only one of the two has."""
        sides = (("a", self.a, self.alignment.only_a), ("b", self.b, self.alignment.only_b))
        for side, program, only in sides:
            for start, length in _consecutive(only):
                operators = _counts(program.operators[start : start + length])
                yield UnmatchedRun(side, self.name, start, operators)

    def blocks(self) -> Iterator[RepeatedBlockDelta]:
        """Yield blocks that repeat another number of times, the largest difference first."""
        first, second = (_blocks(p, label) for p, label in ((self.a, self.label_a),
            (self.b, self.label_b)))  # fmt: skip
        for key in dict.fromkeys((*first, *second)):
            count = first.get(key, 0), second.get(key, 0)
            operators = dict(key)
            if count[0] != count[1]:
                yield RepeatedBlockDelta(self.name, sum(operators.values()), operators, count)

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
    if not rows.size:
        return
    for part in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
        yield int(part[0]), part.size


def _counts(operators: Sequence[str]) -> Mapping[str, int]:
    return dict(sorted(Counter(operators).items(), key=lambda item: (-item[1], item[0])))


def _blocks(
    program: OperatorSequence, label_N: np.ndarray
) -> dict[tuple[tuple[str, int], ...], int]:
    found: Counter[tuple[tuple[str, int], ...]] = Counter()
    for run in repeated_runs(label_N):
        if run.period > 1:
            block = program.operators[run.start : run.start + run.period]
            found[tuple(_counts(block).items())] += run.count
    return dict(found)


PARTS = ("operators", "structure", "time", "communication", "labels")
"""What two programs may differ in."""

MOST_ROWS = 3
_BYTES = ("tensor_bytes", "comm_bytes")


@dataclass(frozen=True)
class Difference:
    """Two traces, jobs or graphs, aligned.

    Ranks that run one program are one kind of rank. Sums are over one rank of each pair of kinds;
    communication is that of the whole job.

    Attributes:
        a: Name of A.
        b: Name of B.
        ranks: Ranks of A and of B; None for graphs.
        programs: What was aligned, the ranks that only one has last.
        operators: Every operator, the largest difference first.
        stretches: What only one of the two has.
        blocks: Blocks that occur more or less often.
        times: Sums of durations, critical path and simulated makespan.
        communication: Collectives and messages of the whole job.
        labels: Graph-level values that differ.
        ignored: Parts of ``PARTS`` that do not count.
        notes: What a reader should know, one sentence each.
    """

    a: str
    b: str
    ranks: tuple[int, int] | None
    programs: tuple[AlignedPrograms, ...]
    operators: tuple[Operator, ...]
    stretches: tuple[UnmatchedRun, ...]
    blocks: tuple[RepeatedBlockDelta, ...]
    times: tuple[PairedValue, ...]
    communication: tuple[CommunicationDelta, ...]
    labels: Mapping[str, tuple[float | str | None, float | str | None]] = field(
        default_factory=dict
    )
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return what was compared and whether it differs; ``print`` shows where."""
        names = f"{shorten(self.a, 40)!r}, {shorten(self.b, 40)!r}"
        return f"Difference({names}, {'equal' if self.equal else 'different'})"

    @property
    def differing(self) -> tuple[str, ...]:
        """The parts that differ, of those that count."""
        ranks = self.ranks is not None and self.ranks[0] != self.ranks[1]
        resized = any(program.resized for program in self.programs)
        found = {
            "operators": any(operator.differs for operator in self.operators),
            "structure": ranks or any(program.differs for program in self.programs),
            "time": any(figure.differs for figure in self.times),
            "communication": resized or any(row.differs for row in self.communication),
            "labels": bool(self.labels),
        }
        return tuple(part for part in PARTS if found[part] and part not in self.ignored)

    @property
    def equal(self) -> bool:
        """Whether nothing that counts differs."""
        return not self.differing

    def __str__(self) -> str:
        """Return what differs, in ten lines or so."""
        return "\n".join(lines(self))

    def summary(self) -> dict[str, object]:
        """Return everything as plain JSON types, with "equal" and "differing".

        A and B are named without their folders, for what is written is handed on.
        """
        names = {"a": Path(self.a).name, "b": Path(self.b).name}
        return {"equal": self.equal, "differing": list(self.differing), **asdict(self), **names}


def lines(found: Difference, most_rows: int | None = MOST_ROWS) -> list[str]:
    """Return the difference as text.

    Args:
        found: What ``diff`` found.
        most_rows: Rows of each part; None for all of them.
    """
    if replace(found, ignored=()).equal and not found.notes:
        return [f"{found.a} and {found.b} are equal: {_aligned(found)}"]
    differing = ", ".join(found.differing) or "nothing"
    ignored = f" (not counted: {', '.join(found.ignored)})" if found.ignored else ""
    parts = [f"A {found.a}", f"B {found.b}", f"differ in {differing}{ignored}"]
    parts += _structure(found)
    blocks = [
        (f"{block.program}: " if len(found.programs) > 1 else "")
        + f"{block.count[0]} -> {block.count[1]} times {block.nodes} nodes: "
        + counts_text(block.operators)
        for block in found.blocks
    ]
    operators = [
        f"{operator.name}: {'; '.join(_changes(operator))}"
        for operator in found.operators
        if operator.differs
    ]
    labels = [f"{name} {before} -> {after}" for name, (before, after) in found.labels.items()]
    parts += _shortened("blocks", blocks, most_rows)
    parts += _shortened("only in one", list(_stretches(found)), most_rows)
    parts += _shortened("operators", operators, most_rows)
    parts += _shortened("communication", list(_communication(found)), most_rows)
    parts += _shortened("time", list(_times(found)), None)
    parts += _shortened("labels", labels, most_rows)
    return parts + [f"note: {note}" for note in found.notes]


def _shortened(title: str, rows: list[str], most: int | None) -> list[str]:
    """Return rows under a title on the left, the first ones alone where there are many."""
    shown = rows[:most]
    if len(rows) > len(shown):
        shown[-1] += f"; {len(rows) - len(shown)} more"
    return [f"  {title if at == 0 else '':<14}{row}" for at, row in enumerate(shown)]


def _aligned(found: Difference) -> str:
    nodes = _counted(sum(program.nodes[0] for program in found.programs), "node")
    ranks = f"{_counted(found.ranks[0], 'rank')} of " if found.ranks else ""
    kinds = f"{len(found.programs)} kinds, " if len(found.programs) > 1 else ""
    return f"{ranks}{kinds}{nodes} aligned"


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _structure(found: Difference) -> Iterator[str]:
    if found.ranks and found.ranks[0] != found.ranks[1]:
        yield f"  {'ranks':<14}{found.ranks[0]:,} -> {found.ranks[1]:,}"
    total = [sum(program.nodes[side] for program in found.programs) for side in (0, 1)]
    aligned = sum(program.aligned for program in found.programs)
    moved = sum(program.moved for program in found.programs)
    rewired = [sum(program.rewired[side] for program in found.programs) for side in (0, 1)]
    yield (
        f"  {'nodes':<14}{total[0]:,} -> {total[1]:,}: {aligned:,} aligned"
        + (f" ({moved:,} moved)" if moved else "")
        + f", {total[0] - aligned:,} only in A, {total[1] - aligned:,} only in B"
    )
    if any(rewired):
        yield (
            f"  {'dependencies':<14}between aligned nodes: {rewired[0]:,} only in A, "
            f"{rewired[1]:,} only in B"
        )


def _stretches(found: Difference) -> Iterator[str]:
    """Yield what only one has; equal stretches of one program are told once."""
    alike: dict[tuple[object, ...], list[UnmatchedRun]] = {}
    for stretch in found.stretches:
        key = stretch.side, stretch.program, tuple(stretch.operators.items())
        alike.setdefault(key, []).append(stretch)
    for same in sorted(alike.values(), key=lambda s: -s[0].length * len(s)):
        one, times = same[0], f"{len(same):,} times " if len(same) > 1 else ""
        nodes = _counted(one.length, "node")
        at = f"{'first ' if times else ''}at {min(s.start for s in same):,}"
        yield (
            f"{one.side.upper()}, {one.program}: {times}{nodes} ({at}): "
            f"{counts_text(one.operators)}"
        )


def _changes(operator: Operator) -> Iterator[str]:
    if operator.count[0] != operator.count[1]:
        yield f"{operator.count[0]:,} -> {operator.count[1]:,} nodes"
    for name, pair in operator.numbers.items():
        if pair[0] != pair[1] and name != "duration_us":
            yield f"{name.replace('_', ' ')} {pair_text(name, pair)}"
    if operator.changed:
        yield f"{operator.changed:,} aligned with other figures"


def _communication(found: Difference) -> Iterator[str]:
    for row in found.communication:
        if row.differs:
            where = f" of {row.ranks:,} ranks" if row.ranks and row.kind != "message" else ""
            sizes = pair_text("comm_bytes", row.bytes)
            yield f"{row.kind}{where}: {row.count[0]:,} -> {row.count[1]:,}, {sizes}"
    resized = sum(program.resized for program in found.programs)
    if resized:
        yield f"{resized:,} aligned with other bytes"


def _times(found: Difference) -> Iterator[str]:
    for figure in found.times:
        if figure.differs:
            if figure.unit:
                pair = pair_text("", (figure.a, figure.b))
                yield f"{figure.name} {pair} {figure.unit}{_percent(figure.a, figure.b)}"
            else:
                yield f"{figure.name}: {figure.b or 0:,.0f}"


def counts_text(operators: Mapping[str, int], most: int = 4) -> str:
    """Return operators and counts, the most frequent ones."""
    shown = [f"{name} {count:,}" if count > 1 else name for name, count in operators.items()]
    more = f", {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


def pair_text(name: str, pair: Pair) -> str:
    """Return a figure of A and of B with an arrow between them."""
    return " -> ".join("none" if x is None else figure_text(name, x) for x in pair)


def figure_text(name: str, value: float | int) -> str:
    """Return a figure, bytes with a binary unit."""
    if name not in _BYTES:
        return f"{value:,.0f}" if abs(value) < 1e7 and value == int(value) else f"{value:,.4g}"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:,.4g} {unit}"
        value /= 1024
    return f"{value:,.4g} TiB"


def _percent(before: float | None, after: float | None) -> str:
    if not before or after is None:
        return ""
    return f" ({100 * (after / before - 1):+.1f} %)"
