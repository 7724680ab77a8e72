"""A program with more or fewer layers: copies of its blocks, and what depends on all of them.

Blocks are copied whole: forward, backward, optimizer, collectives. What works on the gradients or
weights of all layers at once (a flat bucket, an optimizer that updates all weights in one
operator) grows by the share of a layer, which is read from what each layer contributes to it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from layerdag.errors import TraceError
from layerdag.graph import BlockNode, Pattern, Unrolled, expand_ranges, pointers
from layerdag.traces import DATA, AttributeTable, CollectiveType, Ragged, Trace
from layerdag.workloads.scaling._blocks import Layers, number_steps, renumbered
from layerdag.workloads.scaling._program import Program, numbers_written

_FUSED_LISTS = {"_fused_adam": 4, "_fused_sgd": 3, "_fused_adagrad": 3}
_JOINT = ("_foreach", "_fused")


@dataclass(frozen=True)
class Share:
    """What one layer contributes to an operator on all layers.

    Attributes:
        elements: Numbers.
        tensors: Tensors.
    """

    elements: int
    tensors: int


@dataclass(frozen=True, eq=False)
class Deepening:
    """A program with another number of layers.

    Attributes:
        layers: What runs.
        count: Layers afterwards.
        members: Ranks of each collective's group, int64 (N,).
        shift: How many layers earlier stages of a pipeline gain.
    """

    layers: Layers
    count: int
    members: np.ndarray
    shift: int = 0

    @property
    def program(self) -> Program:
        """The program as it was."""
        return self.layers.program

    def done(self) -> Program:
        """Return the program with ``count`` layers.

        Raises:
            TraceError: If an operator works on all layers, and the share of one is not known.
        """
        grown = self._with_shares()
        unrolled = self.layers.blocks.unrolled(self.count)
        trace = _rebuilt(grown, unrolled, self._names(unrolled))
        return Program.of(trace, self.program.ranks)

    # ---- names ----

    def _names(self, unrolled: Unrolled) -> list[str]:
        """Return the names of all nodes; numbers that count layers go on."""
        names = [self.program.names[row] for row in unrolled.row_N.tolist()]
        blocks = self.layers.blocks
        for run, back in zip(blocks.runs, blocks.backward, strict=True):
            in_run_N = (unrolled.row_N >= run.start) & (unrolled.row_N < run.stop)
            for at in range(run.period):
                rows = [*range(run.start + at, run.stop, run.period)]
                steps = number_steps(
                    [self.program.names[row] for row in rows[:: -1 if back else 1]]
                )
                if not any(step for _, step in steps):
                    continue
                of_place_N = in_run_N & ((unrolled.row_N - run.start) % run.period == at)
                for new in np.flatnonzero(of_place_N).tolist():
                    depth = int(unrolled.depth_N[new])
                    values = [a + step * (depth + self.shift) for a, step in steps]
                    names[new] = renumbered(names[new], values)
        return names

    # ---- what works on all layers ----

    def _with_shares(self) -> Program:
        """Return the program, whose operators on all layers have the costs of ``count`` layers."""
        program, more = self.program, self.count - self.layers.blocks.count
        joint = self._joint
        if not joint or not more:
            return program
        ops_N, bytes_N, comm_N = (
            c.copy() for c in (program.ops_N, program.bytes_N, program.comm_N)
        )
        largest = max(
            self._contributions.values(),
            key=lambda contribution: contribution.elements,
            default=None,
        )
        for row in sorted(joint):
            contribution = self._contributions.get(row) or largest
            if contribution is None:
                raise TraceError(self._unknown(row))
            if program.computes_N[row]:
                total, tensors = self._totals_of(row)
                now = (total + more * contribution.elements, tensors + more * contribution.tensors)
                ops_N[row] = _grown(int(ops_N[row]), (total, tensors), now)
                bytes_N[row] = _grown(int(bytes_N[row]), (total, tensors), now)
            else:
                old, item = int(comm_N[row]), int(program.item_N[row])
                if self._contributed(row) != old // item and not self._buffered(row):
                    raise TraceError(self._unknown(row))
                comm_N[row] = old + more * contribution.elements * item
                bytes_N[row] = int(bytes_N[row]) * int(comm_N[row]) // max(old, 1)
        return replace(program, ops_N=ops_N, bytes_N=bytes_N, comm_N=comm_N)

    def _totals_of(self, row: int) -> tuple[int, int]:
        """Return elements and number of the tensors that an operator on all layers works on."""
        total = self._contributed(row)
        if total > len(self.program.parents(row)) > 1 and int(self.program.ops_N[row]) % total == 0:
            return total, len(self.program.parents(row))
        if not any(word in self.program.names[row] for word in (*_JOINT, "_norm", "stack", "cat")):
            raise TraceError(self._unknown(row))
        return self._totals

    def _contributed(self, row: int) -> int:
        """Return the elements that all parents of a node make, 0 if that is not known."""
        shares = [self._share(parent) for parent in self.program.parents(row)]
        known = [contribution.elements for contribution in shares if contribution is not None]
        return sum(known) if len(known) == len(shares) else 0

    def _buffered(self, row: int) -> bool:
        """Return whether a collective sums a flat buffer of gradients, as buckets are."""
        size = int(self.program.comm_N[row]) // int(self.program.item_N[row])
        return any(int(self.program.ops_N[parent]) == size for parent in self.program.parents(row))

    def _unknown(self, row: int) -> str:
        trace = self.program.trace
        return (
            f"{trace.source}: node {trace.id_N[row]} ({self.program.names[row]}) works on all "
            "layers at once, and the trace does not tell the share of one layer; give a trace of "
            "an optimizer that updates weights one by one, or of a job with sharded weights."
        )

    @cached_property
    def _joint(self) -> set[int]:
        """Return the operators outside layers that depend on each layer, or update all weights."""
        program = self.program
        last = int(np.flatnonzero(program.matrix_N).max(initial=-1))
        outside_N = np.ones(program.num_nodes, dtype=bool)
        for run in self.layers.blocks.runs:
            outside_N[run.start : run.stop] = False
        named = {
            row for row in np.flatnonzero(outside_N).tolist()
            if row > last and any(word in program.names[row] for word in _JOINT)
        }  # fmt: skip
        norms = {int(program.ops_N[row]) for row in named if "_norm" in program.names[row]}
        named |= {  # what works on one number of each tensor, after a norm of each
            row for row in np.flatnonzero(outside_N & program.computes_N).tolist()
            if row > last and int(program.ops_N[row]) in norms - {0, 1}
        }  # fmt: skip
        return named | set(self._contributors)

    @cached_property
    def _contributors(self) -> dict[int, list[Pattern]]:
        """Return the edges from every layer of each node outside layers that has such edges."""
        blocks = self.layers.blocks
        found: dict[int, list[Pattern]] = {}
        for pattern in blocks.patterns:
            inner = pattern.source.run >= 0 > pattern.target.run
            if inner and pattern.kind == DATA:
                everywhere = ((0, blocks.runs[pattern.source.run].count),)
                if pattern.ranges == everywhere:
                    found.setdefault(pattern.target.at, []).append(pattern)
        return found

    @cached_property
    def _contributions(self) -> dict[int, Share]:
        """Return the share of a layer in each node that depends on each layer."""
        return {
            row: self._sum(row, [pattern.source for pattern in patterns])
            for row, patterns in self._contributors.items()
        }

    def _sum(self, row: int, nodes: Sequence[BlockNode]) -> Share:
        runs = self.layers.blocks.runs
        shares = [self._share(runs[node.run].start + node.at) for node in nodes]
        known = [contribution for contribution in shares if contribution is not None]
        if len(known) < len(shares):
            raise TraceError(self._unknown(row))
        return Share(sum(s.elements for s in known), sum(s.tensors for s in known))

    def _share(self, row: int) -> Share | None:
        """Return the gradients that a node makes, None if their size is not known."""
        program, name = self.program, self.program.names[row].split("::")[-1]
        ops, item = int(program.ops_N[row]), int(program.item_N[row])
        moved = int(program.bytes_N[row]) // item
        if not program.computes_N[row]:
            return self._message(row)
        if program.matrix_N[row]:
            rows = self._rows
            plain = name in ("mm", "addmm") and rows and ops // 2 % rows == 0
            return Share(ops // 2 // rows, 1) if plain else None
        if name == "sum":
            return Share(moved - ops, 1)
        if name == "native_layer_norm_backward":
            return Share(2 * ops // self._rows, 2) if self._rows else None
        if "backward" in name or moved < ops:
            return None
        return Share(ops, self._tensors(row))

    def _message(self, row: int) -> Share:
        program = self.program
        size = int(program.comm_N[row]) // int(program.item_N[row])
        if program.collective_N[row] == CollectiveType.REDUCE_SCATTER:
            size = -(-size // int(self.members[row]))
        return Share(size, 1)

    def _tensors(self, row: int) -> int:
        """Return the tensors of a node: those that a scattered buffer was concatenated of."""
        program = self.program
        for parent in program.parents(row):
            if program.collective_N[parent] == CollectiveType.REDUCE_SCATTER:
                for buffer in program.parents(parent):
                    sources = program.parents(buffer)
                    norms = sum("layer_norm" in program.names[source] for source in sources)
                    return len(sources) + norms
        return 1

    @cached_property
    def _rows(self) -> int:
        """Rows of the activations, from the gradients of biases; 0 if unknown."""
        program = self.program
        found: Counter[int] = Counter()
        for row, name in enumerate(program.names):
            columns = int(program.bytes_N[row]) // int(program.item_N[row])
            columns -= int(program.ops_N[row])
            if name.split("::")[-1] == "sum" and columns > 0 and program.ops_N[row] % columns == 0:
                found[int(program.ops_N[row]) // columns] += 1
        return found.most_common(1)[0][0] if found else 0

    @cached_property
    def _totals(self) -> tuple[int, int]:
        """Return elements and number of all weights, from what works on them all."""
        program = self.program
        sizes = [
            int(program.ops_N[row]) // _lists(program.names[row])
            for row in self._joint if program.computes_N[row]
        ]  # fmt: skip
        total = max(sizes)
        small = Counter(size for size in sizes if 1 < size < total)
        return total, small.most_common(1)[0][0] if small else total


def _lists(name: str) -> int:
    return next((count for word, count in _FUSED_LISTS.items() if word in name), 1)


def _grown(size: int, before: tuple[int, int], after: tuple[int, int]) -> int:
    """Return a cost of so many elements, tensors, and a rest, for other numbers of both."""
    elements, rest = divmod(size, before[0])
    tensors, rest = divmod(rest, before[1])
    return elements * after[0] + tensors * after[1] + rest


def _rebuilt(program: Program, unrolled: Unrolled, names: list[str]) -> Trace:
    """Return the trace of copied nodes, numbered in their order."""
    trace = numbers_written(program)
    rows = unrolled.row_N
    strings = list(trace.strings)
    index_of = {text: at for at, text in reversed([*enumerate(strings)])}
    for name in names:
        if name not in index_of:
            index_of[name] = len(strings)
            strings.append(name)
    return replace(
        trace,
        id_N=np.arange(len(rows), dtype=np.uint64),
        name_N=np.array([index_of[name] for name in names], dtype=np.int32),
        type_N=trace.type_N[rows],
        start_us_N=np.zeros(len(rows), dtype=np.uint64),
        duration_us_N=trace.duration_us_N[rows],
        data_deps=_deps(unrolled, DATA),
        ctrl_deps=_deps(unrolled, 1 - DATA),
        io_N6=trace.io_N6[rows],
        attributes=_attributes(trace.attributes, rows),
        strings=tuple(strings),
    )


def _deps(unrolled: Unrolled, kind: int) -> Ragged:
    """Return the dependencies of one kind."""
    edges_2E = unrolled.edge_index_2E[:, unrolled.edge_type_E == kind]
    counts_N = np.bincount(edges_2E[1], minlength=len(unrolled.row_N))
    return Ragged(pointers(counts_N), edges_2E[0].astype(np.uint64))


def _attributes(table: AttributeTable, rows: np.ndarray) -> AttributeTable:
    """Return the attributes of copied nodes."""
    row_A = expand_ranges(table.ptr_N1[:-1][rows], table.ptr_N1[1:][rows])
    counts_N = np.diff(table.ptr_N1)[rows]
    return AttributeTable(
        pointers(counts_N), table.name_A[row_A], table.wire_A[row_A],
        table.word_A[row_A], table.doc_A[row_A], table.blobs,
    )  # fmt: skip
