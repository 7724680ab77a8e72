"""What an operator expects, makes and costs; the rows of a table as such forms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

from layerdag.workloads.stage._dims import NOTHING, ONE, Dim, parse_dim, parse_dims, product

Dims = tuple[Dim, ...]


@final
@dataclass(frozen=True, eq=False)
class Layout:
    """Dimensions of a tensor on one rank.

    Attributes:
        dims: Its shape.
        reduced: Dimensions that were summed over: a degree among them leaves a partial sum.
    """

    dims: Dims
    reduced: Dims = ()

    @cached_property
    def elements(self) -> Dim:
        """Number of elements."""
        return product(self.dims)


@final
@dataclass(frozen=True, eq=False)
class Form:
    """One operator of a block; all copies of the block share it.

    Attributes:
        kind: STAGE's name of the operator, "T" for a tensor from elsewhere.
        operands: How it expects its operands.
        result: How its result is laid out.
        operations: Its cost; multiply and add count one.
    """

    kind: str
    operands: tuple[Layout, ...]
    result: Layout
    operations: Dim = NOTHING

    @cached_property
    def linked(self) -> "Form":
        """The form of a tensor from elsewhere once its producer is known."""
        return identity(self.result)


@final
@dataclass(frozen=True)
class Row:
    """A tensor of a block.

    Attributes:
        name: Unique in the block.
        form: Its operator.
        sources: Names of its operands.
        after: Names of tensors that must be there, too.
        weight: Whether it is a weight.
        gradient_of: Name of the weight whose gradient it is.
    """

    name: str
    form: Form
    sources: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    weight: bool = False
    gradient_of: str = ""

    def renamed(self, rename: Callable[[str], str]) -> "Row":
        """Return the row with every name changed."""
        return replace(
            self,
            name=rename(self.name),
            sources=tuple(map(rename, self.sources)),
            after=tuple(map(rename, self.after)),
            gradient_of=rename(self.gradient_of) if self.gradient_of else "",
        )

    def linked(self, source: str) -> "Row":
        """Return the row of a tensor from elsewhere with its producer."""
        if self.form.kind != "T":
            raise ValueError(f"{self.name} is made by {self.form.kind} and cannot be linked")
        return replace(self, form=self.form.linked, sources=(source,))


def placeholder(layout: Layout) -> Form:
    """Return the form of a tensor from elsewhere."""
    return Form("T", (), layout)


def identity(layout: Layout) -> Form:
    """Return the form that computes nothing and at most changes the sharding."""
    return Form("I", (layout,), layout)


def custom(operand: Layout, result: Layout, operations: Dim) -> Form:
    """Return the form of an operator with a cost of its own."""
    return Form("CUSTOM", (operand,), result, operations)


def read_table(text: str, meaning: Mapping[str, Dim]) -> list[Row]:
    """Return the rows of a table (``_tables``), for what its names mean in a model."""
    rows: dict[str, Row] = {}
    for line in text.strip().splitlines():
        if line.strip():
            name, operator, *fields = (part.strip() for part in line.split("|"))
            rows[name] = _Reader(rows, meaning).row(name, operator, fields)
    return list(rows.values())


@final
@dataclass(frozen=True)
class _Reader:
    """Reads one line of a table.

    Attributes:
        rows: Those above it.
        meaning: What names stand for.
    """

    rows: Mapping[str, Row]
    meaning: Mapping[str, Dim]

    def row(self, name: str, operator: str, fields: list[str]) -> Row:
        """Return the row."""
        kind, _, rest = operator.partition(" ")
        if kind in ("T", "W"):
            form = placeholder(Layout(parse_dims(rest, self.meaning)))
            return Row(name, form, weight=kind == "W")
        found = _Fields()
        for part in fields:
            self._field(part, found)
        form = self._form(kind, rest, found)
        return Row(name, form, tuple(found.sources), found.after, gradient_of=found.gradient_of)

    def _field(self, text: str, found: "_Fields") -> None:
        """Take one field of the line."""
        if text.startswith("->"):
            found.result = self._layout(text.removeprefix("->"))
        elif text.startswith("after "):
            found.after = tuple(text.split()[1:])
        elif text.startswith("gradient of "):
            found.gradient_of = text.removeprefix("gradient of ")
        else:
            source, colon, dims = text.partition(":")
            made = self.rows[source].form.result
            found.sources.append(source)
            found.operands.append(self._layout(dims) if colon else Layout(made.dims))

    def _layout(self, text: str) -> Layout:
        dims, _, reduced = text.partition("@")
        return Layout(parse_dims(dims, self.meaning), parse_dims(reduced, self.meaning))

    def _form(self, kind: str, rest: str, found: "_Fields") -> Form:
        """Return the form of an operator with operands."""
        operands, first = tuple(found.operands), found.operands[0]
        if kind == "M":
            return einsum(rest, operands)
        if kind == "I":
            return identity(first)
        if kind in ("A", "E", "E2"):
            factor = Dim.number(int(rest)) if rest else ONE
            return Form(kind, operands, first, first.elements * factor)
        if kind in ("C", "R"):
            result = found.result or first
            if kind == "R":
                return Form("R", operands, result, result.elements)
            return custom(first, result, parse_dim(rest, self.meaning))
        axis, size = int(rest.split()[0]), parse_dim(rest.split()[1], self.meaning)
        dims = list(first.dims)
        dims[axis] = dims[axis] * size if kind == "B" else size
        result = Layout(tuple(dims), first.reduced)
        return Form(kind, operands, result, result.elements)


@dataclass
class _Fields:
    """The fields of a line so far."""

    sources: list[str] = field(default_factory=list)
    operands: list[Layout] = field(default_factory=list)
    result: Layout | None = None
    after: tuple[str, ...] = ()
    gradient_of: str = ""


def einsum(letters: str, operands: tuple[Layout, ...]) -> Form:
    """Return the form of a matrix product; one operation for a multiply-accumulate."""
    terms, _, made = letters.partition("->")
    left, right = terms.split(",")
    size = dict(zip(left, operands[0].dims, strict=True))
    size |= dict(zip(right, operands[1].dims, strict=True))
    reduced = tuple(size[letter] for letter in left if letter not in made)
    result = Layout(tuple(size[letter] for letter in made), reduced)
    return Form("M", operands, result, result.elements * product(reduced))
