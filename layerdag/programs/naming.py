"""From recordings to a program: each number of a shape becomes an expression.

One observation is ambiguous: a batch of 64 may be a width of 64. Recordings of one model at several
sizes are held side by side, so that each size is a vector of numbers, and only an expression that
is true in all of them names it. What a single recording leaves open is found by trying: the program
is run with another batch, and where a node then fails, the batch is no part of its sizes.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from layerdag.errors import DataError
from layerdag.hardware.operators import base_name
from layerdag.programs.execution import NodeError, run_fake, tensors_of
from layerdag.programs.forward_program import Program
from layerdag.programs.nodes import EDGE, EDGES, Leaf, Node, Symbol, Word
from layerdag.programs.operators import GETITEM, arguments
from layerdag.programs.recording import (
    RecordedCall,
    RecordedLeaf,
    Recording,
    Reference,
    dtype_name,
    references,
    same_structure,
)
from layerdag.programs.sizes import MAX_SIZE, Size

Vector = tuple[int, ...]
"""A size in each of the recordings."""

_RATIOS = tuple(
    Fraction(*ratio)
    for ratio in (
        *((2, 1), (3, 1), (4, 1), (1, 2), (1, 3), (1, 4), (6, 1), (8, 1), (1, 6), (1, 8)),
        *((3, 2), (2, 3), (9, 1), (16, 1), (1, 16), (8, 3)),
    )
)
"""Multiples of a width that models have, the usual ones first."""
_SUMS = (1, -1, 2, -2)
_PARTS = tuple(Fraction(*ratio) for ratio in ((1, 1), (1, 2), (2, 1), (1, 4), (1, 8)))
"""Parts of a product or quotient of two entries: halves of a head, shares of an expert."""
_WIDTH_FROM = 16  # smaller widths are no multiples of one another by anything but chance
_LITERAL_TO = 8
_MAX_HEADS = 128  # a longer dimension of a constant holds rows, such as those of positions
_MAX_TRIES = 40
_MAX_BLAMED = 61
_ELEMENTWISE = ("add", "sub", "mul", "div")
_EMBEDDINGS = ("embedding", "embedding_bag")
_VIEWS = ("view", "reshape", "unflatten")
_WORDS_OF_VIEWS = (-1, 0, 1, 2, 3)
"""Numbers in views that are written as they are: pairs of rotary positions, query, key, value."""


def program_of(recordings: Sequence[Recording]) -> Program:
    """Return the program of one model, recorded at several sizes; its table has the first ones.

    Raises:
        DataError: If the recordings differ in more than sizes.
    """
    first = recordings[0]
    for other in recordings[1:]:
        if not same_structure(first, other):
            raise DataError(
                f"{first.name}: another size makes other calls, not the same with other numbers."
            )
    naming = _Naming(recordings)
    named = naming.program()
    naming.verify(named)
    return named if len(recordings) > 1 else _tried(recordings, named)


def _tried(recordings: Sequence[Recording], program: Program) -> Program:
    """Return the program after trying other batches; batch expressions that fail are replaced."""
    batch = program.sizes.get("B0")
    if batch is None:
        return program
    without: set[int] = set()
    for _ in range(_MAX_TRIES):
        try:
            for other in (batch + 3, 2 * batch):
                run_fake(program.resize(B0=other))
        except NodeError as error:
            at = _blamed(program, error.at, without)
        else:
            return program
        if at is None:
            break
        without.add(at)
        program = _Naming(recordings, frozenset(without)).program()
    note = "With another batch this program does not run: sizes of its views are those recorded."
    return replace(program, notes=(*program.notes, note))


def _blamed(program: Program, failed: int, without: set[int]) -> int | None:
    """Return the nearest node before a failure whose sizes may be wrongly taken for the batch."""
    todo = [failed]
    for at in itertools.islice(todo, _MAX_BLAMED):  # it grows on the way
        node = program.nodes[at]
        named = any(str(size).startswith(("B0", "a0.0", "a1.0")) for size in node.slots)
        if named and at not in without and node.operator != "input":
            return at
        todo += dict.fromkeys(i for i in node.inputs if i not in todo)
    return None


@dataclass
class _Context:
    """The sizes that expressions of one node may refer to."""

    base: str  # name of the operator, such as "linear"
    inputs: list[tuple[Vector, ...]]  # their shapes, () for a list of tensors
    batch: bool  # whether the batch may be named
    leaves: list[tuple[Vector, ...]] = field(default_factory=list)  # shapes so far
    names: list[str] = field(default_factory=list)

    @property
    def first(self) -> tuple[Vector, ...]:
        """Shape of the first input."""
        return self.inputs[0] if self.inputs else ()

    def backwards(self, at: int = 0) -> Iterator[tuple[int, str, Vector]]:
        """Yield the dimensions of an input, the last first: number, expression, sizes."""
        shape = self.inputs[at] if self.inputs else ()
        for dim in range(len(shape) - 1, -1, -1):
            yield dim, f"a{at}.{dim - len(shape)}", shape[dim]


def _times(number: Vector, ratio: Fraction) -> tuple[Fraction, ...]:
    return tuple(n * ratio for n in number)


def _product(shape: Sequence[Vector]) -> Vector:
    return tuple(math.prod(sizes) for sizes in zip(*shape, strict=True))


class _Naming:
    """Names the sizes of recordings; those of nodes in ``without`` are not the batch."""

    def __init__(self, recordings: Sequence[Recording], without: frozenset[int] = frozenset()):
        self._recordings, self._without = recordings, without
        self._rows = list(zip(*(recording.values for recording in recordings), strict=True))
        self._entries: dict[str, Vector] = {}
        self._nodes: list[Node] = []
        self._at: dict[int, int] = {}
        self._uses = [0] * len(self._rows)
        for row in self._rows:
            if isinstance(row[0], RecordedCall):
                for value in references(row[0].arguments):
                    self._uses[value] += 1
        leaves = [row for row in self._rows if isinstance(row[0], RecordedLeaf)]
        self._resized = any(
            leaf.shape != row[0].shape for row in leaves for leaf in row if leaf.kind == "parameter"
        )
        self._parts: dict[int, list[int]] = {}
        self._tables: set[int] = set()  # parameters whose rows an embedding looks up
        for at, row in enumerate(self._rows):
            if isinstance(row[0], RecordedCall) and base_name(row[0].operator) in _EMBEDDINGS:
                self._tables.add(next(references(row[0].arguments)))
            if isinstance(row[0], RecordedCall) and row[0].operator == GETITEM:
                whole = next(references(row[0].arguments))
                self._parts.setdefault(whole, []).append(at)

    def program(self) -> Program:
        """Return the program."""
        first = self._recordings[0]
        for at, row in enumerate(self._rows):
            if isinstance(row[0], RecordedLeaf) and row[0].kind == "input":
                self._shared(at, row)
        for at, row in enumerate(self._rows):
            if isinstance(row[0], RecordedLeaf):
                if row[0].kind != "input" and (self._uses[at] > 1 or at in first.outputs):
                    self._shared(at, row)
            elif row[0].operator != GETITEM:
                self._call(at, row)
                for part in self._parts.get(at, ()):  # beside it: taking a part runs nothing
                    self._call(part, self._rows[part])
        unused = tuple((leaf.name, Leaf("parameter", leaf.shape, leaf.dtype, leaf.trained))
                       for leaf in first.unused)  # fmt: skip
        return Program(
            name=first.name,
            nodes=tuple(self._nodes),
            sizes={name: number[0] for name, number in self._entries.items()},
            outputs=tuple(self._at[at] for at in first.outputs),
            order=first.order,
            unused=unused,
            units=first.units,
            notes=_notes(first),
        )

    def verify(self, program: Program) -> None:
        """Run the program at every recorded size and compare all shapes and dtypes.

        Raises:
            DataError: If one differs, or a node cannot run.
        """
        for number, recording in enumerate(self._recordings):
            table = {name: known[number] for name, known in self._entries.items()}
            results = run_fake(program.resize(**table))
            for at, position in self._at.items():
                value = recording.values[at]
                tensors = tensors_of(results[position])
                found = [(tuple(each.shape), dtype_name(each.dtype)) for each in tensors]
                if found != _recorded(value) and not _differs_by_device(program, position):
                    raise DataError(
                        f"{program.name}: node {position} ({program.nodes[position].operator}) "
                        f"gives {found}; recorded was {_recorded(value)}."
                    )

    @property
    def _batch(self) -> Vector | None:
        return self._entries.get("B0")

    def _find(self, number: Vector, roles: str) -> str | None:
        """Return an entry of some roles that has a number in all recordings."""
        equal = (name for name, known in self._entries.items() if known == number)
        return next((name for name in equal if name[0] in roles), None)

    def _entry(self, role: str, number: Vector) -> str:
        """Return the entry of a role for a number, a new one if there is none."""
        found = self._find(number, role)
        if found is None:
            found = f"{role}{sum(name[0] == role for name in self._entries)}"
            self._entries[found] = number
        return found

    def _shared(self, at: int, row: Sequence[Any]) -> None:
        leaf = row[0]
        shape = _shape(row)
        sizes: list[Size] = []
        for place, number in enumerate(shape):
            if leaf.kind == "input":
                sizes.append(self._input_size(number, place))
            elif leaf.kind == "parameter":
                rows = place == 0 and at in self._tables
                sizes.append(self._rows_of(number) if rows else
                             self._width(number, (), "w"))  # fmt: skip
            elif leaf.content is not None:
                sizes.append(number[0])
            else:
                known = self._find(number, "nwrh")
                if known is None and min(number) > _MAX_HEADS and not self._related(number):
                    known = self._entry("r", number)
                fixed = (len(set(number)) == 1 and number[0] <= 1) or self._structural(number)
                sizes.append(number[0] if fixed else known or self._view(number))
        names = (leaf.name,) if leaf.kind in ("parameter", "buffer") else ()
        self._at[at] = len(self._nodes)
        self._nodes.append(Node(leaf.kind, (_leaf(leaf, sizes),), names=names))

    def _input_size(self, number: Vector, place: int) -> Size:
        if set(number) in ({1}, {3}):
            return number[0]
        batch = self._batch
        if batch is None:
            return self._entry("B", number)
        if batch == number and (place == 0 or len(self._recordings) > 1):
            return "B0"
        multiple = {Fraction(n, b) for n, b in zip(number, batch, strict=True)}
        if place == 0 and len(multiple) == 1 and min(multiple).denominator == 1:
            return f"B0*{min(multiple)}"
        if self._structural(number):
            return number[0]
        return self._find(number, "nwr") or self._entry("n", number)

    def _call(self, at: int, row: Sequence[RecordedCall]) -> None:
        call = row[0]
        read = [value for value in references(call.arguments) if value in self._at]
        context = _Context(
            base_name(call.operator).removesuffix("_"),
            [_shape(self._rows[value]) for value in read],
            len(self._nodes) not in self._without,
        )
        parts = () if call.operator == GETITEM else arguments(call.operator)
        known = {part.name: part for part in parts}
        positional: list[Any] = []
        keywords: list[tuple[str, Any]] = []
        reached = 0
        for place, (name, _) in enumerate(call.arguments):
            values = tuple(other.arguments[place][1] for other in row)
            sized = name in known and known[name].sized
            made = self._value(values, name, sized, context)
            if call.operator == GETITEM or (
                not keywords and not known[name].keyword and list(known).index(name) == reached
            ):
                positional.append(made)
                reached += 1
            else:
                keywords.append((name, made))
        self._at[at] = len(self._nodes)
        self._nodes.append(
            Node(
                call.operator,
                tuple(positional),
                tuple(keywords),
                tuple(self._at[value] for value in read),
                call.module,
                tuple(context.names),
                call.mode,
            )
        )

    def _value(self, values: tuple[Any, ...], name: str, sized: bool, context: _Context) -> Any:
        first = values[0]
        if isinstance(first, Reference):
            if first.value in self._at:
                return EDGE
            row = self._rows[first.value]
            context.names.append(row[0].name)
            return self._own_leaf(row, context)
        if isinstance(first, Word):
            return first
        if isinstance(first, tuple):
            return self._tuple(values, name, sized, context)
        if isinstance(first, bool) or not isinstance(first, int):
            return first
        number = tuple(values)
        return self._number(number, name, context) if sized else self._plain(number, name)

    def _plain(self, number: Vector, name: str) -> Any:
        """Return a number that is no size; if it differs between recordings it must be one."""
        if len(set(number)) == 1:
            return number[0]
        found = self._find(number, "Bnwrh") or self._view(number)
        return found if isinstance(found, int) else Symbol(found)

    def _tuple(self, values: tuple[Any, ...], name: str, sized: bool, context: _Context) -> Any:
        first = values[0]
        tensors = [p for p in first if isinstance(p, Reference) and p.value in self._at]
        if first and len(tensors) == len(first):
            return EDGES
        whole = all(isinstance(p, int) and not isinstance(p, bool) for p in first)
        if sized and whole and first:
            columns = [tuple(value[at] for value in values) for at in range(len(first))]
            return self._listed(columns, context)
        parts = zip(*values, strict=True)
        return tuple(self._value(tuple(part), name, sized, context) for part in parts)

    def _own_leaf(self, row: Sequence[RecordedLeaf], context: _Context) -> Leaf:
        leaf, shape = row[0], _shape(row)
        fixed = leaf.kind == "constant" and leaf.content is not None
        sizes = [
            number[0] if fixed else self._leaf_size(leaf.kind, number, place, len(shape), context)
            for place, number in enumerate(shape)
        ]
        context.leaves.append(shape)
        return _leaf(leaf, sizes)

    def _leaf_size(
        self, kind: str, number: Vector, place: int, rank: int, context: _Context
    ) -> Size:
        if set(number) in ({0}, {1}):
            return number[0]
        if kind == "parameter":
            return self._parameter_size(number, place, rank, context)
        own = self._own_first(number, context) if rank == 1 else None
        if own is not None:
            return own
        if rank > 1:
            rows = min(number) > _MAX_HEADS and self._find(number, "nwrh") is None
            if rows and not self._structural(number) and not self._related(number):
                return self._entry("r", number)
            return self._scalar(number, context)
        return self._width(number, _channel(context.base, context.first), "w")

    def _own_first(self, number: Vector, context: _Context) -> Size | None:
        leaves = enumerate(context.leaves)
        return next((f"p{at}.0" for at, known in leaves if known[:1] == (number,)), None)

    def _parameter_size(self, number: Vector, place: int, rank: int, context: _Context) -> Size:
        base, first = context.base, context.first
        if base.startswith("conv"):
            if place >= 2:
                return number[0] if len(set(number)) == 1 else self._width(number, (), "w")
            if place == (0 if base.startswith("conv_transpose") else 1):
                return self._channels(number, first)
        if base == "linear" and place == 1 and first and first[-1] == number:
            return "a0.-1"
        if base.startswith("embedding") and place == 0:
            return self._rows_of(number)
        aligned = base in _ELEMENTWISE and 1 < rank <= len(first)
        if aligned and first[place - rank] == number:
            return f"a0.{place - rank}"
        own = self._own_first(number, context) if rank == 1 else None
        return own or self._width(number, _channel(base, first), "w")

    def _channels(self, number: Vector, first: tuple[Vector, ...]) -> Size:
        parts = {Fraction(c, n) for c, n in zip(first[1], number, strict=True)} if first[1:] else ()
        if len(parts) != 1 or min(parts).denominator > 1:
            return self._width(number, (), "w")
        return "a0.1" if min(parts) == 1 else f"a0.1*1/{min(parts)}"

    def _width(self, number: Vector, channel: tuple[tuple[str, Vector], ...], role: str) -> Size:
        for text, known in channel:
            if known == number:
                return text
        if self._structural(number):
            return number[0]
        found = self._find(number, role)
        if found is not None:
            return found
        if min(number) > _WIDTH_FROM:
            for text, known in channel:
                if self._find(known, "n") and not self._find(known, "w"):
                    continue  # features of an input: a first layer's width is its own
                for ratio in _RATIOS:
                    if min(known) > 4 and _times(known, ratio) == number:
                        return f"{text}*{ratio}"
        found = self._find(number, "wr")
        if found is None and len(set(number)) > 1:  # several observations agree
            found = next((text for text in self._of_one(number) if text[0] == "w"), None)
        return found or self._entry(role, number)

    def _rows_of(self, number: Vector) -> Size:
        return number[0] if self._structural(number) else self._entry("r", number)

    def _structural(self, number: Vector) -> bool:
        return self._resized and len(set(number)) == 1

    def _view(self, number: Vector) -> Size:
        """Return a size that no shape gives: what follows from two entries, or one of its own."""
        if self._structural(number):
            return number[0]
        return self._related(number) or self._entry("h", number)

    def _related(self, number: Vector) -> str | None:
        """Return an expression of entries; two of them only where several observations agree."""
        if len(set(number)) < 2:
            return None
        return next(self._of_one(number), None) or next(self._of_two(number), None)

    def _of_one(self, number: Vector) -> Iterator[str]:
        for name, known in self._entries.items():
            for plus in _SUMS:
                if tuple(n + plus for n in known) == number:
                    yield f"{name}+{plus}"
        for name, known in self._entries.items():
            for ratio in _RATIOS:
                if _times(known, ratio) == number:
                    yield f"{name}*{ratio}"

    def _of_two(self, number: Vector) -> Iterator[str]:
        pairs = list(itertools.product(self._entries.items(), repeat=2))
        for ratio in _PARTS:
            text = "" if ratio == 1 else f"*{ratio}"
            for (name, known), (other, further) in pairs:
                if other >= name and _times(_product((known, further)), ratio) == number:
                    yield f"{name}*{other}{text}"
                divides = name[0] in "nw" and other[0] in "hw" and other != name
                if divides and _times(known, ratio) == _product((number, further)):
                    yield f"{name}{text}/{other}"

    def _listed(self, numbers: list[Vector], context: _Context) -> tuple[Any, ...]:
        """Return the numbers of a list that is a shape, such as that of a view.

        A view may leave one dimension to PyTorch; it is the first that nothing known gives.
        """
        open_one = context.base in _VIEWS and not any(set(number) == {-1} for number in numbers)
        found: list[Any] = []
        for place, number in enumerate(numbers):
            if len(set(number)) == 1 and number[0] in _WORDS_OF_VIEWS:
                found.append(number[0])
                continue
            size: Size | None = number[0] if self._structural(number) else None
            if size is None and context.base != "unflatten":
                size = next(self._from_shape(numbers, place, context), None)
            if size is None and open_one and place > 0 and place == len(numbers) - 1:
                size, open_one = -1, False
            if size is None:
                size = self._from_table(number, place, numbers, context)
            found.append(Symbol(size) if isinstance(size, str) else size)
        return tuple(found)

    def _from_shape(self, numbers: list[Vector], place: int, context: _Context) -> Iterator[Size]:
        """Yield what the shape of the first input, or the batch, says of one number."""
        number, first, count, batch = numbers[place], context.first, len(numbers), self._batch
        begins = place < len(first) and tuple(numbers[: place + 1]) == first[: place + 1]
        if begins and (context.batch or first[place] != batch):
            yield f"a0.{place}"
        rest = count - place
        if rest <= len(first) and tuple(numbers[place:]) == first[len(first) - rest :]:
            yield f"a0.{place - count}"
        for start in range(len(first) - 1):
            for end in range(start + 2, len(first) + 1):
                if _product(first[start:end]) == number:
                    inner = start == 0 or end < len(first)
                    yield f"a0.{start}:{end}" if inner else f"a0.{start - len(first)}:"
        if place == 0 and batch is not None and context.batch:
            if number == batch:
                yield "B0"
            for ratio in _RATIOS:
                if _times(batch, ratio) == number:
                    yield f"B0*{ratio}"

    def _from_table(
        self, number: Vector, place: int, numbers: list[Vector], context: _Context
    ) -> Size:
        """Return an entry of the table, or a part of the first input's shape."""
        first = context.first
        known = self._find(number, "h")
        if known is not None and (not first or place >= 1 or context.base == "unflatten"):
            return known
        heads = [(name, n) for name, n in self._entries.items() if name[0] == "h" and min(n) > 1]
        for (dim, text, length), (name, parts) in itertools.product(context.backwards(), heads):
            if dim and length == _product((parts, number)):
                return f"{text}/{name}"
        if number != self._batch and place != 1:
            for _, text, length in context.backwards():
                if length == number:
                    return text
        known = self._find(number, "nwrh")
        if known is not None:
            return known
        if place != len(numbers) - 1 and min(number) > _LITERAL_TO:
            for dim, text, length in context.backwards():
                for ratio in (Fraction(1, 2), Fraction(2), Fraction(1, 4), Fraction(4)):
                    if dim and _times(length, ratio) == number:
                        return f"{text}*{ratio}"
        return self._view(number)

    def _number(self, number: Vector, name: str, context: _Context) -> Any:
        if set(number) == {MAX_SIZE}:
            return Symbol("max")
        constant = len(set(number)) == 1
        if constant and (number[0] in (0, 1) or number[0] < 0):
            return number[0]
        if name == "groups":
            channels = context.first[1] if len(context.first) > 1 else None
            return Symbol("a0.1") if channels == number else self._plain(number, name)
        largest = {"num_groups": 64, "output_size": _LITERAL_TO}.get(name, 0)
        if constant and number[0] <= largest:
            return number[0]
        found = self._scalar(number, context)
        return found if isinstance(found, int) else Symbol(found)

    def _scalar(self, number: Vector, context: _Context) -> Size:
        batch = self._batch
        for at in range(len(context.inputs)):
            for _, text, length in context.backwards(at):
                if length == number != batch:
                    return text
        if self._structural(number):
            return number[0]
        found = self._find(number, "nwrh")
        if found is not None:
            return found
        if number == batch and context.batch:
            return "B0"
        for dim, text, length in context.backwards():
            if min(length) <= 4 or (dim == 0 and length == batch):
                continue  # nothing is a multiple of the batch
            for ratio in _RATIOS:
                if _times(length, ratio) == number:
                    return f"{text}*{ratio}"
        if len(set(number)) == 1 and number[0] <= _LITERAL_TO:
            return number[0]
        for _, text, length in context.backwards():
            for plus in _SUMS:
                if min(length) > _LITERAL_TO and tuple(n + plus for n in length) == number:
                    return f"{text}+{plus}"
        return self._view(number)


