"""Sizes as expressions."""

import pytest

from layerdag.errors import DataError
from layerdag.programs.sizes import MAX_SIZE, evaluate

SHAPES = {"a0": (4, 6, 32), "a1": (7,), "p0": (96, 32)}
TABLE = {"B0": 4, "w0": 32, "h0": 8}


@pytest.mark.parametrize(
    ("size", "value"),
    [
        (5, 5),
        ("w0", 32),
        ("w0*4", 128),
        ("w0*3/2", 48),
        ("a0.-1", 32),
        ("a1.0", 7),
        ("p0.0", 96),
        ("a0.0:2", 24),
        ("a0.1:", 192),
        ("a0.-1/h0", 4),
        ("a0.1+1", 7),
        ("a0.1+-2", 4),
        ("B0*w0", 128),
        ("w0*1/2/h0", 2),
        ("B0*w0*3/4/h0+1", 13),
        ("max", MAX_SIZE),
    ],
)
def test_an_expression_has_the_value_of_what_it_refers_to(size, value):
    assert evaluate(size, SHAPES, TABLE) == value


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ("w1", "the table of sizes lacks"),
        ("a2.0", "which the node does not have"),
        ("a0.5", "a dimension that"),
        ("a0.1/h0", "no whole number"),
        ("a1.0+-9", "no whole number"),
        ("w0**2", "is no size"),
        ("__import__", "is no size"),
    ],
)
def test_an_expression_without_a_value_is_refused(size, reason):
    with pytest.raises(DataError, match=reason):
        evaluate(size, SHAPES, TABLE)
