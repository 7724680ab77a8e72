"""Nodes of a forward program: calls of operators, and the tensors that no call makes."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, final

from layerdag.errors import DataError, UsageError
from layerdag.hardware.dtypes import DTYPES
from layerdag.programs.operators import LEAVES
from layerdag.programs.sizes import Shape, Size, read_expression
from layerdag.runtime.json_shape import require_shape
from layerdag.runtime.settings import did_you_mean

EDGE = "#"
"""Stands for the next of a node's inputs among its arguments."""

EDGES = "#*"
"""Stands for a list of all inputs that no other argument takes."""

_MAX_INPUTS = 4_096
_DTYPES = frozenset(name for name, dtype in DTYPES.items() if dtype.in_programs)
_MEMORY_FORMATS = frozenset(
    ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
)
_WORDS: Mapping[str, frozenset[str]] = {
    "dtype": _DTYPES,
    "memory_format": _MEMORY_FORMATS,
    "device": frozenset(("run",)),
}
_MODE = re.compile(r"no_grad|autocast:(bfloat16|float16)")


@final
@dataclass(frozen=True)
class Symbol:
    """A size among the arguments of a call, as an expression."""

    size: str


@final
@dataclass(frozen=True)
class Word:
    """A dtype, memory format or device among the arguments of a call."""

    kind: str
    name: str  # such as "float32"; a device is always "run": that of the run


@final
@dataclass(frozen=True)
class Leaf:
    """A tensor that belongs to one node alone, or that an "input" or other leaf node makes."""

    kind: str  # "input", "parameter", "buffer" or "constant"
    shape: Shape
    dtype: str
    trained: bool = True  # whether a parameter gets a gradient
    content: tuple[bool | int | float, ...] | None = None  # numbers of a small constant, flat