def _notes(recording: Recording) -> tuple[str, ...]:
    notes = [
        f"The branch that was taken is kept: {place} asked for the content of a tensor."
        for place in dict.fromkeys(recording.branches)
    ]
    unknown = recording.unknown_numbers
    if unknown:
        operators = ", ".join(sorted(set(unknown)))
        notes.append(
            f"Numbers of {operators} that the trace lacks: {len(unknown)}. 0.5 and 1 stand for "
            "them, so what the program computes is not what the traced step computed."
        )
    if recording.messages:
        notes.append(
            f"Messages between ranks that are left out: {recording.messages}. The program is what "
            "one stage of a pipeline ran before its first backward pass, not the model's."
        )
    return tuple(notes)


def _recorded(value: RecordedLeaf | RecordedCall) -> list[tuple[tuple[int, ...], str]]:
    if isinstance(value, RecordedLeaf):
        return [(value.shape, value.dtype)]
    return list(zip(value.shapes, value.dtypes, strict=True))


def _channel(base: str, first: tuple[Vector, ...]) -> tuple[tuple[str, Vector], ...]:
    if not first or base.startswith("embedding"):
        return ()
    by_channel = base.startswith("batch_norm") or (
        base.startswith(("conv", "group_norm", "instance_norm")) and len(first) > 2
    )
    if by_channel:
        return (("a0.1", first[1]),) if len(first) > 1 else ()
    return (("a0.-1", first[-1]),)


def _differs_by_device(program: Program, at: int) -> bool:
    """Return whether a result is, or holds, what each device keeps in its own way.

    Beside its sums ``embedding_bag`` returns what only its backward pass reads.
    """
    node = program.nodes[at]
    if node.operator == GETITEM:
        return node.arguments[1] != 0 and _differs_by_device(program, node.inputs[0])
    return node.operator.startswith("aten.embedding_bag.")


def _leaf(leaf: RecordedLeaf, sizes: Sequence[Size]) -> Leaf:
    trained = leaf.trained or leaf.kind != "parameter"
    return Leaf(leaf.kind, tuple(sizes), leaf.dtype, trained, leaf.content)


def _shape(row: Sequence[RecordedLeaf | RecordedCall]) -> tuple[Vector, ...]:
    """Return the sizes of each dimension of a value; () of several tensors."""
    shapes = [(each.shape,) if isinstance(each, RecordedLeaf) else each.shapes for each in row]
    return tuple(zip(*(only for (only,) in shapes), strict=True)) if len(shapes[0]) == 1 else ()
