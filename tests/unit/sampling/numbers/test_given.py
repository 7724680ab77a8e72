"""Numbers of given first and last nodes."""

import numpy as np
import pytest

from layerdag.sampling.numbers import GivenNumbers

FIRST = {"bytes": np.array([1.0, np.nan])}
DRAWN = {"bytes": np.arange(10.0, 15.0)}


@pytest.mark.parametrize(
    ("given", "numbers", "rows"),
    [
        (GivenNumbers(FIRST, {"bytes": np.array([7.0])}), [1, np.nan, 12, 13, 7], [0, 1, 4]),
        (GivenNumbers.of_first(FIRST), [1, np.nan, 12, 13, 14], [0, 1]),
    ],
)
def test_given_numbers_take_the_place_of_drawn_ones(
    given: GivenNumbers, numbers: list[float], rows: list[int]
) -> None:
    np.testing.assert_equal(given.in_place_of(DRAWN), {"bytes": np.array(numbers)})
    assert given.rows(5) == rows


def test_a_graph_without_numbers_has_none_given() -> None:
    assert GivenNumbers({}, {}).in_place_of({}) == {}
