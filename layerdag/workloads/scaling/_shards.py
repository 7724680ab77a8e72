"""Fully sharded data parallelism (ZeRO, FSDP) on another number of ranks.

A shard is the whole divided by the degree, rounded up; since ``ceil(ceil(x / n) / k)`` is
``ceil(x / (n k))``, shards of a larger degree follow from those of a smaller one exactly. What is
gathered or scattered as a whole keeps its size. The optimizer works on shards: its operators follow
the sum of all shards, or each its own where they run parameter by parameter.

FSDP2 of PyTorch cuts each parameter by rows and fills the last shards up, so that the whole grows
where rows do not divide; rows are found where products of matrices tell them (`_rows`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import final

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


@final
class Resharding:
    """The shards of a program on another number of ranks.

    Args:
        program: What runs.
        changes: Of each group that shares: its collectives, bool (N,), and how it grows.
        place: Place of the rank among those that share; the last ones can hold less.
    """

    def __init__(
        self, program: Program, changes: Sequence[tuple[np.ndarray, Change]], member: int = 0
    ) -> None:
        self.program, self._member = program, member
        self._numbers = Numbers(program)
        self._change: dict[int, Change] = {}
        self._unit: dict[int, Unit] = {}
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

    def done(self) -> Program:
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
            if _COPY_IN in program.names[parent]:
                numbers.ops_N[parent] = whole[1] // item
                numbers.bytes_N[parent] = 2 * (whole[1] + new)
        for child in program.children(row):
            if _COPY_OUT in program.names[child]:
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
            if _CONCATENATE in program.names[parent]:
                numbers.ops_N[parent] = new // unit.item
                numbers.bytes_N[parent] += new - old

    # ---- the optimizer ----

    def _optimize(self) -> None:
        """Change what works on shards of gradients, weights and states."""
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
        """Return the elements of one parameter's shard before and after."""
        old = int(self.program.ops_N[row])
        for scatter in self._scatters:
            members = self._change[scatter].new
            new = self._unit[scatter].resized(old, members, self._member)
            if new is not None:
                return old, new
        return (old, self._change[self._scatters[0]].shard(old)) if old > 1 else (1, 1)

    def _sum_of_shards(self, row: int) -> None:
        """Change a sum of one shard over other ranks, such as that of tied embeddings."""
        parents = self.program.parents(row)
        if row in self._unit or len(parents) != 1 or parents[0] not in self._scatters:
            return
        if "norm" not in self.program.names[row].lower():
            change = self._change[parents[0]]
            self._numbers.comm_N[row] = change.shard(int(self.program.comm_N[row]))


def _after(program: Program, scatters: Sequence[int]) -> np.ndarray:
    """Return what works on scattered gradients, or comes after them all, bool (N,)."""
    rows_N = np.zeros(program.num_nodes, dtype=bool)
    rows_N[list(scatters)] = True
    tail_N = np.arange(program.num_nodes) > max(scatters)
    return program.descendants(rows_N) | (tail_N & ~program.ancestors(rows_N))


def _number_of_each(sizes: list[int]) -> int:
    """Return how often every size occurs at least: gradients of several micro-batches."""
    counts = np.unique(np.array(sizes), return_counts=True)[1].tolist()
    return gcd(*counts)


@final
class Numbers:
    """Columns of a program while they change."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.ops_N = program.ops_N.copy()
        self.bytes_N = program.bytes_N.copy()
        self.comm_N = program.comm_N.copy()

    def program(self) -> Program:
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
