"""Sizes as sums of products of symbols."""

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from layerdag.workloads.stage._dims import NOTHING, ONE, Dim, parse_dim, parse_dims, product

_NUMBERS = {"S": 6, "D": 10, "H": 4, "K": 2, "tp": 3, "cp": 2, "dp": 5}
_PRODUCTS = st.lists(st.sampled_from(sorted(_NUMBERS)), min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("S/cp/tp", 1),
        ("(H+2*K)/tp", Fraction(8, 3)),
        ("3*S*D/(tp*cp)", 30),
        ("1/cp", Fraction(1, 2)),
        ("S*D/S", 10),
    ],
)
def test_a_size_is_exact(text: str, value: Fraction) -> None:
    assert parse_dim(text, {}).value(_NUMBERS) == value


def test_equal_forms_are_equal_whatever_their_order() -> None:
    assert parse_dim("(2*K+H)/tp", {}) == parse_dim("(H+2*K)/tp", {})
    assert parse_dim("S/cp*D/tp", {}) == parse_dim("D*S/(tp*cp)", {})
    assert parse_dim("S*D/S", {}) == Dim.symbol("D")


def test_equal_sizes_of_other_form_differ() -> None:
    numbers = {"S": 8, "D": 8}
    left, right = Dim.symbol("S"), Dim.symbol("D")
    assert left.value(numbers) == right.value(numbers)
    assert left != right


def test_a_degree_set_to_one_is_gone() -> None:
    dim = parse_dim("(D*D/tp + D*K/cp)/dp", {})
    assert dim.symbols == {"D", "K", "tp", "cp", "dp"}
    assert dim.without(["dp", "cp"]) == parse_dim("D*D/tp + D*K", {})


def test_names_of_a_table_mean_what_the_model_says() -> None:
    meaning = {"Q": parse_dim("S/cp", {})}
    assert parse_dims("Q, D", meaning) == parse_dims("S/cp, D", {})
    assert parse_dims(" ", meaning) == ()


def test_a_table_with_anything_else_is_refused() -> None:
    with pytest.raises(TypeError, match="a table has"):
        parse_dim("len(S)", {})


@given(st.tuples(_PRODUCTS, _PRODUCTS, _PRODUCTS))
def test_laws_of_arithmetic(names: tuple[list[str], ...]) -> None:
    a, b, c = (product(map(Dim.symbol, part)) for part in names)
    assert (a + b) * c == a * c + b * c
    assert (a * b) / b == a
    assert a + NOTHING == a * ONE == a
    assert (a + b).value(_NUMBERS) == a.value(_NUMBERS) + b.value(_NUMBERS)
    assert (a * b).value(_NUMBERS) == a.value(_NUMBERS) * b.value(_NUMBERS)
