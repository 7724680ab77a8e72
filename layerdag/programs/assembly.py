"""From the graph of a drawn program to the program: order of calls, units, names, table of sizes.

A graph says what is computed from what. Everything else that a program has follows: calls are in
the order in which a model's code evaluates them (arguments first, from left to right), entries of
the table are numbered as they are first used, parameters are named after their unit.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from layerdag.errors import DataError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.program_json import (
    CALL,
    SIZES,
    UNIT,
    call_to_json,
    inputs_in_places,
    unit_numbers,
)
from layerdag.programs.forward_program import Program
from layerdag.programs.nodes import Node, read_node
from layerdag.programs.operators import GETITEM, LEAVES

DrawSize = Callable[[str], int]
"""A number for an entry of the table of sizes."""

_ENTRY = re.compile(r"\b[Bnwrh]\d{1,6}\b")
_OUTSIDE = -1


def assemble(graph: AttributedGraph, size_of: DrawSize) -> Program:
    """Return the program of a graph of calls (``layerdag.graph.formats.program_json``).

    Raises:
        DataError: If a node is no call, or a place of an argument has no input or two.
    """
    inputs = inputs_in_places(graph)
    order = _program_order(graph, inputs)
    renamed: dict[str, str] = {}
    sizes: dict[str, int] = {}
    used: Counter[str] = Counter()

    def entry(found: re.Match[str]) -> str:
        old = found.group()
        if old not in renamed:
            renamed[old] = f"{old[0]}{used[old[0]]}"
            used[old[0]] += 1
            sizes[renamed[old]] = size_of(old)
        return renamed[old]

    column = graph.categories.get(UNIT, [""] * graph.num_nodes)
    units = dict(zip(order, unit_numbers([column[at] for at in order]), strict=True))
    order = _units_in_one(order, inputs, units)
    paths = {unit: f"blocks.{at}" for at, unit in enumerate(sorted({*units.values()} - {_OUTSIDE}))}
    position = {at: number for number, at in enumerate(order)}
    nodes: list[Node] = []
    leaves: Counter[str] = Counter()
    for at in order:
        where = f"{graph.name}: node {at}"
        try:
            data = call_to_json(
                graph.categories[CALL][at], _ENTRY.sub(entry, graph.categories[SIZES][at])
            )
        except ValueError as error:
            raise DataError(f"{where}: {error}.") from error
        data["inputs"] = [position[i] for i in inputs[at]]
        path = paths.get(units[at], "")
        node = read_node({**data, "module": path}, where)
        nodes.append(_named(node, path, leaves))
    return Program(
        name=graph.name,
        nodes=tuple(nodes),
        sizes=sizes,
        outputs=(position[graph.num_nodes - 1],),
        units=tuple(paths.values()),
    )


def _named(node: Node, path: str, leaves: Counter[str]) -> Node:
    names = []
    for leaf in node.leaves:
        if leaf.kind in ("parameter", "buffer"):
            kind = f"{path}.{leaf.kind}" if path else leaf.kind
            names.append(f"{kind}{leaves[kind]}")
            leaves[kind] += 1
        elif node.operator not in LEAVES:
            names.append("")
    return replace(node, names=tuple(names) if any(names) else ())


def _program_order(graph: AttributedGraph, inputs: Sequence[Sequence[int]]) -> list[int]:
    """Return the nodes in program order: inputs, then each call after those that it reads.

    Calls that nothing is connected with, such as counters of batch normalizations, come one by one
    before the calls that own buffers.
    """
    calls = graph.categories[CALL]
    used = {i for given in inputs for i in given}
    last = graph.num_nodes - 1
    loose = [at for at in range(last) if at not in used and not inputs[at]]
    order = [at for at in range(graph.num_nodes) if calls[at].startswith("input ")]
    done = {*order, *loose}
    waiting = iter([at for at in loose if at not in order])
    parts: dict[int, list[int]] = {}  # beside what they are a part of: taking one runs nothing
    for at, given in enumerate(inputs):
        if given and calls[at].startswith(GETITEM):
            parts.setdefault(given[0], []).append(at)
    for taken in parts.values():
        taken.sort(key=lambda at: (len(calls[at]), calls[at]))
    roots = [at for at in range(last) if at not in used and inputs[at]] + [last]
    for root in roots:
        todo = [(root, False)]
        while todo:
            at, ready = todo.pop()
            if at in done:
                continue
            if ready:
                if '"buffer"' in calls[at]:
                    order += [counter for counter in (next(waiting, None),) if counter is not None]
                new = [at, *(part for part in parts.get(at, ()) if part not in done)]
                order += new
                done.update(new)
            else:
                todo.append((at, True))
                todo += [(i, False) for i in reversed(inputs[at])]
    head = sum(calls[at].startswith("input ") for at in order)
    return [*order[:head], *waiting, *order[head:]]


def _units_in_one(
    order: Sequence[int], inputs: Sequence[Sequence[int]], units: dict[int, int]
) -> list[int]:
    """Return the nodes in an order in which a unit's calls follow each other, as in one forward.

    Models make masks and rotations before their layers, and a graph does not tell when. A layer cut
    in two would be called, and gathered by ``fully_shard``, twice. What does not follow from a unit
    comes before it, what it does not need after it; a call between that it makes and reads is its
    own, which ``units`` is told.
    """
    order = list(order)
    for _ in set(units.values()):  # each round makes some unit whole, or takes one into another
        before = list(order), dict(units)
        spans = {unit: _span(order, unit, units) for unit in dict.fromkeys(units.values())}
        # The shortest first: a call of another unit's inside it does not stretch that unit over it.
        for unit in sorted(spans, key=lambda unit: len(order[spans[unit]])):
            span = _span(order, unit, units)
            if unit != _OUTSIDE:
                order[span] = _in_one(order[span], unit, inputs, units)
        if (order, units) == before:
            break
    return order


def _span(order: Sequence[int], unit: int, units: Mapping[int, int]) -> slice:
    """Return where the calls of a unit lie, empty if others have taken them."""
    places = [place for place, at in enumerate(order) if units[at] == unit]
    return slice(places[0], places[-1] + 1) if places else slice(0, 0)


def _in_one(
    span: Sequence[int], unit: int, inputs: Sequence[Sequence[int]], units: dict[int, int]
) -> list[int]:
    following: set[int] = set()
    needed: set[int] = set()
    for at in span:
        if units[at] == unit or not following.isdisjoint(inputs[at]):
            following.add(at)
    for at in reversed(span):
        if at in following and (units[at] == unit or at in needed):
            needed.add(at)
            needed.update(inputs[at])
    own = [at for at in span if at in following and at in needed]
    units.update(dict.fromkeys(own, unit))
    ahead = [at for at in span if at not in following]
    return [*ahead, *own, *(at for at in span if at in following and at not in needed)]
