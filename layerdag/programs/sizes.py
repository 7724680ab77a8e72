"""Sizes of a program as expressions, so that one program covers all widths and batches.

A size is a whole number or the text of an expression of one reference, or of two entries:

    w0          an entry of the program's table of sizes
    a0.-1       a dimension of the node's first tensor; a1 is its second one
    p0.0        a dimension of the node's first parameter
    a0.1:3      the product of dimensions 1 and 2; "a0.1:" of all from 1 on
    w0*4, a0.-1*1/2, a0.-1/h0, a0.1+1    a multiple, a quotient, a sum
    B0*n0, w0*1/2/h0, B0*n0*2/h0+1       several of these, in this order
    max         2**63 - 1, which operators take for "to the end"

Entries of the table begin with the letter of their role (``ROLES``).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import final

from layerdag.errors import DataError

Size = int | str
"""A whole number or an expression."""

Shape = tuple[Size, ...]

ROLES = {
    "B": "batch",
    "n": "other dimension of an input",
    "w": "width of a parameter",
    "r": "rows of an embedding",
    "h": "heads, and other dimensions of views",
}
"""Roles of entries in the table of sizes, by their first letter."""

MAX_SIZE = 2**63 - 1
_MAX_VALUE = 2**40  # elements in one dimension; beyond it PyTorch's own sums overflow
_ENTRY = re.compile(r"[Bnwrh]\d{1,6}")
_EXPRESSION = re.compile(
    r"(?:(?P<entry>[Bnwrh]\d{1,6})|(?P<tensor>[ap]\d{1,4})\.(?P<first>-?\d{1,2})"
    r"(?P<product>:(?P<end>-?\d{1,2})?)?)"
    r"(?:\*(?P<factor>[Bnwrh]\d{1,6}))?(?:\*(?P<ratio>\d{1,6}(?:/[1-9]\d{0,5})?))?"
    r"(?:/(?P<divisor>[Bnwrh]\d{1,6}))?(?:\+(?P<plus>-?\d{1,6}))?"
)


@final
@dataclass(frozen=True)
class Expression:
    """An expression, read."""

    source: str  # name of the entry or tensor that it refers to
    first: int | None = None  # first dimension of the tensor; None for an entry
    # End of the product of dimensions; 0 for one dimension alone, None for all that follow
    end: int | None = 0
    factor: str = ""  # entry that the value is multiplied by, "" for none
    ratio: Fraction = Fraction(1)  # what the value is multiplied by
    divisor: str = ""  # entry that the value is divided by, "" for none
    plus: int = 0  # what is added


def is_entry(text: str) -> bool:
    """Return whether a text may name an entry of the table of sizes."""
    return _ENTRY.fullmatch(text) is not None


@lru_cache(maxsize=65536)
def read_expression(text: str) -> Expression:
    """Return an expression.

    Raises:
        DataError: If the text is no expression.
    """
    found = _EXPRESSION.fullmatch(text)
    if found is None:
        raise DataError(f"'{text[:60]}' is no size; write a number, 'w0', 'a0.-1' or 'a0.-1*2'.")
    part = found.groupdict()
    whole = part["product"] is not None
    return Expression(
        source=part["entry"] or part["tensor"],
        first=None if part["entry"] else int(part["first"]),
        end=(int(part["end"]) if part["end"] else None) if whole else 0,
        factor=part["factor"] or "",
        ratio=Fraction(part["ratio"] or 1),
        divisor=part["divisor"] or "",
        plus=int(part["plus"] or 0),
    )


def evaluate(size: Size, shapes: Mapping[str, Sequence[int]], table: Mapping[str, int]) -> int:
    """Return the value of a size.

    Shapes are those of each tensor and parameter of the node, by "a0", "p0" and so on.

    Raises:
        DataError: If the expression refers to nothing, or has no whole, possible value.
    """
    if isinstance(size, int):
        return size
    if size == "max":
        return MAX_SIZE
    found = read_expression(size)
    if found.first is None:
        referred = _entry(size, found.source, table)
    else:
        shape = shapes.get(found.source)
        if shape is None:
            raise DataError(
                f"size '{size}' refers to {found.source}, which the node does not have."
            )
        if found.end == 0 and not -len(shape) <= found.first < len(shape):
            raise DataError(f"size '{size}' refers to a dimension that {list(shape)} lacks.")
        alone = found.end == 0
        referred = shape[found.first] if alone else math.prod(shape[found.first : found.end])
    value = Fraction(referred) * found.ratio
    if found.factor:
        value *= _entry(size, found.factor, table)
    if found.divisor:
        value /= _entry(size, found.divisor, table)
    value += found.plus
    if value.denominator != 1 or not 0 <= value <= _MAX_VALUE:
        raise DataError(f"size '{size}' is {value}, no whole number between 0 and 2**40.")
    return int(value)


def _entry(size: str, name: str, table: Mapping[str, int]) -> int:
    if name not in table:
        raise DataError(f"size '{size}' refers to '{name}', which the table of sizes lacks.")
    return table[name]
