"""ZeRO and FSDP on another number of ranks.

Fully sharded data parallelism (ZeRO, FSDP) on another number of ranks.

A shard is the whole divided by the degree, rounded up; since ``ceil(ceil(x / n) / k)`` is
``ceil(x / (n k))``, shards of a larger degree follow from those of a smaller one exactly. What is
gathered or scattered as a whole keeps its size. The optimizer works on shards: its operators follow
the sum of all shards, or each its own where they run parameter by parameter.

FSDP2 of PyTorch cuts each parameter by rows and fills the last shards up, so that the whole grows
where rows do not divide; rows are found where products of matrices tell them (`_rows`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd, isqrt
from typing import final

import numpy as np

from layerdag.traces.trace import CollectiveType
from layerdag.workloads.scaling.program import EditableProgram

_MOST_ROWS = 1 << 20


@dataclass(frozen=True)
class FSDPUnit:
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
    return -(-rows // members)


def _own(rows: int, members: int, member: int) -> int:
    each = _cut(rows, members)
    return min(each, max(0, rows - member * each))


def units_of(
    program: EditableProgram, gathers: list[int], scatters: list[int], members: int
) -> dict[int, FSDPUnit]:
    """Return the unit of each gather and scatter of a role, by row."""
    padded = any("chunk_cat" in name for name in program.names)
    item = _gradient_item(program, gathers, scatters, members)
    known = _known_rows(program, gathers, members) if padded else {}
    found = {}
    for row in gathers:
        size = int(program.item_N[row])
        elements = int(program.comm_N[row]) // size
        found[row] = FSDPUnit(elements, members, size, padded, known.get(elements, ()))
    for row in scatters:
        elements = -(-(int(program.comm_N[row]) // item) // members)
        found[row] = FSDPUnit(elements, members, item, padded, known.get(elements, ()))
    return found


def _known_rows(
    program: EditableProgram, gathers: list[int], members: int
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
                if program.names[user] == "aten::addmm":
                    found |= [(elements, f) for f in _linear(program, user, elements, members)]
    return found


def _tables(program: EditableProgram, users: list[int]) -> tuple[tuple[int, int], ...]:
    """Return (rows, elements of a row) of embedding tables and the norm after them, () if unclear.

    A norm reads and writes its input, reads weight and bias of a row, and writes mean and deviation
    of each row; a look-up reads table and indexes of eight bytes, and writes a row for each index.
    """
    norms = [row for row in users if program.names[row] == "aten::native_layer_norm"]
    lookups = [row for row in users if program.names[row] == "aten::embedding"]
    if len(norms) != 1 or not lookups:
        return ()
    size, item = int(program.ops_N[norms[0]]), int(program.item_N[norms[0]])
    rest = int(program.bytes_N[norms[0]]) // item - 2 * size
    for width in factors(size, rest // 2):
        heights = [_height(program, row, width, size // width) for row in lookups]
        if all(heights):
            return (*((rows, width) for rows in heights), (width, 1), (width, 1))
    return ()


def _height(program: EditableProgram, row: int, width: int, tokens: int) -> int:
    """Return the rows of a table from which as many rows as tokens, or all rows, are read; or 0."""
    read = int(program.bytes_N[row]) // int(program.item_N[row])
    rows, left = divmod(read - tokens * (width + 2), width)
    if left or rows < 1 or max(rows, tokens) * width != int(program.ops_N[row]):
        rows, left = divmod(read, 2 * width + 2)
    return 0 if left else rows


def _linear(
    program: EditableProgram, row: int, elements: int, members: int
) -> Iterator[tuple[tuple[int, int], ...]]:
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


def _gradient_item(
    program: EditableProgram, gathers: list[int], scatters: list[int], members: int
) -> int:
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


_COPY_IN = ("fsdp::all_gather_copy_in",)
_COPY_OUT = ("fsdp::split_with_sizes_copy", "aten::split_with_sizes_copy")
_CONCATENATE = ("fsdp::chunk_cat", "aten::_chunk_cat")


@dataclass(frozen=True)
class ShardCountChange:
    """Another number of members of the groups of a role.

    Attributes:
        old: Members.
        new: Members afterwards.
    """

    old: int
    new: int

    def shard(self, size: int) -> int:
        """Return the elements of a shard."""
        return -(-size * self.old // self.new)


@final
class Resharding:
    """The shards of a program on another number of ranks.

    Args:
        program: What runs.
        changes: Of each group that shares: its collectives, bool (N,), and how it grows.
        place: Place of the rank among those that share; the last ones can hold less.
    """

    def __init__(
        self,
        program: EditableProgram,
        changes: Sequence[tuple[np.ndarray, ShardCountChange]],
        member: int = 0,
    ) -> None:
        self.program, self._member = program, member
        self._numbers = Numbers(program)
        self._change: dict[int, ShardCountChange] = {}
        self._unit: dict[int, FSDPUnit] = {}
        for rows_N, change in changes:
            gathers = self._of_kind(rows_N, CollectiveType.ALL_GATHER)
            scatters = self._of_kind(rows_N, CollectiveType.REDUCE_SCATTER)
            self._unit |= units_of(program, gathers, scatters, change.old)
            self._change |= {row: change for row in (*gathers, *scatters)}
        rows = sorted(self._unit)
        kinds = program.collective_N[rows].tolist()
        self._scatters = [
            row for row, kind in zip(rows, kinds, strict=True)
            if kind == CollectiveType.REDUCE_SCATTER
        ]  # fmt: skip
        self._gathers = [row for row in rows if row not in set(self._scatters)]

    def _of_kind(self, rows_N: np.ndarray, kind: CollectiveType) -> list[int]:
        found: list[int] = np.flatnonzero(rows_N & (self.program.collective_N == kind)).tolist()
        return found

    def held(self) -> tuple[int, ...]:
        """Return the elements that the rank at this place holds of each unit."""
        return tuple(self._held(row) for row in self._scatters)

    def done(self) -> EditableProgram:
        """Return the program on the other number of ranks."""
        for row in self._gathers:
            self._gather(row)
        for row in self._scatters:
            self._scatter(row)
        if self._scatters:
            self._optimize()
        return self._numbers.program()

    def _gather(self, row: int) -> None:
        program, numbers, change = self.program, self._numbers, self._change[row]
        item, old = int(program.item_N[row]), int(program.comm_N[row])
        new = self._unit[row].shard(change.new) * item
        whole = (old * change.old, new * change.new)
        numbers.comm_N[row] = new
        numbers.communicate(row, (old, new), whole)
        for parent in program.parents(row):
            if program.names[parent] in _COPY_IN:
                numbers.ops_N[parent] = whole[1] // item
                numbers.bytes_N[parent] = 2 * (whole[1] + new)
        for child in program.children(row):
            if program.names[child] in _COPY_OUT:
                numbers.ops_N[child] = whole[1] // item
                numbers.bytes_N[child] = 2 * whole[1]

    def _scatter(self, row: int) -> None:
        program, numbers, change = self.program, self._numbers, self._change[row]
        unit, old = self._unit[row], int(program.comm_N[row])
        shard = unit.shard(change.new) * unit.item
        new = shard * change.new if unit.padded else old
        numbers.comm_N[row] = new
        numbers.communicate(row, (old // change.old, shard), (old, new))
        for parent in program.parents(row):
            if program.names[parent] in _CONCATENATE:
                numbers.ops_N[parent] = new // unit.item
                numbers.bytes_N[parent] += new - old

    # ---- the optimizer ----

    def _optimize(self) -> None:
        program = self.program
        of_shards_N = _after(program, self._scatters)
        times = _number_of_each([self._unit[row].elements for row in self._scatters])
        total = sum(self._unit[r].held(self._change[r].old) for r in self._scatters) // times
        later = sum(self._held(row) for row in self._scatters) // times
        computes_N = of_shards_N & program.computes_N
        joint = bool((program.ops_N[computes_N] >= total).any())
        for row in np.flatnonzero(computes_N).tolist():
            if self._copy(row):
                continue
            pair = (total, later) if joint else self._own_shard(row)
            self._numbers.follow(row, *pair)
        others_N = of_shards_N & ~program.computes_N & (program.comm_N > 0)
        for row in np.flatnonzero(others_N).tolist():
            self._sum_of_shards(row)

    def _held(self, row: int) -> int:
        return self._unit[row].held(self._change[row].new, self._member)

    def _copy(self, row: int) -> bool:
        """Change an operator on all that one scatter left; return whether this is one."""
        sources = [parent for parent in self.program.parents(row) if parent in self._unit]
        if len(sources) != 1:
            return False
        unit, change = self._unit[sources[0]], self._change[sources[0]]
        if int(self.program.ops_N[row]) != unit.shard(change.old):
            return False
        self._numbers.follow(row, unit.shard(change.old), unit.shard(change.new))
        return True

    def _own_shard(self, row: int) -> tuple[int, int]:
        old = int(self.program.ops_N[row])
        for scatter in self._scatters:
            members = self._change[scatter].new
            new = self._unit[scatter].resized(old, members, self._member)
            if new is not None:
                return old, new
        return (old, self._change[self._scatters[0]].shard(old)) if old > 1 else (1, 1)

    def _sum_of_shards(self, row: int) -> None:
        parents = self.program.parents(row)
        if row in self._unit or len(parents) != 1 or parents[0] not in self._scatters:
            return
        if "norm" not in self.program.names[row].lower():
            change = self._change[parents[0]]
            self._numbers.comm_N[row] = change.shard(int(self.program.comm_N[row]))


def _after(program: EditableProgram, scatters: Sequence[int]) -> np.ndarray:
    rows_N = np.zeros(program.num_nodes, dtype=bool)
    rows_N[list(scatters)] = True
    tail_N = np.arange(program.num_nodes) > max(scatters)
    return program.descendants(rows_N) | (tail_N & ~program.ancestors(rows_N))


def _number_of_each(sizes: list[int]) -> int:
    counts = np.unique(np.array(sizes), return_counts=True)[1].tolist()
    return gcd(*counts)


@final
class Numbers:
    """Columns of a program while they change."""

    def __init__(self, program: EditableProgram) -> None:
        self._program = program
        self.ops_N = program.ops_N.copy()
        self.bytes_N = program.bytes_N.copy()
        self.comm_N = program.comm_N.copy()

    def program(self) -> EditableProgram:
        """Return the program with the columns as they are now."""
        return replace(self._program, ops_N=self.ops_N, bytes_N=self.bytes_N, comm_N=self.comm_N)

    def communicate(self, row: int, shard: tuple[int, int], whole: tuple[int, int]) -> None:
        """Set what a gather or scatter moves in memory: (before, after) of its shard and whole."""
        moved = int(self.bytes_N[row])
        for times in (2, 1):  # buffers that are written in place count as read, too
            if moved == times * whole[0] + shard[0]:
                self.bytes_N[row] = times * whole[1] + shard[1]

    def follow(self, row: int, old: int, new: int) -> None:
        """Let the costs of an operator on ``old`` elements be those on ``new``.

        What is less than ``old``, such as a scalar, stays.
        """
        for column in (self.ops_N, self.bytes_N):
            times, rest = divmod(int(column[row]), old)
            column[row] = times * new + rest
