"""A program as readable Python: a line for each call, a loop for blocks that follow each other."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from layerdag.graph.formats.repeated_blocks import RepeatedBlock, repeated_blocks
from layerdag.programs.nodes import (
    EDGE,
    EDGES,
    ForwardGraph,
    Leaf,
    Node,
    Symbol,
    Word,
    node_to_json,
)
from layerdag.programs.operators import GETITEM, LEAVES
from layerdag.programs.sizes import Size, read_expression

_INDENT = "    "
_PLAIN = re.compile(r"[\w.]*", re.ASCII)
"""Paths that can be part of an f-string."""
_DIGITS = 10
"""A module's number has fewer; others are words."""


def python_lines(program: ForwardGraph) -> Iterator[str]:
    """Yield the lines of a program as Python.

    A result is named after the position of its node. In a loop the names are those of the first
    block; after it they stand for the results of the last one.
    """
    table = ", ".join(f"{name}={number}" for name, number in program.sizes.items())
    given = [f"v{at}" for at, node in enumerate(program.nodes) if node.operator == "input"]
    name = re.sub(r"\W", "_", program.name)
    name = name if name and not name[0].isdigit() else f"program_{name}"
    yield f"def {name}({', '.join(given)}):  # {table}"
    writer = _Writer(program)
    yield from writer.lines(0, len(program.nodes), {}, _INDENT)
    yield f"    return {', '.join(writer.name_of(at) for at in program.outputs)}"


class _Writer:
    def __init__(self, program: ForwardGraph) -> None:
        self._nodes = program.nodes
        self._data = [node_to_json(node) for node in program.nodes]
        self._last_use = program.last_uses()
        self.place: dict[int, int] = {}  # of nodes after which results of others are named

    def name_of(self, at: int) -> str:
        """Return the name of a node's result."""
        return f"v{self.place.get(at, at)}"

    def lines(self, first: int, end: int, loops: Mapping[str, str], indent: str) -> Iterator[str]:
        """Yield the lines of the nodes from ``first`` to ``end``.

        ``loops`` has the variable of each loop around them, by the path of its first module.
        """
        at = first
        for block in repeated_blocks(self._data, first, end):
            yield from self._calls(at, block.first, loops, indent)
            at = block.end
            if self._is_loop(block):
                yield from self._loop(block, loops, indent)
            else:
                for start in range(block.first, block.end, block.length):
                    yield from self.lines(start, start + block.length, loops, indent)
        yield from self._calls(at, end, loops, indent)

    def _calls(self, first: int, end: int, loops: Mapping[str, str], indent: str) -> Iterator[str]:
        for at in range(first, end):
            node = self._nodes[at]
            names = [_in_loop(name, loops) for name in node.names]
            inputs = [self.name_of(i) for i in node.inputs]
            beside = f"  # {_shown(node.module, loops)}" if node.module else ""
            yield f"{indent}v{at} = {_Text(node, inputs, names).call()}{beside}"

    def _is_loop(self, block: RepeatedBlock) -> bool:
        before_last = range(block.first, block.end - block.length)
        return all(
            position >= block.first and self._last_use[replaced] < block.end
            for replaced, position in block.second.items()
        ) and all(self._last_use[at] < block.end for at in before_last)

    def _loop(self, block: RepeatedBlock, loops: Mapping[str, str], indent: str) -> Iterator[str]:
        name = "block" if not loops else f"inner{len(loops)}"
        yield f"{indent}for {name} in {_modules(block.modules, loops)}:"
        inside = {block.modules[0]: name, **loops}  # the innermost first: its path is the longest
        end = block.first + block.length
        yield from self.lines(block.first, end, inside, indent + _INDENT)
        if block.second:
            replaced = ", ".join(self.name_of(at) for at in block.second)
            following = ", ".join(self.name_of(at) for at in block.second.values())
            yield f"{indent}{_INDENT}{replaced} = {following}"
        for at in range(block.first, end):
            self.place[at + block.end - end] = self.place.get(at, at)


