"""The layers of a program: which runs of equal blocks belong together, and in which direction.

Nodes have one color if they agree in name (numbers in it aside), type, costs and group. The runs
that repeat as often as the blocks that cover most of the program are its layers, as far as their
copies belong to layers one by one: by their edges to runs known already, or by numbers in their
names. A backward pass has the deepest layer first.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.errors import TraceError, UsageError
from layerdag.graph import BlockNode, Blocks, Run, nested_runs
from layerdag.traces import DATA, dependency_edges
from layerdag.workloads.scaling._program import Program

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

    program: Program
    blocks: Blocks

    @classmethod
    def of(cls, program: Program, count: int | None = None) -> "Layers":
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
        blocks = Blocks.fold(program.num_nodes, edges, kept, backward)
        _require_whole_blocks(program, blocks)
        return cls(program, blocks)


def _count(program: Program, runs: Sequence[Run], stated: int | None) -> int:
    """Return how many layers there are. Raises UsageError if that is not clear."""
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
    """Return the runs without those whose blocks are mostly one such run, as micro-batches are."""

    def largest_inside(outer: Run) -> int:
        spans = (
            run.stop - run.start
            for run in runs
            if run != outer and run.count == chosen and run.period >= _SMALLEST
            if outer.start <= run.start and run.stop <= outer.stop
        )
        return max(spans, default=0)

    return [run for run in runs if largest_inside(run) < _MOSTLY * run.period]


def _require_whole_blocks(program: Program, blocks: Blocks) -> None:
    """Refuse blocks each of which has such a partner of its own outside: it belongs to a layer."""
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


def _require_backward(program: Program, runs: Sequence[Run]) -> None:
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


def colors(program: Program) -> np.ndarray:
    """Return the color of each node, int64 (N,)."""
    masked = [_NUMBER.sub("#", name) for name in program.names]
    columns = (program.trace.type_N, program.ops_N, program.bytes_N, program.comm_N,
               program.collective_N)  # fmt: skip
    keys = zip(masked, program.group_N, *(column.tolist() for column in columns), strict=True)
    number: dict[object, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)


def _belonging(
    program: Program, edges_2E: np.ndarray, runs: list[Run]
) -> tuple[list[Run], list[bool]]:
    """Return the runs whose copies are layers, in order, and which have the deepest first."""
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
    program: Program, edges_2E: np.ndarray, depth_N: np.ndarray, run: Run
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


def _falls(program: Program, run: Run) -> bool | None:
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
