"""Deeper programs: units that map a tensor to another of the same kind occur several times.

A block of a transformer takes the stream and returns it; so do most layers of other models. Such a
unit can follow itself any number of times, and what comes out is a program again by construction.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any, Protocol, TypedDict

from torch import Tensor

from layerdag.errors import UsageError
from layerdag.programs.execution import NodeError, run_fake
from layerdag.programs.module import units_of_nodes
from layerdag.programs.nodes import ForwardGraph, Node


class ResizableProgram(ForwardGraph, Protocol):
    """A program whose table of sizes can have other numbers."""

    def resize(self, **sizes: int) -> ForwardGraph:
        """Return the program with other numbers in its table."""


class DeeperFields(TypedDict):
    """The fields of a program that change with its nodes."""

    outputs: tuple[int, ...]
    order: tuple[str, ...]
    units: tuple[str, ...]


@dataclass(frozen=True)
class RepeatableUnit:
    """Consecutive nodes of a unit that map one tensor to one of the same shape and dtype.

    Attributes:
        path: Of the unit.
        first: Its first node.
        end: One past its last node.
        taken: The node whose result it takes and nothing after it reads.
        given: Its node whose result is read after it.
    """

    path: str
    first: int
    end: int
    taken: int
    given: int


def repeatable_units(program: ResizableProgram) -> list[RepeatableUnit]:
    """Return the units that can follow themselves, in program order.

    Raises:
        NodeError: If a node cannot run.
    """
    unit_of = units_of_nodes(program)
    kinds = _kinds(program)
    last_read = list(range(len(program.nodes)))
    for at, node in enumerate(program.nodes):
        for i in node.inputs:
            last_read[i] = at
    for at in program.outputs:
        last_read[at] = len(program.nodes)
    found = []
    for path in program.units:
        inside = [at for at, unit in enumerate(unit_of) if unit == path]
        if not inside or inside[-1] - inside[0] + 1 != len(inside):
            continue
        first, end = inside[0], inside[-1] + 1
        given = [at for at in inside if last_read[at] >= end]
        outside = {i for at in inside for i in program.nodes[at].inputs if i < first}
        taken = [i for i in outside if last_read[i] < end and kinds[i] is not None]
        if len(given) == 1:
            taken = [i for i in taken if kinds[i] == kinds[given[0]]]
            if len(taken) == 1:
                found.append(RepeatableUnit(path, first, end, taken[0], given[0]))
    return found


def _kinds(program: ResizableProgram) -> list[tuple[Any, ...] | None]:
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
        found = [
            kind and (*kind, _kind(result)) for kind, result in zip(found, results, strict=True)
        ]
    return found


def _kind(result: Any) -> tuple[Any, ...] | None:
    return (tuple(result.shape), result.dtype) if isinstance(result, Tensor) else None


def deepened(
    program: ResizableProgram, times: int | Sequence[int]
) -> tuple[tuple[Node, ...], DeeperFields]:
    """Return the nodes of a program whose repeatable units occur so many times, and what changes.

    Args:
        program: The program.
        times: Occurrences of each repeatable unit, in a row; or of one after the other, of which
            some may be 0.

    Returns:
        The nodes, and the fields "outputs", "order" and "units" of the deeper program.

    Raises:
        NodeError: If a node cannot run.
        UsageError: If there is no such unit, or ``times`` is not possible.
    """
    repeatable = repeatable_units(program)
    counts = [times] * len(repeatable) if isinstance(times, int) else list(times)
    if (isinstance(times, int) and times < 1) or min(counts, default=0) < 0:
        raise UsageError(f"Units occur once or more often; found {times}.")
    if len(counts) != len(repeatable) or (counts and not any(counts)):
        raise UsageError(
            f"{program.name} has {len(repeatable)} units that can be repeated, of which one must "
            f"remain; found {counts} for their occurrences."
        )
    units = {unit.first: unit for unit in repeatable}
    times_of = {unit.path: count for unit, count in zip(repeatable, counts, strict=True)}
    if not units:
        raise UsageError(
            f"{program.name} has no unit that maps a tensor to one of the same shape, so nothing "
            "of it can be repeated; units are the modules in a ModuleList."
        )
    path_of = _paths(program.units, times_of)
    nodes: list[Node] = []
    place: dict[int, int] = {}
    named: dict[str, list[str]] = {}
    at = 0
    while at < len(program.nodes):
        unit = units.get(at)
        end = at + 1 if unit is None else unit.end
        copies = 1 if unit is None else times_of[unit.path]
        if unit is not None and not copies:  # what it takes stands for what it gives
            place[unit.given] = place[unit.taken]
            named |= {name: [] for node in program.nodes[at:end] for name in node.names}
        for copy in range(copies):
            if unit is not None and copy:
                place[unit.taken] = place[unit.given]
            path = "" if unit is None else unit.path
            for number, node in enumerate(program.nodes[at:end], start=at):
                made = _renamed(node, path, path_of[path][copy]) if copy else node
                for old, new in zip(node.names, made.names, strict=True):
                    named.setdefault(old, []).append(new)
                nodes.append(replace(made, inputs=tuple(place[i] for i in node.inputs)))
                place[number] = len(nodes) - 1
        at = end
    return tuple(nodes), {
        "outputs": tuple(place[i] for i in program.outputs),
        "order": _in_order(program.order, named),
        "units": tuple(path for unit in program.units for path in path_of.get(unit, [unit])),
    }


def _paths(units: Sequence[str], times_of: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the paths of all copies of each repeatable unit, the first one its own."""
    known = set(units)
    found: dict[str, list[str]] = {}
    for path in units:
        if path in times_of:
            new = (f"{path}_{number}" for number in count(2))
            fresh = (name for name in new if name not in known)
            found[path] = [path, *islice(fresh, max(times_of[path] - 1, 0))][: times_of[path]]
            known.update(found[path])
    return found


def _renamed(node: Node, path: str, new: str) -> Node:
    """Return a node of a further copy of a unit."""
    inside = node.module == path or node.module.startswith(f"{path}.")
    suffix = new[len(path) :]
    names = tuple(
        new + name[len(path) :] if name.startswith(f"{path}.") else name and f"{name}{suffix}"
        for name in node.names
    )
    return replace(node, module=new + node.module[len(path) :] if inside else new, names=names)


def _in_order(order: Sequence[str], named: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Return the names of all parameters as a deeper model registers them: unit after unit."""
    found: list[str] = []
    waiting: list[list[str]] = []  # the names of the unit that is being registered, by copy
    for name in order:
        copies = named.get(name, [name])
        if len(copies) < 2:
            found += [name for copy in waiting for name in copy]
            waiting = []
            found += copies
            continue
        same = waiting and _unit_of(copies[0], copies[1]) == _unit_of(*_first_two(waiting))
        if not same:
            found += [name for copy in waiting for name in copy]
            waiting = [[] for _ in copies]
        for copy, known in zip(waiting, copies, strict=True):
            copy.append(known)
    return (*found, *(name for copy in waiting for name in copy))


def _first_two(waiting: Sequence[Sequence[str]]) -> tuple[str, str]:
    return waiting[0][0], waiting[1][0]


def _unit_of(name: str, copy: str) -> str:
    """Return the path that a name and that of its first copy have in common."""
    at = next((i for i, (a, b) in enumerate(zip(name, copy, strict=False)) if a != b), len(name))
    return name[:at]
