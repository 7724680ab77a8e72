"""Deeper programs: units that map a tensor to another of the same kind occur several times.

A block of a transformer takes the stream and returns it; so do most layers of other models. Such a
unit can follow itself any number of times, and what comes out is a program again by construction.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby, islice
from typing import Any

from torch import Tensor

from layerdag.errors import UsageError
from layerdag.programs.execution import NodeError, run_fake
from layerdag.programs.module import units_of_nodes
from layerdag.programs.nodes import ForwardGraph, G, Node, is_inside

_DIGITS = 10
"""A module's number has fewer; others are words."""


@dataclass(frozen=True)
class RepeatableUnit:
    """Consecutive nodes of a unit that map one tensor to one of the same shape and dtype."""

    path: str
    first: int
    end: int
    taken: int  # the node whose result it takes and nothing after it reads
    given: int  # its node whose result is read after it


def repeatable_units(program: ForwardGraph) -> list[RepeatableUnit]:
    """Return the units that can follow themselves, in program order.

    Raises:
        NodeError: If a node cannot run.
    """
    unit_of = units_of_nodes(program)
    kinds = _kinds(program)
    last_use = program.last_uses()
    found = []
    for path in program.units:
        inside = [at for at, unit in enumerate(unit_of) if unit == path]
        if not inside or inside[-1] - inside[0] + 1 != len(inside):
            continue
        first, end = inside[0], inside[-1] + 1
        given = [at for at in inside if last_use[at] >= end]
        outside = {i for at in inside for i in program.nodes[at].inputs if i < first}
        taken = [i for i in outside if last_use[i] < end and kinds[i] is not None]
        if len(given) == 1:
            taken = [i for i in taken if kinds[i] == kinds[given[0]]]
            if len(taken) == 1:
                found.append(RepeatableUnit(path, first, end, taken[0], given[0]))
    return found


def _kinds(program: ForwardGraph) -> list[tuple[Any, ...] | None]:
    """Return shape and dtype of each result, None where it is no tensor.

    Widths that are equal by chance, as those of the stream and of the vocabulary, differ when one
    of them is doubled.
    """
    found = [_kind(result) for result in run_fake(program)]
    numbers = Counter(program.sizes.values())
    for name, number in program.sizes.items():
        if numbers[number] == 1:
            continue
        try:
            results = run_fake(program.resize(**{name: 2 * number}))
        except NodeError:
            continue  # the model needs both to be equal
        pairs = zip(found, results, strict=True)
        found = [kind and (*kind, _kind(result)) for kind, result in pairs]
    return found


def _kind(result: Any) -> tuple[Any, ...] | None:
    return (tuple(result.shape), result.dtype) if isinstance(result, Tensor) else None


def deepened(program: G, times: int | Sequence[int]) -> G:
    """Return a program with each repeatable unit ``times`` times in a row.

    Several numbers are those of one unit after the other, of which some may be 0.

    Raises:
        NodeError: If a node cannot run.
        UsageError: If there is no such unit, or ``times`` is not possible.
    """
    repeatable = repeatable_units(program)
    times_of = _occurrences(program, repeatable, times)
    units = {unit.first: unit for unit in repeatable}
    numbering = _Numbering(program, times_of)
    nodes: list[Node] = []
    place: dict[int, int] = {}
    unit_of = {  # of names of parameters
        name: path for name, _ in program.unused for path in times_of if is_inside(name, path)
    }
    at = 0
    while at < len(program.nodes):
        unit = units.get(at)
        end = at + 1 if unit is None else unit.end
        copies = 1 if unit is None else times_of[unit.path]
        path = "" if unit is None else unit.path
        if unit is not None:
            unit_of |= {name: path for node in program.nodes[at:end] for name in node.names}
            if not copies:  # what it takes stands for what it gives
                place[unit.given] = place[unit.taken]
        for copy in range(copies):
            if unit is not None and copy:
                place[unit.taken] = place[unit.given]
            for number, node in enumerate(program.nodes[at:end], start=at):
                made = numbering.node(node, path, copy)
                nodes.append(replace(made, inputs=tuple(place[i] for i in node.inputs)))
                place[number] = len(nodes) - 1
        at = end
    order: list[str] = []
    for path, group in groupby(program.order, lambda name: unit_of.get(name, "")):
        names = list(group)
        for copy in range(times_of.get(path, 1)):
            order += [numbering.name(name, path, copy) for name in names]
    return replace(
        program,
        nodes=tuple(nodes),
        outputs=tuple(place[i] for i in program.outputs),
        order=tuple(order),
        units=tuple(
            numbering.path(unit, unit, copy)
            for unit in program.units
            for copy in range(times_of.get(unit, 1))
        ),
        unused=tuple(
            (numbering.name(name, unit_of.get(name, ""), copy), leaf)
            for name, leaf in program.unused
            for copy in range(times_of.get(unit_of.get(name, ""), 1))
        ),
    )