def _modules(paths: Sequence[str], loops: Mapping[str, str]) -> str:
    parent, _, number = paths[0].rpartition(".")
    is_number = number.isdecimal() and len(number) < _DIGITS
    numbers = range(int(number), int(number) + len(paths)) if is_number else range(0)
    listed = [f"{parent}.{i}" if parent else f"{i}" for i in numbers]
    if listed != list(paths) or not _PLAIN.fullmatch(parent):
        return f"[{', '.join(_in_loop(path, loops) for path in paths)}]"
    first = f"{numbers.start}, " if numbers.start else ""
    variable, rest = _split(f"{parent}.{{i}}" if parent else "{i}", loops)
    text = f"f'{{{variable}}}{rest}'" if variable else f"f'{rest}'"
    return f"[{text} for i in range({first}{numbers.stop})]"


def _split(path: str, loops: Mapping[str, str]) -> tuple[str, str]:
    for own, variable in loops.items():
        if path == own or path.startswith(f"{own}."):
            return variable, path[len(own) :]
    return "", path


def _in_loop(path: str, loops: Mapping[str, str]) -> str:
    variable, rest = _split(path, loops)
    if not variable:
        return repr(path)
    if not rest:
        return variable
    plain = _PLAIN.fullmatch(rest)
    return f"f'{{{variable}}}{rest}'" if plain else f"{variable} + {rest!r}"


def _shown(path: str, loops: Mapping[str, str]) -> str:
    shown = "".join(_split(path, loops))
    return shown if shown.isprintable() else repr(shown)


class _Text:
    def __init__(self, node: Node, inputs: Sequence[str], names: Sequence[str]) -> None:
        self._node, self._inputs = node, inputs
        self._edges, self._names = iter(inputs), iter(names)
        self._listed = len(inputs) - sum(part == EDGE for part in node.parts())

    def call(self) -> str:
        """Return the call."""
        node = self._node
        parts = [self._value(value) for value in node.arguments]
        if node.operator in LEAVES:
            return parts[0]
        if node.operator == GETITEM:
            return f"{parts[0]}[{parts[1]}]"
        parts += [f"{name}={self._value(value)}" for name, value in node.keywords]
        word = node.operator.removeprefix("aten.").removesuffix(".default")
        return f"{word}({', '.join(parts)})"

    def _value(self, value: Any) -> str:
        if isinstance(value, tuple):
            return f"[{', '.join(self._value(part) for part in value)}]"
        if isinstance(value, Symbol):
            return self._size(value.size)
        if isinstance(value, Word):
            return value.name
        if isinstance(value, Leaf):
            sizes = ", ".join(self._size(size) for size in value.shape)
            name = next(self._names, "''")
            return (
                f"{value.kind}({'' if name == repr('') else f'{name}, '}[{sizes}], {value.dtype})"
            )
        if isinstance(value, str) and value == EDGE:
            return next(self._edges)
        if isinstance(value, str) and value == EDGES:
            return f"[{', '.join(next(self._edges) for _ in range(self._listed))}]"
        return repr(value)

    def _size(self, size: Size) -> str:
        """Return a size: an entry, or a part of the shape of a value."""
        if isinstance(size, int) or size == "max":
            return str(size)
        found = read_expression(size)
        text = found.source
        if found.first is not None:
            number = int(text[1:])
            owner = self._inputs[number] if text[0] == "a" else text
            dims = f"{found.first}:{'' if found.end is None else found.end}"
            one = f"{owner}.shape[{found.first}]"
            text = one if found.end == 0 else f"prod({owner}.shape[{dims}])"
        text += f"*{found.factor}" if found.factor else ""
        if found.ratio != 1:
            over = "" if found.ratio.denominator == 1 else f"//{found.ratio.denominator}"
            text += ("" if found.ratio.numerator == 1 else f"*{found.ratio.numerator}") + over
        text += f"//{found.divisor}" if found.divisor else ""
        return text + (f"{found.plus:+d}" if found.plus else "")
