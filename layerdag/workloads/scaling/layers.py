"""A recorded job with more or fewer layers.

The layers of a program: which runs of equal blocks belong together, and in which direction.

Nodes have one color if they agree in name (numbers in it aside), type, costs and group. The runs
that repeat as often as the blocks that cover most of the program are its layers, as far as their
copies belong to layers one by one: by their edges to runs known already, or by numbers in their
names. A backward pass has the deepest layer first.

A program with more or fewer layers: copies of its blocks, and what depends on all of them.

Blocks are copied whole: forward, backward, optimizer, collectives. What works on the gradients or
weights of all layers at once (a flat bucket, an optimizer that updates all weights in one
operator) grows by the share of a layer, which is read from what each layer contributes to it.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from layerdag.errors import TraceError, UsageError
from layerdag.graph.repeats import BlockNode, Pattern, RepeatedProgram, Run, Unrolled, nested_runs
from layerdag.graph.topology import expand_ranges, pointers
from layerdag.traces.operator_kinds import OPTIMIZERS, lists_of
from layerdag.traces.trace import (
    DATA,
    AttributeTable,
    CollectiveType,
    Ragged,
    Trace,
    dependency_edges,
)
from layerdag.workloads.scaling.program import EditableProgram, Job, Kind, numbers_written

_NUMBER = re.compile(r"\d+")
_MOSTLY = 0.6
_PASSES = 2.75  # work of a forward and a backward pass, by that of the forward pass
_SMALLEST = 3  # nodes of a block that may be a layer


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers of a program.

    Attributes:
        program: What runs.
        blocks: Its graph, folded.
    """

    program: EditableProgram
    blocks: RepeatedProgram

    @classmethod
    def from_program(cls, program: EditableProgram, count: int | None = None) -> "Layers":
        """Find the layers.

        Args:
            program: What runs.
            count: How many there are, where several numbers of blocks are found.

        Raises:
            UsageError: If nothing repeats, or it is not clear what the layers are.
            TraceError: If the backward pass does not repeat with the forward pass.
        """
        runs = nested_runs(colors(program))
        chosen = _count(program, runs, count)
        edges = dependency_edges(program.trace)
        fitting = [run for run in runs if max(chosen - 2, 2) <= run.count <= chosen]
        kept, backward = _belonging(program, edges[0], _innermost(fitting, chosen))
        _require_backward(program, kept)
        blocks = RepeatedProgram.fold(program.num_nodes, edges, kept, backward)
        _require_whole_blocks(program, blocks)
        return cls(program, blocks)


def _count(program: EditableProgram, runs: Sequence[Run], stated: int | None) -> int:
    covered = covered_by_count(runs)
    found = ", ".join(f"{n} x ({nodes} nodes)" for n, nodes in covered.most_common(4)) or "none"
    source = program.trace.source
    if stated is not None and stated not in covered:
        raise UsageError(
            f"{source}: no blocks of operators repeat {stated} times; found {found}. A job of one "
            "layer does not tell what two layers exchange."
        )
    if stated is not None:
        return stated
    if not covered:
        raise UsageError(
            f"{source}: no block of operators repeats. A job of one layer does not tell what two "
            "layers exchange."
        )
    score = {n: nodes + _shorter(runs, n) for n, nodes in covered.items()}
    first = max(score, key=lambda n: (score[n], n))
    rivals = {n: nodes for n, nodes in covered.items() if n != first}
    if first - 1 in rivals:
        rivals[first - 1] -= _shorter(runs, first)
    if any(2 * nodes > score[first] for nodes in rivals.values()):
        raise UsageError(
            f"{source}: several numbers of blocks repeat ({found}): layers, micro-batches, "
            "experts. Say with --layers-now how many layers the trace has."
        )
    return first


def _shorter(runs: Sequence[Run], count: int) -> int:
    """Return the nodes of runs of one block less that lie apart from those of ``count`` blocks.

    The backward pass of the last layer can look different from those before.
    """
    large = [run for run in runs if run.period >= _SMALLEST]
    whole = [run for run in large if run.count == count]
    return sum(
        run.period * run.count
        for run in large
        if run.count == count - 1 > 1 and not any(_overlaps(run, other) for other in whole)
    )