@final
@dataclass(frozen=True)
class Node:
    """One call, or a leaf that several calls read."""

    operator: str  # overload such as "aten.linear.default", "getitem", or one of ``LEAVES``
    # In the order of the schema, without trailing defaults: numbers, ``Symbol``, ``Word``,
    # ``Leaf``, ``EDGE``, ``EDGES``, texts, None, and tuples of these. A leaf node has its ``Leaf``
    # alone
    arguments: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()
    inputs: tuple[int, ...] = ()  # positions of the nodes whose results are the edges, in order
    module: str = ""  # path of the module that called it, "" for the model itself
    names: tuple[str, ...] = ()  # names of the leaves among the arguments, in order
    mode: tuple[str, ...] = ()  # "no_grad" and "autocast:DTYPE" where they are on

    def __deepcopy__(self, memo: dict[int, Any]) -> "Node":
        return self  # nothing in it changes

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves among the arguments, in order."""
        return tuple(part for part in self.parts() if isinstance(part, Leaf))

    @cached_property
    def slots(self) -> tuple[Size, ...]:
        """The size expressions of the arguments, in order: what ``form`` leaves open."""
        found: list[Size] = []
        for part in self.parts():
            if isinstance(part, Symbol):
                found.append(part.size)
            elif isinstance(part, Leaf):
                found += [size for size in part.shape if isinstance(size, str)]
        return tuple(found)

    @cached_property
    def form(self) -> str:
        """The call without its size expressions and numbers of no effect on shapes, as text."""
        given = {"arguments": _form(self.arguments)}
        if self.keywords:
            given["keywords"] = {name: _form(value) for name, value in self.keywords}
        if self.mode:
            given["mode"] = list(self.mode)
        return json.dumps([self.operator, given], separators=(",", ":"))

    def parts(self) -> Iterator[Any]:
        """Yield the arguments, those of lists one by one."""
        yield from _flat(self.arguments)
        for _, value in self.keywords:
            yield from _flat(value)


G = TypeVar("G", bound="ForwardGraph")


@dataclass(frozen=True)
class ForwardGraph:
    """Calls with a table of sizes: a program, or the part of one that a pipeline stage runs."""

    name: str  # of the model
    nodes: tuple[Node, ...]  # in program order; inputs of a node come before it
    sizes: Mapping[str, int]  # number of each entry of the table of sizes
    # Positions of what the program returns: its loss, or outputs of an inference
    outputs: tuple[int, ...]
    # Names of the parameters in the order of their registration; empty for that of use
    order: tuple[str, ...] = ()
    unused: tuple[tuple[str, Leaf], ...] = ()  # parameters that no node reads: (name, leaf)
    units: tuple[str, ...] = ()  # paths of the modules that ``fully_shard`` gathers at once

    def resize(self: G, **sizes: int) -> G:
        """Return the program with other numbers in its table, such as ``resize(B0=64)``.

        Raises:
            UsageError: If the table has no such entry.
        """
        for name in sizes:
            if name not in self.sizes:
                raise UsageError(
                    f"{self.name} has no size '{name}'.{did_you_mean(name, list(self.sizes))} "
                    f"Known: {', '.join(self.sizes)}."
                )
        return replace(self, sizes={**self.sizes, **sizes})

    def last_uses(self) -> list[int]:
        """Return the last node that reads each result; its own where none does, the end if given.

        The end is the number of nodes: what the program returns outlives it.
        """
        found = list(range(len(self.nodes)))
        for at, node in enumerate(self.nodes):
            for i in node.inputs:
                found[i] = at
        for at in self.outputs:
            found[at] = len(self.nodes)
        return found

    def unit_around(self, path: str) -> str:
        """Return the unit that a module or parameter belongs to, "" for none."""
        return next((unit for unit in self.units if is_inside(path, unit)), "")


def is_inside(path: str, module: str) -> bool:
    """Return whether a path is that of a module, or of something in it."""
    return path == module or path.startswith(f"{module}.")


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def _form(value: Any) -> Any:
    """Return an argument without sizes, and without floats other than 0 and 1."""
    if isinstance(value, tuple):
        return [_form(part) for part in value]
    if isinstance(value, Symbol):
        return "?"
    if isinstance(value, Word):
        return {value.kind: value.name}
    if isinstance(value, Leaf):
        shape = ["?" if isinstance(size, str) else size for size in value.shape]
        flags = [] if value.trained else ["frozen"]
        return {value.kind: shape, "dtype": value.dtype, "flags": flags}
    if isinstance(value, float) and value not in (0.0, 1.0):
        return "~"
    return value


def node_to_json(node: Node) -> dict[str, Any]:
    """Return a node as JSON data, without loss."""
    data: dict[str, Any] = {"operator": node.operator, "arguments": value_to_json(node.arguments)}
    if node.keywords:
        data["keywords"] = {name: value_to_json(value) for name, value in node.keywords}
    for name in ("inputs", "module", "names", "mode"):
        if value := getattr(node, name):
            data[name] = value if name == "module" else list(value)
    return data


_SPECIAL = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def value_to_json(value: Any) -> Any:
    """Return an argument as JSON data."""
    if isinstance(value, tuple):
        return [value_to_json(part) for part in value]
    if isinstance(value, Symbol):
        return {"size": value.size}
    if isinstance(value, Word):
        return {value.kind: value.name}
    if isinstance(value, Leaf):
        data: dict[str, Any] = {value.kind: list(value.shape), "dtype": value.dtype}
        if not value.trained:
            data["trained"] = False
        if value.content is not None:
            data["content"] = [value_to_json(number) for number in value.content]
        return data
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": str(value)}
    if value in (EDGE, EDGES):
        return {"edge": value}
    return value


def read_node(data: Any, where: str) -> Node:
    """Return the node of JSON data.

    Raises:
        DataError: If it is none; names the place.
    """
    require_fields(data, _NODE, where)
    data = {**dict.fromkeys(("arguments", "inputs", "names", "mode"), ()), "module": "", **data}
    for word in data["mode"]:
        if _MODE.fullmatch(word) is None:
            raise DataError(f"{where}: mode '{word[:40]}' is neither no_grad nor autocast:DTYPE.")
    inputs = tuple(data["inputs"])
    if len(inputs) > _MAX_INPUTS:
        raise DataError(f"{where} has {len(inputs):,} inputs; at most {_MAX_INPUTS:,} are read.")
    keywords = data.get("keywords", {}).items()
    node = Node(
        operator=data["operator"],
        arguments=tuple(value_from_json(value, where) for value in data["arguments"]),
        keywords=tuple((name, value_from_json(value, where)) for name, value in keywords),
        inputs=inputs,
        module=data["module"],
        names=tuple(data["names"]),
        mode=tuple(data["mode"]),
    )
    _require_edges(node, where)
    return node


_NODE: Mapping[str, Any] = {
    "operator": str,
    "arguments?": [object],
    "keywords?": {str: object},
    "inputs?": [int],
    "module?": str,
    "names?": [str],
    "mode?": [str],
}


def require_fields(data: Any, shape: Mapping[str, Any], where: str) -> None:
    """Raise DataError, which names the place, if data have another shape or further members."""
    try:
        require_shape(data, shape)
    except ValueError as error:
        raise DataError(f"{where}: {error}.") from error
    known = [name.removesuffix("?") for name in shape]
    for key in data:
        if key not in known:
            raise DataError(f"{where}: unknown key '{key}'.{did_you_mean(key, known)}")


def _require_edges(node: Node, where: str) -> None:
    parts = list(node.parts())
    single, lists = parts.count(EDGE), parts.count(EDGES)
    fits = single == len(node.inputs) if not lists else lists == 1 and single <= len(node.inputs)
    if not fits:
        raise DataError(
            f"{where} ({node.operator}): its arguments take {single} inputs"
            f"{' and a list of them' if lists else ''}, but it has {len(node.inputs)}."
        )
    alone = len(node.arguments) == 1 and isinstance(node.arguments[0], Leaf)
    if node.operator in LEAVES and not (alone and node.arguments[0].kind == node.operator):
        raise DataError(f"{where}: a node '{node.operator}' has one argument, its leaf.")


def value_from_json(value: Any, where: str) -> Any:
    """Return the argument of JSON data; ``DataError`` if a program can have none such."""
    if isinstance(value, list):
        return tuple(value_from_json(part, where) for part in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping) and len(value) == 1:
        (key, inner), *_ = value.items()
        if key == "size" and isinstance(inner, str):
            return _symbol(inner, where)
        if isinstance(inner, str) and inner in _WORDS.get(key, ()):
            return Word(key, inner)
        if key == "edge" and inner in (EDGE, EDGES):
            return inner
        if key == "float" and isinstance(inner, str) and inner in _SPECIAL:
            return _SPECIAL[inner]
    if isinstance(value, Mapping):
        kinds = [kind for kind in LEAVES if kind in value]
        if len(kinds) == 1 and set(value) <= {kinds[0], "dtype", "trained", "content"}:
            return _leaf(kinds[0], value, where)
    raise DataError(f"{where}: {json.dumps(value)[:80]} is no argument that a program can have.")


def _symbol(text: str, where: str) -> Symbol:
    if text != "max":
        try:
            read_expression(text)
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
    return Symbol(text)


def _leaf(kind: str, value: Mapping[str, Any], where: str) -> Leaf:
    shape = value[kind]
    dtype, content = value.get("dtype"), value.get("content")
    is_known = isinstance(dtype, str) and dtype in _DTYPES
    if not isinstance(shape, list) or not is_known or len(shape) > 16:
        raise DataError(f"{where}: a {kind} has a list of sizes and a dtype that PyTorch knows.")
    sizes: list[Size] = []
    for size in shape:
        if isinstance(size, str):
            sizes.append(_symbol(size, where).size)
        elif type(size) is int and 0 <= size <= 2**40:
            sizes.append(size)
        else:
            raise DataError(f"{where}: {size!r} is no size of a {kind}.")
    numbers = None
    if content is not None:
        if not isinstance(content, list):
            raise DataError(f"{where}: the content of a {kind} is a list of numbers.")
        numbers = tuple(value_from_json(number, where) for number in content)
        if len(numbers) > 64 or any(not isinstance(n, bool | int | float) for n in numbers):
            raise DataError(f"{where}: the content of a {kind} is at most 64 numbers.")
    return Leaf(kind, tuple(sizes), str(dtype), bool(value.get("trained", True)), numbers)
