"""HLO text in the words that its conversion to StableHLO understands.

XLA's combiners join several arrays into one collective, and its schedulers split collectives into a
start and an end. StableHLO has no words for several of these, and its conversion leaves out how the
dimensions of a convolution are laid out. Each is said here in HLO that converts: what a collective
was and how a convolution lies are kept as frontend attributes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from layerdag.errors import DataError

COLLECTIVE_KEY = "layerdag_collective"
"""Frontend attribute with the name of a collective that is written as another one."""
LAYOUT_KEY = "layerdag_dim_labels"
"""Frontend attribute with the layout of a convolution: "b01f_o01i->b01f"."""
ORDER_TARGET = "layerdag$order"
"""Target of custom calls that only express an order or a tuple, and take no time."""

_MAX_NESTED = 1_000
_CHUNK = 1 << 22
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"([{<")] = 1
_STEPS[list(b")]}>")] = -1
_SIGNS = re.compile(rb"(?:-\s*){1000}")

_UNSPECIFIED = re.compile(r",\s*api_version=API_VERSION_UNSPECIFIED\b")
_CONCERNED = re.compile(
    r"-(?:start|update|done)\(|[ )](?:reduce-scatter|collective-permute)\(|dim_labels="
)
_KEPT = ("copy", "send", "recv")
"""What has a start and an end of its own in StableHLO, too, or is refused."""
_INSTRUCTION = re.compile(r"(?P<begin>\s*(?:ROOT )?)%(?P<name>\S+) = (?P<rest>.*)")
_OPCODE = re.compile(r"[\w-]+(?=\()")
_SCATTERED = re.compile(r", dimensions=\{[\d,]*\}")
_CALLS = re.compile(r", calls=(%\S+?)(?=,|$)")
_LAYOUT = re.compile(r"dim_labels=([\w?]+->[\w?]+)")
_NO_CONFIG = re.compile(r", backend_config=.*$")


def refuse_deep_nesting(data: bytes, source: str) -> None:
    """Refuse a text whose brackets nest so deep that a parser could run out of its stack.

    Raises:
        DataError: If more than a thousand brackets are open at once, or signs follow one another.
    """
    depth = 0
    # An arrow and the sign of an iota ("[1,2]<=[2]") are not brackets.
    for begin in range(0, len(data), _CHUNK):
        chunk = data[begin : begin + _CHUNK].replace(b"->", b"  ").replace(b"<=", b"  ")
        steps = _STEPS[np.frombuffer(chunk, np.uint8)]
        levels = np.cumsum(steps[steps != 0], dtype=np.int64)
        if levels.size and depth + int(levels.max()) > _MAX_NESTED:
            raise DataError(
                f"{source}: nests brackets more than {_MAX_NESTED:,} deep, which no compiler "
                "writes; the file is damaged."
            )
        depth += int(levels[-1]) if levels.size else 0
    if _SIGNS.search(data):
        raise DataError(f"{source}: holds a thousand signs in a row; the file is damaged.")


def spelled(text: str) -> str:
    """Return HLO text without the words that other writers of HLO add and that say nothing."""
    return _UNSPECIFIED.sub("", text)


def needs_words(text: str) -> bool:
    """Return whether some instruction may have to be said in other words."""
    return bool(_CONCERNED.search(text))


@dataclass(frozen=True)
class _Instruction:
    """One line of HLO text, as XLA prints it with the shapes of operands.

    Attributes:
        begin: What stands before its name.
        opcode: Such as "all-reduce".
        operands: Each with its shape and name.
        attributes: The rest, from the comma on.
    """

    begin: str
    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    attributes: str

    def line(
        self, name: str, shape: str, opcode: str, operands: tuple[str, ...], rest: str = ""
    ) -> str:
        """Return another instruction that takes a part of the work of this one."""
        begin = self.begin if name == self.name else self.begin.replace("ROOT ", "")
        return f"{begin}%{name} = {shape} {opcode}({', '.join(operands)}){rest}"

    def ordered(self, operands: tuple[str, ...]) -> str:
        """Return an instruction that has this result and takes no time."""
        target = f', custom_call_target="{ORDER_TARGET}"'
        return self.line(self.name, self.shape, "custom-call", operands, target)


def _end(text: str, begin: int) -> int:
    """Return where the bracket that opens at a position is closed, behind it."""
    depth = 0
    for place in range(begin, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if not depth:
            return place + 1
    return len(text)


def _parts(text: str) -> tuple[str, ...]:
    found, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            found.append(text[begin:place].strip())
            begin = place + 1
    return tuple(part for part in (*found, text[begin:].strip()) if part)


def _instruction(line: str) -> _Instruction | None:
    """Return the parts of a line, None if it is not an instruction."""
    found = _INSTRUCTION.fullmatch(line)
    if found is None:
        return None
    rest = found["rest"]
    cut = _end(rest, 0) if rest.startswith("(") else rest.find(" ")
    shape, rest = rest[:cut], rest[cut:].lstrip()
    opcode = _OPCODE.match(rest)
    if opcode is None:
        return None
    close = _end(rest, opcode.end())
    operands = _parts(rest[opcode.end() + 1 : close - 1])
    return _Instruction(found["begin"], found["name"], shape, opcode[0], operands, rest[close:])


def _shape(operand: str) -> str:
    return operand.rpartition("%")[0].strip()


def _tuple(shapes: tuple[str, ...]) -> str:
    return f"({', '.join(shapes)})" if len(shapes) != 1 else shapes[0]


def _with_key(attributes: str, key: str, value: str) -> str:
    entry = f'{key}="{value}"'
    if "frontend_attributes={" in attributes:
        return attributes.replace("frontend_attributes={", f"frontend_attributes={{{entry},", 1)
    return f"{attributes}, frontend_attributes={{{entry}}}"


def in_other_words(text: str) -> str:
    """Return HLO text, as XLA prints it with shapes of operands, in words that convert."""
    lines: list[str] = []
    for line in text.splitlines():
        found = _instruction(line) if _CONCERNED.search(line) else None
        lines.extend([line] if found is None else _said(found, line))
    return "\n".join(lines) + "\n"


def _said(found: _Instruction, line: str) -> Iterator[str]:
    base, _, stage = found.opcode.rpartition("-")
    several = len(found.operands) > 1
    if stage == "start" and base not in _KEPT:
        yield from _started(found, base)
    elif stage in ("update", "done") and base not in _KEPT:
        yield found.ordered(found.operands)
    elif found.opcode == "reduce-scatter" and several:
        shape, inner = _tuple(tuple(map(_shape, found.operands))), f"{found.name}.joined"
        rest = _with_key(_SCATTERED.sub("", found.attributes), COLLECTIVE_KEY, "reduce_scatter")
        yield found.line(inner, shape, "all-reduce", found.operands, rest)
        yield found.ordered((f"{shape} %{inner}",))
    elif found.opcode == "collective-permute" and several:
        yield from _permutes(found)
    elif (layout := _LAYOUT.search(found.attributes)) and found.opcode == "custom-call":
        config = _NO_CONFIG.search(found.attributes)
        tail = config[0] if config else ""
        rest = _with_key(found.attributes.removesuffix(tail), LAYOUT_KEY, layout[1]) + tail
        yield found.line(found.name, found.shape, found.opcode, found.operands, rest)
    else:
        yield line


def _started(found: _Instruction, base: str) -> Iterator[str]:
    """Yield the operation that a start begins, in its place.

    The result of a start is the operands, the results, and what the device keeps; that of an
    all-reduce may be the results alone.
    """
    parts = _parts(found.shape[1:-1]) if found.shape.startswith("(") else ()
    bundled = base != "all-reduce" or (bool(parts) and parts[0].startswith("("))
    results = parts[1] if bundled and len(parts) > 1 else found.shape
    rest = _NO_CONFIG.sub("", found.attributes)
    if base == "async":
        called = _CALLS.search(rest)
        base, rest = "call", f", to_apply={called[1]}" if called else ""
    begin = found.begin.replace("ROOT ", "")
    inner = _Instruction(begin, f"{found.name}.started", results, base, found.operands, rest)
    line = inner.line(inner.name, inner.shape, inner.opcode, inner.operands, inner.attributes)
    yield from _said(inner, line)
    yield found.ordered((f"{results} %{inner.name}",))


def _permutes(found: _Instruction) -> Iterator[str]:
    rest = _NO_CONFIG.sub("", found.attributes)
    names = [f"{found.name}.part{index}" for index in range(len(found.operands))]
    results = _parts(found.shape[1:-1])
    for name, operand, shape in zip(names, found.operands, results, strict=False):
        yield found.line(name, shape, "collective-permute", (operand,), rest)
    parts = zip(names, results, strict=False)
    yield found.ordered(tuple(f"{shape} %{name}" for name, shape in parts))