def _innermost(runs: list[Run], chosen: int) -> list[Run]:
    def largest_inside(outer: Run) -> int:
        spans = (
            run.stop - run.start
            for run in runs
            if run != outer and run.count == chosen and run.period >= _SMALLEST
            if outer.start <= run.start and run.stop <= outer.stop
        )
        return max(spans, default=0)

    return [run for run in runs if largest_inside(run) < _MOSTLY * run.period]


def _require_whole_blocks(program: EditableProgram, blocks: RepeatedProgram) -> None:
    depths: dict[tuple[BlockNode, str], set[int]] = {}
    partner: dict[tuple[BlockNode, str], int] = {}
    for pattern in blocks.patterns:
        inside = [position for position in (pattern.source, pattern.target) if position.run >= 0]
        if len(inside) != 1 or pattern.kind != DATA:
            continue
        outside = pattern.target.at if pattern.target.run < 0 else pattern.source.at
        if pattern.ranges != ((0, blocks.runs[inside[0].run].count),):
            found = (depth for start, stop in pattern.ranges for depth in range(start, stop))
            key = (inside[0], program.names[outside])
            depths.setdefault(key, set()).update(found)
            partner[key] = outside
    for (position, name), held in depths.items():
        if len(held) == blocks.runs[position.run].count:
            number = program.trace.id_N[partner[position, name]]
            raise TraceError(
                f"{program.trace.source}: node {number} ({name}) belongs to one layer, but is in "
                "no block that repeats with the layers; collect a trace of more layers, or of an "
                "optimizer that updates all weights at once."
            )


def _require_backward(program: EditableProgram, runs: Sequence[Run]) -> None:
    """Refuse runs that hold the forward pass of layers but not their backward pass.

    The backward pass of a product is two products; little is left for gradients that nobody needs.
    """
    trained = any("backward" in name or name.endswith((".dx", ".dw")) for name in program.names)
    works = [
        int(program.ops_N[run.start : run.start + run.period][
            program.matrix_N[run.start : run.start + run.period]
        ].sum())
        for run in runs
    ]  # fmt: skip
    first = next((work for work in works if work), 0)
    forward = next((run for run, work in zip(runs, works, strict=True) if work), runs[0])
    if forward.count != max(run.count for run in runs):
        raise UsageError(
            f"{program.trace.source}: {forward.count} blocks repeat in the first forward pass, but "
            f"{max(run.count for run in runs)} later on: layers, or micro-batches. Say with "
            "--layers-now how many layers the trace has."
        )
    if trained and first and sum(works) < _PASSES * first:
        raise TraceError(
            f"{program.trace.source}: {runs[0].count} blocks repeat in the forward pass, but the "
            "backward pass is not made of such blocks (gradient buckets, or prefetching, cut "
            "layers in different places); collect a trace of more layers, or with one bucket."
        )


def covered_by_count(runs: Sequence[Run]) -> "Counter[int]":
    """Return how many nodes lie in blocks that repeat so often."""
    covered: Counter[int] = Counter()
    for run in runs:
        if run.period >= _SMALLEST:
            covered[run.count] += run.period * run.count
    return covered


def colors(program: EditableProgram) -> np.ndarray:
    """Return the color of each node, int64 (N,)."""
    masked = [_NUMBER.sub("#", name) for name in program.names]
    columns = (program.trace.type_N, program.ops_N, program.bytes_N, program.comm_N,
               program.collective_N)  # fmt: skip
    keys = zip(masked, program.group_N, *(column.tolist() for column in columns), strict=True)
    number: dict[object, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)


def _belonging(
    program: EditableProgram, edges_2E: np.ndarray, runs: list[Run]
) -> tuple[list[Run], list[bool]]:
    first = max(runs, key=lambda run: (run.count, run.period))
    depth_N = np.full(program.num_nodes, -1, dtype=np.int64)
    _note(depth_N, first, _falls(program, first) is True)
    kept = {first: _falls(program, first) is True}
    left = [run for run in runs if run != first and not _overlaps(run, first)]
    while True:
        found = [(run, _direction(program, edges_2E, depth_N, run)) for run in left]
        sure = [(run, back) for run, back in found if back is not None]
        if not sure:
            break
        run, back = max(sure, key=lambda pair: pair[0].period)
        kept[run] = bool(back)
        _note(depth_N, run, bool(back))
        left = [other for other in left if not _overlaps(other, run)]
    ordered = sorted(kept, key=lambda run: run.start)
    return ordered, [kept[run] for run in ordered]


