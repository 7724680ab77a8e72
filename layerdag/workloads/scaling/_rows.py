"""What a unit of fully sharded data parallelism holds, as far as a trace tells it."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np

from layerdag.workloads.scaling._program import Program

_MOST_ROWS = 1 << 20


@dataclass(frozen=True)
class Unit:
    """Parameters that are gathered or scattered in one collective.

    Attributes:
        elements: Elements of a shard.
        members: Ranks that share.
        item: Bytes of an element.
        padded: Whether each parameter is cut by rows and filled up (FSDP2), or the unit as a whole
            is cut, as in ZeRO.
        uneven: (rows, elements of a row) of parameters known; the others are taken to divide.
    """

    elements: int
    members: int
    item: int
    padded: bool
    uneven: tuple[tuple[int, int], ...] = ()

    def shard(self, members: int) -> int:
        """Return the elements of a shard on another number of ranks."""
        known = sum(_cut(rows, self.members) * each for rows, each in self.uneven)
        rest = -(-(self.elements - known) * self.members // members)
        return rest + sum(_cut(rows, members) * each for rows, each in self.uneven)

    def resized(self, elements: int, members: int, member: int) -> int | None:
        """Return the elements of one parameter's shard, None if its rows are not known."""
        for rows, each in self.uneven:
            if _own(rows, self.members, 0) * each == elements:
                return _own(rows, members, member) * each
        return None

    def held(self, members: int, member: int = 0) -> int:
        """Return the elements of the shard of the rank at ``place``, without filling."""
        missing = sum(
            (_cut(rows, members) - _own(rows, members, member)) * each for rows, each in self.uneven
        )
        return self.shard(members) - missing


def _cut(rows: int, members: int) -> int:
    """Return the rows of a shard, filled up."""
    return -(-rows // members)


def _own(rows: int, members: int, member: int) -> int:
    """Return the rows that the rank at ``place`` holds."""
    each = _cut(rows, members)
    return min(each, max(0, rows - member * each))


def units_of(
    program: Program, gathers: list[int], scatters: list[int], members: int
) -> dict[int, Unit]:
    """Return the unit of each gather and scatter of a role, by row."""
    padded = any("chunk_cat" in name for name in program.names)
    item = _gradient_item(program, gathers, scatters, members)
    known = _known_rows(program, gathers, members) if padded else {}
    found = {}
    for row in gathers:
        size = int(program.item_N[row])
        elements = int(program.comm_N[row]) // size
        found[row] = Unit(elements, members, size, padded, known.get(elements, ()))
    for row in scatters:
        elements = -(-(int(program.comm_N[row]) // item) // members)
        found[row] = Unit(elements, members, item, padded, known.get(elements, ()))
    return found


def _known_rows(
    program: Program, gathers: list[int], members: int
) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return the rows of the parameters of units, by elements of a shard.

    Known are units of one linear layer, and of embedding tables with a norm.
    """
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for row in gathers:
        elements = int(program.comm_N[row]) // int(program.item_N[row])
        for copy in program.children(row):
            tables = _tables(program, program.children(copy))
            if tables and sum(_cut(rows, members) * each for rows, each in tables) == elements:
                found[elements] = tables
            for user in program.children(copy):
                if "addmm" in program.names[user]:
                    found |= [(elements, f) for f in _linear(program, user, elements, members)]
    return found


def _tables(program: Program, users: list[int]) -> tuple[tuple[int, int], ...]:
    """Return (rows, elements of a row) of embedding tables and the norm after them, () if unclear.

    A norm reads and writes its input, reads weight and bias of a row, and writes mean and deviation
    of each row; a look-up reads table and indexes of eight bytes, and writes a row for each index.
    """
    norms = [row for row in users if "native_layer_norm" in program.names[row]]
    lookups = [row for row in users if program.names[row].endswith("::embedding")]
    if len(norms) != 1 or not lookups:
        return ()
    size, item = int(program.ops_N[norms[0]]), int(program.item_N[norms[0]])
    rest = int(program.bytes_N[norms[0]]) // item - 2 * size
    for width in factors(size, rest // 2):
        heights = [_height(program, row, width, size // width) for row in lookups]
        if all(heights):
            return (*((rows, width) for rows in heights), (width, 1), (width, 1))
    return ()


def _height(program: Program, row: int, width: int, tokens: int) -> int:
    """Return the rows of a table from which as many rows as tokens, or all rows, are read; or 0."""
    read = int(program.bytes_N[row]) // int(program.item_N[row])
    rows, left = divmod(read - tokens * (width + 2), width)
    if left or rows < 1 or max(rows, tokens) * width != int(program.ops_N[row]):
        rows, left = divmod(read, 2 * width + 2)
    return 0 if left else rows


def _linear(
    program: Program, row: int, elements: int, members: int
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield (rows, elements of a row) of weight and bias of a layer that fills a shard."""
    item = int(program.item_N[row])
    product, total = int(program.ops_N[row]) // 2, int(program.bytes_N[row]) // item
    rows_R = np.arange(1, min(product, _MOST_ROWS) + 1)
    for rows in rows_R[product % rows_R == 0].tolist():
        left = total - product // rows - rows  # what is left of the weight and the result
        if left <= 0 or left % rows:
            continue
        for inputs in factors(product // rows, left // rows):
            if _cut(rows, members) * (inputs + 1) == elements:
                yield ((rows, inputs), (rows, 1))


def _gradient_item(program: Program, gathers: list[int], scatters: list[int], members: int) -> int:
    """Return the bytes of an element of the gradients: shards of weights have as many elements."""
    if not scatters:
        return 1
    stated = int(program.item_N[scatters[0]])
    shards = {int(program.comm_N[row]) // int(program.item_N[row]) for row in gathers}
    for item in (stated, 2, 4, 8):
        whole = [int(size) // item for size in program.comm_N[scatters].tolist()]
        if shards and {-(-size // members) for size in whole} == shards:
            return item
    return stated


def factors(product: int, total: int) -> tuple[int, ...]:
    """Return two whole numbers of this product and sum, () if there are none."""
    root = total * total - 4 * product
    if total <= 0 or root < 0 or isqrt(root) ** 2 != root or (total + isqrt(root)) % 2:
        return ()
    larger = (total + isqrt(root)) // 2
    return (total - larger, larger) if larger * (total - larger) == product else ()
