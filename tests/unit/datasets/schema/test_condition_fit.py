"""Fitting the table of conditions: cells, halves and rounded moments, worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.datasets.schema import fit_table
from layerdag.datasets.schema._condition_fit import HALVED_BY, MEAN_STEP, NUMBERS_BY, SPREAD_STEP
from layerdag.graph import SHARED_BY

NAN = float("nan")


def alike(count: int, *values: float) -> tuple[np.ndarray, np.ndarray]:
    """Return so many graphs of one category; their number takes these values in turn."""
    return np.zeros((count, 1), dtype=np.int64), np.resize(values, (count, 1)).astype(np.float64)


def test_mean_and_spread_are_rounded_to_steps() -> None:
    """Of 1.0 and 2.4 in turn: mean 1.7, to halves 1.5; spread 0.7, to quarters 0.75."""
    (cell,) = fit_table(*alike(20, 1.0, 2.4)).cells
    assert (cell.values, cell.count, cell.mean, cell.spread) == (((0,),), 20, (1.5,), (0.75,))


def test_equal_numbers_have_a_spread_of_one_step() -> None:
    (cell,) = fit_table(*alike(20, 3.0)).cells
    assert (cell.mean, cell.spread) == ((3.0,), (SPREAD_STEP,))


@pytest.mark.parametrize(("count", "told"), [(5, 5), (7, 5), (8, 10), (13, 15), (32, 30)])
def test_counts_are_rounded_to_as_many_as_share_a_cell(count: int, told: int) -> None:
    assert SHARED_BY == 5
    (cell,) = fit_table(*alike(count, 0.0)).cells
    assert cell.count == told


@pytest.mark.parametrize(("known", "mean"), [(SHARED_BY - 1, NAN), (SHARED_BY, 2.0)])
def test_a_number_that_too_few_graphs_have_is_unknown(known: int, mean: float) -> None:
    category_BM, number_BC = alike(20, 2.0)
    number_BC[known:] = NAN
    (cell,) = fit_table(category_BM, number_BC).cells
    np.testing.assert_equal(cell.mean, (mean,))
    assert cell.spread == (SPREAD_STEP,)


def test_a_large_cell_is_halved_at_its_median() -> None:
    """Forty of 0 and forty of 4: each half keeps its own mean."""
    cells = fit_table(*alike(2 * HALVED_BY, 0.0, 4.0)).cells
    assert [(cell.count, cell.mean) for cell in cells] == [(40, (0.0,)), (40, (4.0,))]


def test_one_graph_less_and_it_stays_whole() -> None:
    (cell,) = fit_table(*alike(2 * HALVED_BY - 1, 0.0, 4.0)).cells
    assert cell.mean == (2.0,)


def test_halves_that_would_be_too_small_are_not_made() -> None:
    """The median of mostly equal numbers leaves no second half."""
    assert len(fit_table(*alike(100, *[1.0] * 9, 0.0)).cells) == 1


def test_the_most_spread_number_is_halved() -> None:
    category_BM, narrow = alike(2 * HALVED_BY, 0.0, 1.0, 1.0, 0.0)
    wide = np.resize([0.0, 0.0, 6.0, 6.0], narrow.shape)
    cells = fit_table(category_BM, np.concatenate([narrow, wide], axis=1)).cells
    assert [cell.mean for cell in cells] == [(0.5, 0.0), (0.5, 6.0)]


def test_graphs_without_numbers_are_cells_of_their_categories() -> None:
    category_BM = np.repeat([[0, 1], [1, 0]], 10, axis=0)
    cells = fit_table(category_BM, np.zeros((20, 0))).cells
    assert [(cell.values, cell.count, cell.mean) for cell in cells] == [
        (((0,), (1,)), 10, ()), (((1,), (0,)), 10, ())
    ]  # fmt: skip


def test_a_small_cell_takes_its_numbers_from_its_neighbors_too() -> None:
    """Ten graphs of 8 are too few for a mean of their own; with thirty of 0 it is 2."""
    assert NUMBERS_BY == 20
    category_BM = np.repeat([[0], [1]], [30, 10], axis=0)
    number_BC = np.repeat([[0.0], [8.0]], [30, 10], axis=0)
    large, small = fit_table(category_BM, number_BC).cells
    assert (large.values, large.count, large.mean) == (((0,),), 30, (0.0,))
    assert (small.values, small.count, small.mean) == (((1,),), 10, (2.0,))


def test_a_rare_cell_joins_the_one_that_differs_in_the_fewest_categories() -> None:
    category_BM = np.repeat([[0, 0], [1, 1], [0, 1]], [20, 30, 2], axis=0)
    values = [cell.values for cell in fit_table(category_BM, np.zeros((52, 0))).cells]
    # It differs in one category from both; the later category counts for less.
    assert values == [((0,), (0, 1)), ((1,), (1,))]


def test_unknown_is_a_category_of_its_own() -> None:
    category_BM = np.repeat([[-1], [0]], 10, axis=0)
    assert [c.values for c in fit_table(category_BM, np.zeros((20, 0))).cells] == [
        ((-1,),), ((0,),)
    ]  # fmt: skip


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_numbers_that_go_together_are_correlated_to_one_digit(sign: float) -> None:
    """Perfect correlation, less a tenth again and again until the matrix is positive definite."""
    category_BM, first = alike(20, 1.0, -1.0)
    table = fit_table(category_BM, np.concatenate([first, sign * first], axis=1))
    assert table.correlation == ((1.0, sign * 0.9), (sign * 0.9, 1.0))


@pytest.mark.parametrize(("count", "columns"), [(SHARED_BY - 1, 1), (50, 0)])
def test_too_few_graphs_or_no_conditions_make_an_empty_table(count: int, columns: int) -> None:
    table = fit_table(np.zeros((count, columns), dtype=np.int64), np.zeros((count, 0)))
    assert (table.cells, table.correlation) == ((), ())


@tried(15)
@given(st.lists(st.integers(0, 3), min_size=SHARED_BY, max_size=120), st.integers(0, 2**16))
def test_every_graph_is_in_a_cell_that_hides_it(families: list[int], seed: int) -> None:
    category_BM = np.array(families)[:, None]
    number_BC = np.random.default_rng(seed).normal(size=(len(families), 2))
    cells = fit_table(category_BM, number_BC).cells
    assert {code for cell in cells for code in cell.values[0]} == set(families)
    for cell in cells:
        assert cell.count >= SHARED_BY
        assert cell.count % SHARED_BY == 0
        assert all(mean % MEAN_STEP == 0 for mean in cell.mean)
        assert all(spread > 0 and spread % SPREAD_STEP == 0 for spread in cell.spread)