def _overlaps(run: Run, other: Run) -> bool:
    return run.start < other.stop and other.start < run.stop


def _note(depth_N: np.ndarray, run: Run, back: bool) -> None:
    copies = np.repeat(np.arange(run.count), run.period)
    depth_N[run.start : run.stop] = run.count - 1 - copies if back else copies


def _direction(
    program: EditableProgram, edges_2E: np.ndarray, depth_N: np.ndarray, run: Run
) -> bool | None:
    """Return whether a run has the deepest layer first, None if its copies are no layers."""
    falls = _falls(program, run)
    if falls is not None:
        return falls
    in_run_2E = (edges_2E >= run.start) & (edges_2E < run.stop)
    crossing_E = in_run_2E[0] ^ in_run_2E[1]
    own_E = np.where(in_run_2E[0], edges_2E[0], edges_2E[1])[crossing_E]
    other_E = depth_N[np.where(in_run_2E[0], edges_2E[1], edges_2E[0])[crossing_E]]
    copy_E = (own_E - run.start)[other_E >= 0] // run.period
    other_E = other_E[other_E >= 0]
    reached = {}
    for back in (False, True):
        depth_E = run.count - 1 - copy_E if back else copy_E
        values, counts = np.unique(other_E - depth_E, return_counts=True)
        usual = values[np.argmax(counts)] if values.size else 0
        linked_E = other_E - depth_E == usual
        reached[back] = (len(set(depth_E[linked_E].tolist())), int(linked_E.sum()))
    best = max(reached, key=lambda back: reached[back])
    return best if reached[best][0] >= max(run.count - 1, 2) else None


def _falls(program: EditableProgram, run: Run) -> bool | None:
    """Return whether numbers in the names fall from copy to copy, None if they do not change."""
    for at in range(run.period):
        rows = range(run.start + at, run.stop, run.period)
        steps = number_steps([program.names[row] for row in rows])
        moving = [step for _, step in steps if step]
        if moving:
            return moving[0] < 0
    return None


def number_steps(names: list[str]) -> list[tuple[int, int]]:
    """Return (first value, step) of each number in names that count evenly, [] if they do not."""
    table = [[int(digits) for digits in _NUMBER.findall(name)] for name in names]
    if len({len(row) for row in table}) != 1 or len({_NUMBER.sub("#", n) for n in names}) != 1:
        return []
    found = []
    for values in zip(*table, strict=True):
        steps = {b - a for a, b in itertools.pairwise(values)}
        if len(steps) > 1:
            return []
        found.append((values[0], steps.pop() if steps else 0))
    return found


def renumbered(name: str, values: list[int]) -> str:
    """Return a name with other numbers."""
    left = iter(values)
    return _NUMBER.sub(lambda _: str(next(left)), name)


_ALL_AT_ONCE = OPTIMIZERS | {
    *("aten::linalg_vector_norm", "aten::norm", "aten::stack", "aten::cat"),
}
"""Operators that take the tensors of all layers at once."""
_NORM_OF_EACH = "aten::_foreach_norm"
_LAYER_NORMS = ("aten::native_layer_norm", "aten::native_layer_norm_backward")


@dataclass(frozen=True)
class LayerShare:
    """What one layer contributes to an operator on all layers.

    Attributes:
        elements: Numbers.
        tensors: Tensors.
    """

    elements: int
    tensors: int