def _occurrences(
    program: ForwardGraph, repeatable: Sequence[RepeatableUnit], times: int | Sequence[int]
) -> dict[str, int]:
    """Return how often each repeatable unit is to occur; ``UsageError`` if that is not possible."""
    counts = [times] * len(repeatable) if isinstance(times, int) else list(times)
    if (isinstance(times, int) and times < 1) or min(counts, default=0) < 0:
        raise UsageError(f"Units occur once or more often; found {times}.")
    if len(counts) != len(repeatable) or (counts and not any(counts)):
        raise UsageError(
            f"{program.name} has {len(repeatable)} units that can be repeated, of which one must "
            f"remain; found {counts} for their occurrences."
        )
    if not repeatable:
        raise UsageError(
            f"{program.name} has no unit that maps a tensor to one of the same shape, so nothing "
            "of it can be repeated; units are the modules in a ModuleList."
        )
    return {unit.path: count for unit, count in zip(repeatable, counts, strict=True)}


class _Numbering:
    """Paths of modules as a deeper model has them: those of a list are counted on."""

    def __init__(self, program: ForwardGraph, times_of: Mapping[str, int]) -> None:
        self._further: dict[str, dict[int, int]] = {}  # copies of a list's modules, by its path
        self._suffixes: dict[str, list[str]] = {}  # of copies of modules that have no number
        self._names: dict[tuple[str, int], str] = {}
        self._taken: set[str] = set()
        known = set(program.units)
        for path, times in times_of.items():
            parent, _, number = path.rpartition(".")
            if number.isdecimal() and len(number) < _DIGITS:
                self._further.setdefault(parent, {})[int(number)] = times - 1
            else:
                new = (f"_{number}" for number in count(2))
                fresh = (suffix for suffix in new if f"{path}{suffix}" not in known)
                self._suffixes[path] = ["", *islice(fresh, max(times - 1, 0))]

    def path(self, path: str, unit: str = "", copy: int = 0) -> str:
        """Return the path of a module or parameter in the deeper program.

        It is seen from a copy of a repeatable unit.
        """
        parts = path.split(".")
        found = list(parts)
        for depth, part in enumerate(parts):
            further = self._further.get(".".join(parts[:depth]))
            if further is not None and part.isdecimal() and len(part) < _DIGITS:
                before = sum(more for number, more in further.items() if number < int(part))
                own = copy if ".".join(parts[: depth + 1]) == unit else 0
                found[depth] = str(int(part) + before + own)
        if copy and unit in self._suffixes and is_inside(path, unit):
            found[unit.count(".")] += self._suffixes[unit][copy]
        return ".".join(found)

    def name(self, name: str, unit: str, copy: int) -> str:
        """Return the name of a parameter, which no other one and no other copy has.

        One that a removed unit shares with another stays, where the next unit takes its number.
        """
        known = self._names.get((name, copy))
        if not name or known is not None:
            return known or ""
        found = self.path(name, unit, copy)
        if copy and not is_inside(name, unit):
            found = f"{found}_{copy + 1}"
        fresh = (f"{found}_{number}" for number in count(2))
        while found in self._taken:
            found = next(fresh)
        self._taken.add(found)
        self._names[name, copy] = found
        return found

    def node(self, node: Node, unit: str, copy: int) -> Node:
        """Return a node of a copy of a unit, which belongs to that copy."""
        outside = copy and not is_inside(node.module, unit)
        module = self.path(unit if outside else node.module, unit, copy)
        names = tuple(self.name(name, unit, copy) for name in node.names)
        return replace(node, module=module, names=names)
