"""Units of fully sharded data parallelism: what each rank holds."""

import numpy as np
import torch
from hypothesis import given, strategies as st
from laws import tried

from layerdag.workloads.scaling._rows import Unit, factors

WHOLE = st.tuples(st.integers(1, 40), st.integers(1, 9))  # rows, and elements of a row


def padded_unit(parameters: list[tuple[int, int]], members: int) -> Unit:
    """Return the unit that FSDP2 makes of parameters: each is cut by rows and filled up."""
    elements = sum(-(-rows // members) * each for rows, each in parameters)
    return Unit(elements, members, 4, True, tuple(parameters))


def chunks(rows: int, members: int) -> list[int]:
    """Return the rows of each rank as torch cuts them, which is what FSDP2 does."""
    parts = [len(part) for part in torch.chunk(torch.arange(rows), members)]
    return parts + [0] * (members - len(parts))


@tried(80)
@given(st.lists(WHOLE, min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 9))
def test_ranks_hold_what_torch_gives_them(
    parameters: list[tuple[int, int]], before: int, after: int
) -> None:
    unit = padded_unit(parameters, before)
    held = [unit.held(after, place) for place in range(after)]
    expected = [
        sum(chunks(rows, after)[place] * each for rows, each in parameters)
        for place in range(after)
    ]
    assert held == expected
    assert sum(held) == sum(rows * each for rows, each in parameters)


@tried(80)
@given(st.lists(WHOLE, min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 9))
def test_shards_are_of_one_size_and_hold_the_fullest_rank(
    parameters: list[tuple[int, int]], before: int, after: int
) -> None:
    unit = padded_unit(parameters, before)
    assert unit.shard(after) == padded_unit(parameters, after).elements
    assert unit.shard(after) == max(unit.held(after, place) for place in range(after))
    assert unit.shard(before) == unit.elements


@tried(60)
@given(st.integers(1, 500), st.integers(1, 6), st.integers(1, 12))
def test_parameters_whose_rows_are_not_known_are_taken_to_divide(
    elements: int, before: int, after: int
) -> None:
    unit = Unit(elements, before, 2, False)
    assert unit.shard(after) == -(-elements * before // after)
    assert unit.held(after, after - 1) == unit.shard(after)


def test_one_parameter_of_a_unit_is_found_by_its_size() -> None:
    # Seven rows of five and three rows of two, on two ranks: four and three rows, two and one.
    unit = padded_unit([(7, 5), (3, 2)], 2)
    assert unit.elements == 4 * 5 + 2 * 2
    assert [unit.resized(20, 4, place) for place in range(4)] == [10, 10, 10, 5]
    assert [unit.resized(4, 4, place) for place in range(4)] == [2, 2, 2, 0]
    assert unit.resized(7, 4, 0) is None


@tried(200)
@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_factors_are_found_again_from_product_and_sum(first: int, second: int) -> None:
    assert factors(first * second, first + second) == (min(first, second), max(first, second))


def test_numbers_without_whole_factors_have_none() -> None:
    found = [
        (product, total)
        for product in range(1, 60)
        for total in range(-3, 60)
        if factors(product, total)
    ]
    expected = {
        (a * b, a + b) for a in range(1, 60) for b in range(a, 60) if a * b < 60 and a + b < 60
    }
    assert set(found) == expected
    assert np.array(found).min() > 0
