"""Fully sharded data parallelism (ZeRO, FSDP) on another number of ranks.

A shard is the whole divided by the degree, rounded up; since ``ceil(ceil(x / n) / k)`` is
``ceil(x / (n k))``, shards of a larger degree follow from those of a smaller one exactly. What is
gathered or scattered as a whole keeps its size. The optimizer works on shards: its operators follow
the sum of all shards, or each its own where they run parameter by parameter.

FSDP2 of PyTorch cuts each parameter by rows and fills the last shards up, so that the whole grows
where rows do not divide; rows are found where products of matrices tell them (`_rows`).
"""

from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np

from layerdag.traces import CollectiveType
from layerdag.workloads.scaling._program import Program
from layerdag.workloads.scaling._rows import Unit, units_of

_COPY_IN, _COPY_OUT = "all_gather_copy_in", "split_with_sizes_copy"
_CONCATENATE = "chunk_cat"


@dataclass(frozen=True)
class Change:
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


@dataclass(frozen=True, eq=False)
class Resharding:
    """Shards of one role of one program.

    Attributes:
        program: What runs.
        rows_N: Collectives of the role, bool (N,).
        change: Of the number of ranks that share.
    """

    program: Program
    rows_N: np.ndarray
    change: Change

    def done(self) -> Program:
        """Return the program on the other number of ranks."""
        program, change = self.program, self.change
        numbers = _Numbers(program)
        gathers = np.flatnonzero(self.rows_N & (program.collective_N == CollectiveType.ALL_GATHER))
        scatters = np.flatnonzero(
            self.rows_N & (program.collective_N == CollectiveType.REDUCE_SCATTER)
        )
        units = units_of(program, gathers, scatters, change.old)
        for row in gathers.tolist():
            self._gather(numbers, row, units)
        for row in scatters.tolist():
            self._scatter(numbers, row, units)
        self._optimize(numbers, scatters, units)
        return numbers.program()

    def _gather(self, numbers: "_Numbers", row: int, units: dict[int, Unit]) -> None:
        program, item = self.program, int(self.program.item_N[row])
        old = int(program.comm_N[row])
        new = units[row].shard(self.change.new) * item
        whole = (old * self.change.old, new * self.change.new)
        numbers.communicate(row, (old, new), whole)
        for parent in program.parents(row):
            if _COPY_IN in program.names[parent]:
                numbers.ops_N[parent] = whole[1] // item
                numbers.bytes_N[parent] = 2 * (whole[1] + new)
        for child in program.children(row):
            if _COPY_OUT in program.names[child]:
                numbers.ops_N[child] = whole[1] // item
                numbers.bytes_N[child] = 2 * whole[1]

    def _scatter(self, numbers: "_Numbers", row: int, units: dict[int, Unit]) -> None:
        program, unit = self.program, units[row]
        item, old = unit.item, int(program.comm_N[row])
        shard = unit.shard(self.change.new) * item
        new = shard * self.change.new if unit.padded else old
        numbers.comm_N[row] = new
        numbers.communicate(row, (old // self.change.old, shard), (old, new), scatters=True)
        for parent in program.parents(row):
            if _CONCATENATE in program.names[parent]:
                numbers.ops_N[parent] = new // item
                numbers.bytes_N[parent] += new - old

    # ---- the optimizer ----

    def _optimize(
        self, numbers: "_Numbers", scatters: np.ndarray, units: dict[int, Unit]
    ) -> None:
        """Change what works on shards of gradients, weights and states."""
        if not scatters.size:
            return
        program = self.program
        of_shards_N = _after(program, scatters)
        by_size = _number_of_each([units[row].elements for row in scatters.tolist()])
        total = sum(units[row].held(self.change.old) for row in scatters.tolist()) // by_size
        later = sum(units[row].held(self.change.new) for row in scatters.tolist()) // by_size
        computes_N = of_shards_N & program.computes_N
        joint = bool((program.ops_N[computes_N] >= total).any())
        copies = {child for row in scatters.tolist() for child in program.children(row)}
        for row in np.flatnonzero(computes_N).tolist():
            if row in copies and self._copy(numbers, row, units):
                continue
            pair = (total, later) if joint else self._own_shard(numbers, row, units)
            numbers.follow(row, *pair)
        others_N = of_shards_N & ~program.computes_N & ~self.rows_N & (program.comm_N > 0)
        for row in np.flatnonzero(others_N).tolist():
            self._sum_of_shards(numbers, row)

    def _copy(self, numbers: "_Numbers", row: int, units: dict[int, Unit]) -> bool:
        """Change an operator on all that one scatter left; return whether this is one."""
        sources = [units[parent] for parent in self.program.parents(row) if parent in units]
        if len(sources) != 1 or int(self.program.ops_N[row]) != sources[0].shard(self.change.old):
            return False
        numbers.follow(row, *(sources[0].shard(n) for n in (self.change.old, self.change.new)))
        return True

    def _own_shard(
        self, numbers: "_Numbers", row: int, units: dict[int, Unit]
    ) -> tuple[int, int]:
        """Return the elements of one parameter's shard before and after."""
        old = int(numbers.ops_N[row])
        if old <= 1:
            return (1, 1)
        return (old, self.change.shard(old))

    def _sum_of_shards(self, numbers: "_Numbers", row: int) -> None:
        """Change a sum of one shard over other ranks, such as that of tied embeddings."""
        parents = self.program.parents(row)
        scattered = [parent for parent in parents if self.rows_N[parent]]
        if len(parents) != 1 or not scattered or "norm" in self.program.names[row].lower():
            return
        item = int(self.program.item_N[row])
        numbers.comm_N[row] = self.change.shard(int(self.program.comm_N[row]) // item) * item


def _after(program: Program, scatters: np.ndarray) -> np.ndarray:
    """Return what works on scattered gradients, or comes after them all, bool (N,)."""
    rows_N = np.zeros(program.num_nodes, dtype=bool)
    rows_N[scatters] = True
    tail_N = np.arange(program.num_nodes) > scatters.max()
    return program.descendants(rows_N) | (tail_N & ~program.ancestors(rows_N))


def _number_of_each(sizes: list[int]) -> int:
    """Return how often every size occurs at least: gradients of several micro-batches."""
    counts = np.unique(np.array(sizes), return_counts=True)[1].tolist()
    return gcd(*counts)


class _Numbers:
    """Columns of a program while they change."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.ops_N = program.ops_N.copy()
        self.bytes_N = program.bytes_N.copy()
        self.comm_N = program.comm_N.copy()

    def program(self) -> Program:
        """Return the program with the columns as they are now."""
        return self._program.with_numbers(
            ops_N=self.ops_N, bytes_N=self.bytes_N, comm_N=self.comm_N
        )

    def communicate(
        self, row: int, shard: tuple[int, int], whole: tuple[int, int], *, scatters: bool = False
    ) -> None:
        """Set the sizes of a gather or scatter: (before, after) of its shard and whole."""
        if not scatters:
            self.comm_N[row] = shard[1]
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


def as_fraction(change: Change) -> Fraction:
    """Return by what the degree grows."""
    return Fraction(change.new, change.old)