@dataclass(frozen=True, eq=False)
class LayerDuplication:
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
    def program(self) -> EditableProgram:
        """The program as it was."""
        return self.layers.program

    def done(self) -> EditableProgram:
        """Return the program with ``count`` layers.

        Raises:
            TraceError: If an operator works on all layers, and the share of one is not known.
        """
        grown = self._with_shares()
        unrolled = self.layers.blocks.unrolled(self.count)
        trace = _rebuilt(grown, unrolled, self._names(unrolled))
        return EditableProgram.from_trace(trace, self.program.ranks)

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

    def _with_shares(self) -> EditableProgram:
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
        total = self._contributed(row)
        if total > len(self.program.parents(row)) > 1 and int(self.program.ops_N[row]) % total == 0:
            return total, len(self.program.parents(row))
        if self.program.names[row] not in _ALL_AT_ONCE:
            raise TraceError(self._unknown(row))
        return self._totals

    def _contributed(self, row: int) -> int:
        """Return the elements that all parents of a node make, 0 if that is not known."""
        shares = [self._share(parent) for parent in self.program.parents(row)]
        known = [contribution.elements for contribution in shares if contribution is not None]
        return sum(known) if len(known) == len(shares) else 0

    def _buffered(self, row: int) -> bool:
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
        program = self.program
        last = int(np.flatnonzero(program.matrix_N).max(initial=-1))
        outside_N = np.ones(program.num_nodes, dtype=bool)
        for run in self.layers.blocks.runs:
            outside_N[run.start : run.stop] = False
        named = {
            row for row in np.flatnonzero(outside_N).tolist()
            if row > last and program.names[row] in OPTIMIZERS
        }  # fmt: skip
        norms = {
            int(program.ops_N[row]) for row in named if program.names[row] == "aten::_foreach_norm"
        }
        named |= {  # what works on one number of each tensor, after a norm of each
            row for row in np.flatnonzero(outside_N & program.computes_N).tolist()
            if row > last and int(program.ops_N[row]) in norms - {0, 1}
        }  # fmt: skip
        return named | set(self._contributors)

    @cached_property
    def _contributors(self) -> dict[int, list[Pattern]]:
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
    def _contributions(self) -> dict[int, LayerShare]:
        return {
            row: self._sum(row, [pattern.source for pattern in patterns])
            for row, patterns in self._contributors.items()
        }

    def _sum(self, row: int, nodes: Sequence[BlockNode]) -> LayerShare:
        runs = self.layers.blocks.runs
        shares = [self._share(runs[node.run].start + node.at) for node in nodes]
        known = [contribution for contribution in shares if contribution is not None]
        if len(known) < len(shares):
            raise TraceError(self._unknown(row))
        return LayerShare(sum(s.elements for s in known), sum(s.tensors for s in known))

    def _share(self, row: int) -> LayerShare | None:
        """Return the gradients that a node makes, None if their size is not known."""
        program, name = self.program, self.program.names[row]
        ops, item = int(program.ops_N[row]), int(program.item_N[row])
        moved = int(program.bytes_N[row]) // item
        if not program.computes_N[row]:
            return self._message(row)
        if program.matrix_N[row]:
            rows = self._rows
            plain = name in ("aten::mm", "aten::addmm") and rows and ops // 2 % rows == 0
            return LayerShare(ops // 2 // rows, 1) if plain else None
        if name == "aten::sum":
            return LayerShare(moved - ops, 1)
        if name == "aten::native_layer_norm_backward":
            return LayerShare(2 * ops // self._rows, 2) if self._rows else None
        if "backward" in name or moved < ops:
            return None
        return LayerShare(ops, self._tensors(row))

    def _message(self, row: int) -> LayerShare:
        program = self.program
        size = int(program.comm_N[row]) // int(program.item_N[row])
        if program.collective_N[row] == CollectiveType.REDUCE_SCATTER:
            size = -(-size // int(self.members[row]))
        return LayerShare(size, 1)

    def _tensors(self, row: int) -> int:
        program = self.program
        for parent in program.parents(row):
            if program.collective_N[parent] == CollectiveType.REDUCE_SCATTER:
                for buffer in program.parents(parent):
                    sources = program.parents(buffer)
                    norms = sum(program.names[source] in _LAYER_NORMS for source in sources)
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
            if name == "aten::sum" and columns > 0 and program.ops_N[row] % columns == 0:
                found[int(program.ops_N[row]) // columns] += 1
        return found.most_common(1)[0][0] if found else 0

    @cached_property
    def _totals(self) -> tuple[int, int]:
        program = self.program
        sizes = [
            int(program.ops_N[row]) // lists_of(program.names[row])
            for row in self._joint if program.computes_N[row]
        ]  # fmt: skip
        total = max(sizes)
        small = Counter(size for size in sizes if 1 < size < total)
        return total, small.most_common(1)[0][0] if small else total


def _grown(size: int, before: tuple[int, int], after: tuple[int, int]) -> int:
    elements, rest = divmod(size, before[0])
    tensors, rest = divmod(rest, before[1])
    return elements * after[0] + tensors * after[1] + rest


def _rebuilt(program: EditableProgram, unrolled: Unrolled, names: list[str]) -> Trace:
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
    edges_2E = unrolled.edge_index_2E[:, unrolled.edge_type_E == kind]
    counts_N = np.bincount(edges_2E[1], minlength=len(unrolled.row_N))
    return Ragged(pointers(counts_N), edges_2E[0].astype(np.uint64))


def _attributes(table: AttributeTable, rows: np.ndarray) -> AttributeTable:
    row_A = expand_ranges(table.ptr_N1[:-1][rows], table.ptr_N1[1:][rows])
    counts_N = np.diff(table.ptr_N1)[rows]
    return AttributeTable(
        pointers(counts_N), table.name_A[row_A], table.wire_A[row_A],
        table.word_A[row_A], table.doc_A[row_A], table.blobs,
    )  # fmt: skip


def with_layers(
    job: Job, kinds: tuple[Kind, ...], count: int, now: int | None
) -> tuple[Job, dict[str, Any]]:
    """Return a job with ``count`` layers, and what was found; it has ``now``, if that is stated.

    Stages of a pipeline get equally many, the first ones one more where that does not divide.

    Raises:
        UsageError: If nothing repeats, or there are fewer layers than stages.
        TraceError: If an operator works on all layers, and the share of one is not known.
    """
    stages = _stages(job, kinds)
    each = None if now is None else now // (max(stages) + 1)
    found = [Layers.from_program(program, each) for program in job.programs]
    before = _of_stages([layers.blocks.count for layers in found], stages)
    if before != _shared(sum(before), len(before)):
        raise UsageError(
            f"{job.source}: blocks repeat {', '.join(map(str, before))} times in the stages of the "
            "pipeline, which are not all layers; say with --layers-now how many the trace has."
        )
    if count < len(before):
        raise UsageError(
            f"{job.source}: {count} layers do not fill {len(before)} pipeline stages; ask for more."
        )
    after = _shared(count, len(before))
    programs = []
    for number, (layers, stage) in enumerate(zip(found, stages, strict=True)):
        shift = sum(after[:stage]) - sum(before[:stage])
        members = _members(job, number, layers.program)
        programs.append(LayerDuplication(layers, after[stage], members, shift).done())
    grown = Job(tuple(programs), job.groups, job.mesh, job.source)
    return grown, {
        "before": sum(before),
        "after": count,
        "blocks": [
            {"class": number, "nodes": run.period, "count": run.count, "backward": back}
            for number, layers in enumerate(found)
            for run, back in zip(layers.blocks.runs, layers.blocks.backward, strict=True)
        ],
    }


def _shared(count: int, stages: int) -> list[int]:
    """Return the layers of each stage, one more in the first ones where that does not divide."""
    each, more = divmod(count, stages)
    return [each + (stage < more) for stage in range(stages)]


def _stages(job: Job, kinds: tuple[Kind, ...]) -> list[int]:
    if "pipeline" not in kinds:
        return [0] * len(job.programs)
    axis = kinds.index("pipeline")
    firsts = np.array([program.ranks[0] for program in job.programs])
    stages: list[int] = job.mesh.coordinates(firsts)[:, axis].tolist()
    return stages


def _of_stages(counts: list[int], stages: list[int]) -> list[int]:
    return [counts[stages.index(stage)] for stage in range(max(stages) + 1)]


def _members(job: Job, number: int, program: EditableProgram) -> np.ndarray:
    """Return the ranks of the group of each collective, int64 (N,)."""
    sizes = [
        len(job.groups[group]) if role is not None else 1
        for group, role in zip(program.group_N, job.role_CN[number], strict=True)
    ]
    return np.array(sizes, dtype=np.int64)
