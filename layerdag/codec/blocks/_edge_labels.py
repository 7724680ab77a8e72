"""The words of rolled graphs: what edges and nodes say of the copies of a block.

Copies are counted by depth, from 0. A backward pass has its copies in falling order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from layerdag.codec import AttributedGraph

BLOCK = "block"
"""Categorical attribute: whether a node is in a block, with its edges to other copies of itself."""
REPEATS = "repeats"
"""Condition: number of copies of each block."""

OUTSIDE = "outside"
INSIDE = "inside"
_REVERSED = "reversed"
_AND = " + "


class Extent(Enum):
    """Between which copies the edges of one type run, where one end or both are in a block.

    The first five lie inside a copy, or between a copy and a node outside; the last two run between
    neighboring copies.
    """

    ALL = "all"
    FIRST = "first"
    LAST = "last"
    NOT_FIRST = "not first"
    NOT_LAST = "not last"
    DEEPER = "deeper"
    SHALLOWER = "shallower"

    @property
    def step(self) -> int:
        """By how many copies the target lies deeper than the source."""
        return {Extent.DEEPER: 1, Extent.SHALLOWER: -1}.get(self, 0)

    def depths(self, count: int) -> range:
        """Return the depths of ``count`` that have the edge: of the target, if it is in a block."""
        first, end = {
            Extent.FIRST: (0, 1),
            Extent.LAST: (count - 1, count),
            Extent.NOT_FIRST: (1, count),
            Extent.NOT_LAST: (0, count - 1),
            Extent.DEEPER: (1, count),
            Extent.SHALLOWER: (0, count - 1),
        }.get(self, (0, count))
        return range(first, end)


@dataclass(frozen=True)
class EdgeLabel:
    """What one edge of a rolled graph stands for.

    Attributes:
        kind: Type of the edges, as in the graph that was rolled up.
        extent: Between which copies they run.
        reversed: Whether they run from the target to the source: an edge to another copy can lead
            to a node that comes earlier in the block.
    """

    kind: str
    extent: Extent = Extent.ALL
    reversed: bool = False

    def __str__(self) -> str:
        """Return the word; an edge between all copies has that of its kind."""
        extent = "" if self.extent is Extent.ALL else f" {self.extent.value}"
        return f"{self.kind}{extent}{f' {_REVERSED}' if self.reversed else ''}"

    @classmethod
    def all_in(cls, text: str, kinds: Sequence[str]) -> list["EdgeLabel"]:
        """Return the words that ``joined`` made one; others, and other kinds, are left out."""
        extents = {extent.value: extent for extent in Extent}
        found = []
        for label in text.split(_AND):
            kind, _, rest = label.partition(" ")
            name = rest.removesuffix(_REVERSED).strip() or Extent.ALL.value
            if kind in kinds and name in extents:
                found.append(cls(kind, extents[name], rest.endswith(_REVERSED)))
        return found


def joined(labels: Iterable[EdgeLabel]) -> str:
    """Return the type of an edge for which several words hold."""
    return _AND.join(sorted({str(label) for label in labels}))


def block_word(own_edges: Iterable[EdgeLabel]) -> str:
    """Return the word of a node in a block that has these edges to other copies of itself."""
    return _AND.join([INSIDE, *sorted({str(label) for label in own_edges})])


def own_edges(label: str, kinds: Sequence[str]) -> list[EdgeLabel] | None:
    """Return the edges of a node to other copies of itself, None if it is in no block."""
    first, _, rest = label.partition(_AND)
    return EdgeLabel.all_in(rest, kinds) if first == INSIDE else None


def is_rolled(graph: AttributedGraph, kinds: Sequence[str]) -> bool:
    """Return whether a graph is a rolled one: all words of its blocks and edges are of these kinds.

    Args:
        graph: Any graph.
        kinds: Edge types of the whole graph.
    """
    if BLOCK not in graph.categories:
        return False
    edges = all(joined(EdgeLabel.all_in(name, kinds)) == name for name in graph.edge_type_names)
    return edges and all(
        word == OUTSIDE or ((own := own_edges(word, kinds)) is not None and block_word(own) == word)
        for word in set(graph.categories[BLOCK])
    )


def in_copy(edge_type: str, kind: str) -> bool:
    """Return whether edges of a type are edges of ``kind`` inside a copy, among other things."""
    return any(label.extent.step == 0 for label in EdgeLabel.all_in(edge_type, (kind,)))
