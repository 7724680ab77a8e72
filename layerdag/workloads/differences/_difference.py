"""Two traces, jobs or graphs, aligned: all figures, and what changed in ten lines of text."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

from layerdag.workloads.differences._figures import (
    AlignedPrograms,
    Block,
    Communication,
    Figure,
    Operator,
    Pair,
    Stretch,
)

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
    stretches: tuple[Stretch, ...]
    blocks: tuple[Block, ...]
    times: tuple[Figure, ...]
    communication: tuple[Communication, ...]
    labels: Mapping[str, tuple[float | str | None, float | str | None]] = field(
        default_factory=dict
    )
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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
        """Return everything as plain JSON types, with "equal" and "differing"."""
        return {"equal": self.equal, "differing": list(self.differing), **asdict(self)}


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
    parts += _shortened("blocks", list(_blocks(found)), most_rows)
    parts += _shortened("only in one", list(_stretches(found)), most_rows)
    parts += _shortened("operators", list(_operators(found)), most_rows)
    parts += _shortened("communication", list(_communication(found)), most_rows)
    parts += _shortened("time", list(_times(found)), None)
    parts += _shortened("labels", list(_labels(found)), most_rows)
    return parts + [f"note: {note}" for note in found.notes]


def _shortened(title: str, rows: list[str], most: int | None) -> list[str]:
    """Return rows under a title on the left, the first ones alone where there are many."""
    shown = rows[:most]
    if len(rows) > len(shown):
        shown[-1] += f"; {len(rows) - len(shown)} more"
    return [f"  {title if at == 0 else '':<14}{row}" for at, row in enumerate(shown)]


def _aligned(found: Difference) -> str:
    """Return how much was compared."""
    nodes = _counted(sum(program.nodes[0] for program in found.programs), "node")
    ranks = f"{_counted(found.ranks[0], 'rank')} of " if found.ranks else ""
    kinds = f"{len(found.programs)} kinds, " if len(found.programs) > 1 else ""
    return f"{ranks}{kinds}{nodes} aligned"


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _structure(found: Difference) -> Iterator[str]:
    """Yield the lines about ranks, nodes and dependencies."""
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


def _blocks(found: Difference) -> Iterator[str]:
    several = len(found.programs) > 1
    for block in found.blocks:
        before, after = block.count
        where = f"{block.program}: " if several else ""
        nodes = f"{block.nodes} nodes: {counts_text(block.operators)}"
        yield f"{where}{before} -> {after} times {nodes}"


def _stretches(found: Difference) -> Iterator[str]:
    """Yield what only one has; equal stretches of one program are told once."""
    alike: dict[tuple[object, ...], list[Stretch]] = {}
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


def _operators(found: Difference) -> Iterator[str]:
    for operator in found.operators:
        if operator.differs:
            yield f"{operator.name}: {'; '.join(_changes(operator))}"


def _changes(operator: Operator) -> Iterator[str]:
    """Yield what changed of an operator."""
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


def _labels(found: Difference) -> Iterator[str]:
    for name, (before, after) in found.labels.items():
        yield f"{name} {before} -> {after}"


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
    """Return the change in percent."""
    if not before or after is None:
        return ""
    return f" ({100 * (after / before - 1):+.1f} %)"
