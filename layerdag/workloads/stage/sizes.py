"""Sizes as sums of products of symbols, such as ``S*R/(cp*tp)``: exact, and comparable by form.

Two dimensions of equal size may differ in form, and STAGE tells them apart by form; so symbols are
kept until the end. Numbers are fractions: STAGE cuts what is left to integers.
"""

import ast
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import final

Product = tuple[tuple[str, int], ...]
"""Exponents of symbols, in order of symbols."""


@final
@dataclass(frozen=True)
class Dim:
    """A sum of products of symbols, each with its coefficient, sorted."""

    terms: tuple[tuple[Product, Fraction], ...]

    @classmethod
    def number(cls, value: int) -> "Dim":
        """Return a number as a dimension."""
        return cls._of({(): Fraction(value)})

    @classmethod
    def symbol(cls, name: str) -> "Dim":
        """Return a symbol as a dimension."""
        return cls._of({((name, 1),): Fraction(1)})

    @classmethod
    def _of(cls, found: Mapping[Product, Fraction]) -> "Dim":
        return cls(tuple(sorted((product, c) for product, c in found.items() if c)))

    @cached_property
    def symbols(self) -> frozenset[str]:
        """All symbols that occur."""
        return frozenset(name for product, _ in self.terms for name, _ in product)

    def __add__(self, other: "Dim") -> "Dim":
        found = dict(self.terms)
        for product, coefficient in other.terms:
            found[product] = found.get(product, Fraction(0)) + coefficient
        return self._of(found)

    def __mul__(self, other: "Dim") -> "Dim":
        found: dict[Product, Fraction] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                product = _joined(left, right)
                found[product] = found.get(product, Fraction(0)) + a * b
        return self._of(found)

    def __truediv__(self, other: "Dim") -> "Dim":
        ((product, coefficient),) = other.terms  # no table divides by a sum
        inverse = tuple((name, -exponent) for name, exponent in product)
        return self * self._of({inverse: 1 / coefficient})

    def without(self, names: Iterable[str]) -> "Dim":
        """Return the dimension with some symbols set to one."""
        gone = set(names)
        total = NOTHING
        for product, coefficient in self.terms:
            left = tuple(factor for factor in product if factor[0] not in gone)
            total += self._of({left: coefficient})
        return total

    def value(self, numbers: Mapping[str, int]) -> Fraction:
        """Return the size for given symbols."""
        total = Fraction(0)
        for product, coefficient in self.terms:
            for name, exponent in product:
                coefficient *= Fraction(numbers[name]) ** exponent
            total += coefficient
        return total


ONE = Dim.number(1)


NOTHING = Dim(())


def product(dims: Iterable[Dim]) -> Dim:
    """Return the number of elements of a shape."""
    return math.prod(dims, start=ONE)


def _joined(left: Product, right: Product) -> Product:
    exponents = dict(left)
    for name, exponent in right:
        exponents[name] = exponents.get(name, 0) + exponent
    return tuple(sorted(factor for factor in exponents.items() if factor[1]))


def parse_dims(text: str, meaning: Mapping[str, Dim]) -> tuple[Dim, ...]:
    """Return the dimensions of a table's text, such as ``B/dp, S/cp, D``.

    Names without a ``meaning`` are symbols.
    """
    return tuple(parse_dim(part, meaning) for part in text.split(",")) if text.strip() else ()


def parse_dim(text: str, meaning: Mapping[str, Dim]) -> Dim:
    """Return one dimension of a table's text."""
    return _evaluated(_parsed(text.strip()), meaning)


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _evaluated(node: ast.expr, meaning: Mapping[str, Dim]) -> Dim:
    if isinstance(node, ast.Name):
        return meaning.get(node.id) or Dim.symbol(node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Dim.number(node.value)
    if not isinstance(node, ast.BinOp):
        raise TypeError(f"a table has {ast.dump(node)}")
    left, right = _evaluated(node.left, meaning), _evaluated(node.right, meaning)
    if isinstance(node.op, ast.Add):
        return left + right
    return left * right if isinstance(node.op, ast.Mult) else left / right
