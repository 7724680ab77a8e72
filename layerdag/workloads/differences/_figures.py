"""Parts of a difference: figures of A beside figures of B."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Pair: TypeAlias = tuple[float | int | None, float | int | None]
"""A figure of A and of B; None where there is none."""


@dataclass(frozen=True)
class Figure:
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
class Stretch:
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
class Block:
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
class Communication:
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
