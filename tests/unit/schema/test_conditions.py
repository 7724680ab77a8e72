"""Fitting the table of conditions: cells, scores and rounded moments, worked out by hand."""

import json
import math

import numpy as np
import pytest
from checked_parts import checked
from hypothesis import given, strategies as st
from laws import tried
from scipy.stats import ks_2samp, multivariate_normal

from layerdag.dag.program_numbers import SHARED_BY
from layerdag.errors import VocabularyError
from layerdag.runtime.json_shape import from_json
from layerdag.schema.conditions import (
    MEAN_STEP,
    MOST_QUANTILES,
    NO_TABLE,
    NUMBERS_BY,
    SPREAD_STEP,
    CategoryCondition,
    ConditionCell,
    ConditionTable,
    NumericCondition,
    fit_table,
)

NAN = float("nan")


def alike(count: int, *values: float) -> tuple[np.ndarray, np.ndarray]:
    """Return so many graphs of one category; their number takes these values in turn."""
    return np.zeros((count, 1), dtype=np.int64), np.resize(values, (count, 1)).astype(np.float64)


def test_mean_and_spread_are_rounded_to_steps_of_at_least_one():
    """Of 1.0 and 2.4 in turn: mean 1.7, to halves 1.5; spread 0.7, to quarters 0.75."""
    (cell,) = fit_table(*alike(20, 1.0, 2.4)).cells
    assert (cell.values, cell.count, cell.mean, cell.spread) == (((0,),), 20, (1.5,), (0.75,))
    (cell,) = fit_table(*alike(20, 3.0)).cells
    assert (cell.mean, cell.spread) == ((3.0,), (SPREAD_STEP,))


@pytest.mark.parametrize(("count", "told"), [(5, 5), (7, 5), (8, 10), (13, 15), (32, 30)])
def test_counts_are_rounded_to_as_many_as_share_a_cell(count, told):
    assert SHARED_BY == 5
    (cell,) = fit_table(*alike(count, 0.0)).cells
    assert cell.count == told


@pytest.mark.parametrize(("known", "mean"), [(SHARED_BY - 1, None), (SHARED_BY, 2.0)])
def test_a_number_that_too_few_graphs_have_is_unknown(known, mean):
    category_BM, number_BC = alike(20, 2.0)
    number_BC[known:] = NAN
    (cell,) = fit_table(category_BM, number_BC).cells
    assert cell.mean == (mean,)
    assert cell.spread == (SPREAD_STEP,)


def test_graphs_without_numbers_are_cells_of_their_categories():
    category_BM = np.repeat([[0, 1], [1, 0]], 10, axis=0)
    cells = fit_table(category_BM, np.zeros((20, 0))).cells
    assert [(cell.values, cell.count, cell.mean) for cell in cells] == [
        (((0,), (1,)), 10, ()), (((1,), (0,)), 10, ())
    ]  # fmt: skip


def test_a_small_cell_takes_its_numbers_from_its_neighbors_too():
    """Ten graphs of 8 are too few for their own mean; thirty others are moved to that of all, 2."""
    assert NUMBERS_BY == 20
    category_BM = np.repeat([[0], [1]], [30, 10], axis=0)
    number_BC = np.repeat([[0.0], [8.0]], [30, 10], axis=0)
    large, small = fit_table(category_BM, number_BC).cells
    assert (large.values, large.count, large.mean) == (((0,),), 30, (0.0,))
    assert (small.values, small.count, small.mean) == (((1,),), 10, (3.5,))


def test_the_neighbors_of_a_small_cell_are_moved_by_what_its_categories_add_elsewhere():
    """Inference (1) takes 4 less in both families, by twenty programs, ten of each."""
    category_BM = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], [30, 10, 30, 10], axis=0)
    number_BC = np.repeat([[0.0], [-4.0], [8.0], [4.0]], [30, 10, 30, 10], axis=0)
    cells = fit_table(category_BM, number_BC).cells
    assert [cell.mean for cell in cells] == [(0.0,), (-4.0,), (8.0,), (4.0,)]
    assert [quantiles for cell in cells for quantiles in cell.quantiles] == [
        ((0.5, 0.0),), ((0.5, -4.0),), ((0.5, 8.0),), ((0.5, 4.0),)
    ]  # fmt: skip


def test_a_rare_cell_joins_the_one_that_differs_in_the_fewest_categories():
    category_BM = np.repeat([[0, 0], [1, 1], [0, 1]], [20, 30, 2], axis=0)
    values = [cell.values for cell in fit_table(category_BM, np.zeros((52, 0))).cells]
    # It differs in one category from both; the later category counts for less.
    assert values == [((0,), (0, 1)), ((1,), (1,))]


def test_unknown_is_a_category_of_its_own():
    category_BM = np.repeat([[-1], [0]], 10, axis=0)
    assert [c.values for c in fit_table(category_BM, np.zeros((20, 0))).cells] == [
        ((-1,),), ((0,),)
    ]  # fmt: skip


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_numbers_that_go_together_are_correlated_to_one_digit(sign):
    """Perfect correlation, less a tenth again and again until the matrix is positive definite."""
    category_BM, first = alike(20, 1.0, -1.0)
    table = fit_table(category_BM, np.concatenate([first, sign * first], axis=1))
    assert table.correlation == ((1.0, sign * 0.9), (sign * 0.9, 1.0))


@pytest.mark.parametrize(("count", "columns"), [(SHARED_BY - 1, 1), (50, 0)])
def test_too_few_graphs_or_no_conditions_make_an_empty_table(count, columns):
    table = fit_table(np.zeros((count, columns), dtype=np.int64), np.zeros((count, 0)))
    assert (table.cells, table.correlation) == ((), ())


@tried(15)
@given(st.lists(st.integers(0, 3), min_size=SHARED_BY, max_size=120), st.integers(0, 2**16))
def test_every_graph_is_in_a_cell_that_hides_it(families, seed):
    category_BM = np.array(families)[:, None]
    number_BC = np.random.default_rng(seed).normal(size=(len(families), 2))
    cells = fit_table(category_BM, number_BC).cells
    assert {code for cell in cells for code in cell.values[0]} == set(families)
    for cell in cells:
        assert cell.count >= SHARED_BY
        assert cell.count % SHARED_BY == 0
        assert all(mean % MEAN_STEP == 0 for mean in cell.mean)
        assert all(spread > 0 and spread % SPREAD_STEP == 0 for spread in cell.spread)


OPEN = np.full(2, -1), np.full(2, np.nan)


def rows(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Families of different size and scale, a rare one among them, and two correlated numbers."""
    family_B = rng.choice(4, count, p=[0.5, 0.3, 0.19, 0.01])
    phase_B = np.where(family_B == 1, 0, rng.integers(0, 2, count))
    shared_B = rng.normal(size=count)
    first_B = family_B - 1.0 + 0.4 * shared_B + 0.2 * rng.normal(size=count)
    second_B = np.where(family_B == 2, 1.0, -0.5) + 0.5 * shared_B + 0.1 * rng.normal(size=count)
    number_BC = np.stack([first_B, second_B], axis=1)
    number_BC = (number_BC - number_BC.mean(axis=0)) / number_BC.std(axis=0)
    return np.stack([family_B, phase_B], axis=1), number_BC


def draw(table: ConditionTable, count: int, wanted=OPEN[0], given=OPEN[1]):
    rngs = (np.random.default_rng(seed) for seed in range(count))
    found = list(table.draws(wanted, given, rngs))
    return np.array([code for code, _ in found]), np.array([number for _, number in found])


def test_every_cell_stands_for_five_graphs_and_every_figure_is_rounded(rng):
    table = fit_table(*rows(rng, 400))
    assert len(table.cells) > 4
    assert all(cell.count >= 5 and cell.count % 5 == 0 for cell in table.cells)
    means = np.array([cell.mean for cell in table.cells])
    spreads = np.array([cell.spread for cell in table.cells])
    assert (means * 2 == np.round(means * 2)).all()
    assert (spreads * 4 == np.round(spreads * 4)).all()


def test_a_rare_category_is_merged_with_another(rng):
    category_BM = np.array([[0, 0]] * 30 + [[1, 1]] * 3)
    cells = fit_table(category_BM, rng.normal(size=(33, 2))).cells
    assert {cell.values for cell in cells} == {((0, 1), (0, 1))}


def test_no_graph_leaves_a_trace_of_its_own(rng):
    category_BM, number_BC = rows(rng, 400)
    outlier = number_BC.copy()
    outlier[7] = (60.0, -60.0)
    usual, changed = fit_table(category_BM, number_BC), fit_table(category_BM, outlier)
    assert max(np.abs(cell.mean).max() for cell in changed.cells) < 10
    assert len(usual.cells) == len(changed.cells)


def test_marginals_and_pairs_of_draws_are_those_of_training_graphs(rng):
    category_BM, number_BC = rows(rng, 800)
    code_DM, number_DC = draw(fit_table(category_BM, number_BC), 800)
    for column in range(2):
        assert ks_2samp(number_DC[:, column], number_BC[:, column]).statistic < 0.12
        shares = [np.bincount(c[:, column], minlength=4) / 800 for c in (code_DM, category_BM)]
        assert np.abs(shares[0] - shares[1]).max() < 0.06
    drawn, real = np.corrcoef(number_DC.T)[0, 1], np.corrcoef(number_BC.T)[0, 1]
    assert drawn == pytest.approx(real, abs=0.12)
    for family in range(3):
        mean_C = number_DC[code_DM[:, 0] == family].mean(axis=0)
        assert mean_C == pytest.approx(number_BC[category_BM[:, 0] == family].mean(axis=0), abs=0.3)


def test_given_conditions_decide_the_open_ones(rng):
    table = fit_table(*rows(rng, 800))
    code_DM, number_DC = draw(table, 100, wanted=np.array([2, -1]))
    assert set(code_DM[:, 0].tolist()) == {2}
    assert number_DC[:, 1].mean() > 0.7
    _, high_DC = draw(table, 100, given=np.array([np.nan, 1.5]))
    _, low_DC = draw(table, 100, given=np.array([np.nan, -1.5]))
    assert high_DC[:, 0].mean() > low_DC[:, 0].mean() + 0.5
    assert set(high_DC[:, 1].tolist()) == {1.5}


@pytest.mark.parametrize("asked", [(0, -1), (3, 1), (1, 1), (-1, 0)])
@pytest.mark.parametrize("given", [(np.nan, np.nan), (1e9, np.nan), (-1e9, 1e9), (0.0, 0.0)])
def test_any_combination_can_be_asked_for(rng, asked, given):
    table = fit_table(*rows(rng, 200))
    code_DM, number_DC = draw(table, 5, np.array(asked), np.array(given))
    assert (code_DM >= 0).all()
    open_DC = number_DC[:, np.isnan(given)]
    assert (np.abs(open_DC) < 10).all()


def test_unknown_categories_and_numbers_may_stay_unknown(rng):
    category_BM = np.array([[-1, 0]] * 20 + [[1, 0]] * 20)
    number_BC = np.stack([np.full(40, np.nan), rng.normal(size=40)], axis=1)
    code_DM, number_DC = draw(fit_table(category_BM, number_BC), 40)
    assert set(code_DM[:, 0].tolist()) == {-1, 1}
    assert np.isnan(number_DC[:, 0]).all()
    assert np.isfinite(number_DC[:, 1]).all()


def test_it_survives_strict_json(rng):
    category_BM, number_BC = rows(rng, 200)
    number_BC[:, 1] = np.nan
    table = fit_table(category_BM, number_BC)
    text = json.dumps(table.to_dict(), allow_nan=False)
    again = from_json(ConditionTable, json.loads(text))
    assert json.dumps(again.to_dict()) == text


def test_members_are_told_from_others_no_better_than_by_chance():
    areas = []
    for seed in range(6):
        category_BM, number_BC = rows(np.random.default_rng(seed), 1000)
        table = fit_table(category_BM[:600], number_BC[:600])
        score_B = table.log_density(category_BM, number_BC)
        areas.append((score_B[:600, None] > score_B[600:]).mean())
    assert np.mean(areas) == pytest.approx(0.5, abs=0.03)


BY_HAND = ConditionTable(
    (
        ConditionCell(((0,),), 10, (0.0, 1.0), (1.0, 2.0)),
        ConditionCell(((1,),), 30, (3.0, None), (0.5, 0.25)),
    ),
    ((1.0, 0.5), (0.5, 1.0)),
)
"""Two cells of one category and two numbers; the second cell does not know the second number."""


def normal(x: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> float:
    return float(multivariate_normal.pdf(x, mean, covariance))


def test_the_density_is_that_of_a_mixture_of_normals():
    first = normal(np.array([0.5, 2.0]), np.array([0.0, 1.0]), np.array([[1.0, 1.0], [1.0, 4.0]]))
    second = normal(np.array([0.5]), np.array([3.0]), np.array([[0.25]]))
    # A cell of another category counts as much as a number 8 spreads away: exp(-8 * 8 / 2).
    expected = 0.25 * first * (2 * np.pi) + 0.75 * second * np.sqrt(2 * np.pi) * np.exp(-32)
    found = BY_HAND.log_density(np.array([[0]]), np.array([[0.5, 2.0]]))
    assert found[0] == pytest.approx(np.log(expected), rel=1e-9)


def test_unknown_numbers_do_not_count_for_the_density():
    alone = BY_HAND.log_density(np.array([[1]]), np.array([[np.nan, np.nan]]))
    assert alone[0] == pytest.approx(np.log(0.75 + 0.25 * np.exp(-32)))


def test_a_row_is_held_within_three_spreads_of_a_cell_with_its_category():
    categories = np.array([[0], [0], [0], [1], [1], [0]])
    numbers = np.array(
        [[3.0, 1.0], [3.1, 1.0], [0.0, 7.1], [4.5, 99.0], [4.6, 0.0], [np.nan, np.nan]]
    )
    assert BY_HAND.holds(categories, numbers).tolist() == [True, False, False, True, False, True]


def test_an_open_number_follows_the_given_one_by_their_correlation():
    given = np.array([1.0, np.nan])
    found = draw(BY_HAND, 1500, np.array([0]), given)[1]
    assert (found[:, 0] == 1.0).all()
    # Mean 1 + 0.5 * 2 * (1 - 0) / 1, standard deviation 2 * sqrt(1 - 0.25).
    assert found[:, 1].mean() == pytest.approx(2.0, abs=0.15)
    assert found[:, 1].std() == pytest.approx(2 * np.sqrt(0.75), rel=0.07)


def test_open_numbers_stay_near_the_cell_that_is_drawn_by_its_count():
    far = draw(BY_HAND, 500, np.array([0]), np.array([1000.0, np.nan]))[1]
    assert far[:, 1].mean() == pytest.approx(1 + 0.5 * 2 * 3, abs=0.3)
    codes, numbers = draw(BY_HAND, 50, np.array([1]), np.full(2, np.nan))
    assert set(codes[:, 0].tolist()) == {1}
    assert np.isnan(numbers[:, 1]).all()
    assert np.isfinite(numbers[:, 0]).all()
    codes, _ = draw(BY_HAND, 800, np.array([-1]), np.full(2, np.nan))
    assert codes.mean() == pytest.approx(0.75, abs=0.05)


def test_narrowing_keeps_places_counts_and_correlations():
    numbers = BY_HAND.narrowed([], [1, 0])
    assert numbers.correlation == ((1.0, 0.5), (0.5, 1.0))
    assert [cell.count for cell in numbers.cells] == [10, 30]
    assert numbers.cells[0].mean == (1.0, 0.0)
    assert numbers.cells[0].values == ()
    categories = BY_HAND.narrowed([0], [])
    assert (categories.correlation, categories.cells[1].values) == ((), ((1,),))
    assert BY_HAND.narrowed([], []) == NO_TABLE


def test_an_empty_table_stays_empty_whatever_it_is_narrowed_to():
    # A data set of fewer than five graphs has no cell and no correlation.
    assert NO_TABLE.narrowed([0], [0, 1]) == NO_TABLE


@pytest.mark.parametrize(
    ("sizes", "numbers", "words"),
    [
        ([1], 2, "a code that its condition lacks"),
        ([2, 2], 2, "one entry for each condition"),
        ([2], 1, "one entry for each condition"),
    ],
)
def test_a_table_must_fit_its_conditions(sizes, numbers, words):
    BY_HAND.check([2], 2)
    with pytest.raises(ValueError, match=words):
        BY_HAND.check(sizes, numbers)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (((1.0, 0.9), (0.1, 1.0)), "finite and symmetric"),
        (((1.0, float("inf")), (float("inf"), 1.0)), "finite and symmetric"),
        (((1.0, 1.0), (1.0, 1.0)), "positive definite"),
        (((2.0, 0.0), (0.0, 1.0)), "positive definite"),
    ],
)
def test_a_correlation_that_cannot_be_drawn_from_is_refused(matrix, words):
    with pytest.raises(ValueError, match=words):
        ConditionTable(BY_HAND.cells, matrix).check([2], 2)


@given(st.integers(0, 2**32 - 1), st.integers(5, 150))
@tried(15)
def test_the_correlation_of_any_data_can_be_drawn_from(seed, count):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(count, 1))
    numbers = base * rng.normal(size=(1, 3)) + 1e-3 * rng.normal(size=(count, 3))
    table = fit_table(np.zeros((count, 0), np.int64), numbers)
    table.check([], 3)
    matrix = np.array(table.correlation)
    assert np.linalg.eigvalsh(matrix)[0] > 0
    assert (np.round(matrix, 1) == matrix).all()
    assert sum(cell.count for cell in table.cells) == pytest.approx(count, abs=5 * len(table.cells))


def test_a_correlation_of_many_graphs_is_rounded_to_twentieths(rng):
    first = rng.normal(size=(200, 1))
    both = np.concatenate([first, first + 0.33 * rng.normal(size=(200, 1))], axis=1)
    for count, correlation in ((200, 0.95), (199, 0.9)):
        found = fit_table(np.zeros((count, 0), np.int64), both[:count]).correlation
        assert found == ((1.0, correlation), (correlation, 1.0))


def test_levels_of_quantiles_are_shares_of_graphs_and_values_those_of_programs(rng):
    """Two fifths of the graphs are of one program, of which no quantile tells."""
    program_B = np.concatenate([np.zeros(400, np.int64), np.arange(1, 601)])
    number_B = np.where(program_B == 0, 0.123, rng.exponential(size=1000) + 1)
    [cell] = fit_table(np.zeros((1000, 0), np.int64), number_B[:, None], program_B).cells
    levels, values = np.transpose(cell.quantiles[0])
    assert len(values) == MOST_QUANTILES
    assert 0.123 not in values
    assert levels[0] == pytest.approx(0.4, abs=0.02)
    assert levels[10] == pytest.approx(0.7, abs=0.03)
    assert [*levels, *values] == [round(number, 2) for number in (*levels, *values)]


def test_nine_programs_are_too_few_for_quantiles(rng):
    few = fit_table(np.zeros((9, 0), np.int64), rng.normal(size=(9, 1))).cells[0]
    enough = fit_table(np.zeros((10, 0), np.int64), rng.normal(size=(10, 1))).cells[0]
    assert (few.quantiles, len(enough.quantiles[0])) == (((),), 2)


def test_a_draw_has_the_marginals_and_the_dependence_of_training_graphs(rng):
    """Numbers of two humps that go together up to a monotone map are far from normal."""
    hump_B = np.where(rng.random(600) < 0.3, 4.0, 0.0) + rng.random(600)
    number_BC = np.stack([hump_B, hump_B**3], axis=1)
    table = fit_table(np.zeros((600, 0), np.int64), number_BC)
    drawn_DC = draw(table, 400, np.zeros(0, np.int64))[1]
    for column in range(2):
        assert ks_2samp(drawn_DC[:, column], number_BC[:, column]).statistic < 0.08
    assert np.corrcoef(drawn_DC.T)[0, 1] > 0.85


def test_a_graph_that_no_other_is_like_moves_no_quantile_and_hardly_the_correlation(rng):
    number_BC = rng.normal(size=(300, 2)).cumsum(axis=1)
    tables = [
        fit_table(np.zeros((301, 0), np.int64), np.concatenate([number_BC, [canary]]))
        for canary in ((4.0, -6.0), (0.0, 0.0))
    ]
    found, usual = ([np.array(number) for number in t.cells[0].quantiles] for t in tables)
    for told, without in zip(found, usual, strict=True):
        assert np.abs(told - without).max() < 0.25
        assert np.abs(told[:, 1]).max() < 4.0
    assert np.abs(np.subtract(tables[0].correlation, tables[1].correlation)).max() <= 0.051


@pytest.mark.parametrize("unknown", [math.inf, -math.inf, math.nan])
def test_values_that_are_not_finite_do_not_enter_the_scale(unknown):
    known = [1.0, 2.0, 4.0, 5.0]
    fitted = NumericCondition.fit("label", [known[0], unknown, *known[1:]])
    assert fitted == NumericCondition.fit("label", known)
    assert (fitted.mean, fitted.log) == (3.0, False)
    assert fitted.std == 1.58


def test_values_over_several_orders_are_scaled_by_their_logarithm():
    fitted = NumericCondition.fit("label", [1.0, math.e**2, math.e**4])
    assert fitted.log
    assert fitted.mean == pytest.approx(2.0)
    assert fitted.std == 1.63
    assert fitted.encode(math.e**4) == pytest.approx(2 / 1.63)
    assert fitted.decode(fitted.encode(7.0)) == pytest.approx(7.0)


def test_a_condition_without_known_values_encodes_numbers_as_they_are():
    fitted = NumericCondition.fit("label", [math.nan])
    assert fitted.encode(2.5) == 2.5
    assert math.isnan(fitted.encode(None))


def test_the_range_is_what_five_graphs_reach_and_no_quantile_names_a_graph():
    values = np.concatenate([np.arange(100.0, 200.0), [1e9, 0.001]])
    fitted = NumericCondition.fit("label", values.tolist())
    assert fitted.draw_range() == (103.0, 196.0)
    assert len(fitted.quantiles) == 20
    assert NumericCondition.fit("label", [1.0, 2.0, 7.0]).quantiles == (2.0,)


def test_scale_and_quantiles_are_rounded(rng):
    fitted = NumericCondition.fit("label", rng.normal(123456.0, 2.0, 300).tolist())
    assert fitted.std == float(f"{fitted.std:.3g}")
    assert round(fitted.mean, 2) == pytest.approx(fitted.mean, abs=1e-9)
    assert fitted.encode(123456.0) == pytest.approx(0, abs=0.3)
    assert all(quantile == float(f"{quantile:.3g}") for quantile in fitted.quantiles)


@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=40),
    st.floats(-1e6, 1e6, allow_subnormal=False),
)
@tried(40)
def test_any_number_comes_back_from_its_standardized_form(values, asked):
    condition = NumericCondition.fit("label", values)
    if condition.log:
        asked = abs(asked) + 1e-3
    again = condition.decode(condition.encode(asked))
    assert again == pytest.approx(asked, rel=1e-6, abs=1e-6 * max(condition.std, 1.0))


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=60))
@tried(40)
def test_a_scale_is_standard_to_its_rounding(values):
    condition = NumericCondition.fit("label", values)
    if min(values) <= 0 or condition.std <= 1e-5:
        return
    scaled = np.array([condition.encode(value) for value in values])
    # mean to a hundredth of std, std to three digits.
    assert abs(scaled.mean()) < 0.02
    assert scaled.std() == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(("values", "log"), [((1.0, 19.0), False), ((1.0, 21.0), True)])
def test_a_ratio_of_twenty_decides_on_the_logarithm(values, log):
    assert NumericCondition.fit("label", values).log is log


def test_zero_and_negative_values_are_never_scaled_by_a_logarithm():
    assert not NumericCondition.fit("label", (0.0, 1e6)).log
    assert not NumericCondition.fit("label", (-1.0, 1e6)).log


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), "fast"])
def test_what_a_logarithm_cannot_take_is_refused_with_the_usual_range(value):
    condition = NumericCondition.fit("label", [float(10**i) for i in range(11)])
    with pytest.raises(VocabularyError) as caught:
        condition.encode(value)
    told = str(caught.value)
    assert f"'label' must be a positive number, found {value!r}" in told
    assert "most training graphs have 1e+04 to 1e+06" in told


def test_numbers_in_words_are_numbers_and_extreme_ones_decode_to_numbers():
    condition = NumericCondition("label", mean=1.0, std=2.0, log=False, quantiles=(1.0,))
    assert condition.encode("5") == 2.0
    assert math.isnan(condition.encode(None))
    condition = NumericCondition("label", mean=0.0, std=1.0, log=True, quantiles=(1.0,))
    assert condition.decode(1e9) == math.exp(700)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"std": 0.0}, "std must be positive"),
        ({"std": -1.0}, "std must be positive"),
        ({"mean": math.nan}, "finite"),
        ({"quantiles": []}, "finite"),
        ({"quantiles": [math.inf]}, "finite"),
        ({"mean": 661.0, "std": 1.0, "log": True}, "40 deviations"),
        ({"mean": 1e300, "std": 1e300}, "40 deviations"),
    ],
)
def test_a_scale_from_outside_must_give_numbers(change, words):
    sound = {"name": "label", "mean": 0.0, "std": 1.0, "log": False, "quantiles": [0.0, 1.0]}
    assert checked(NumericCondition, sound).draw_range() == (0.0, 1.0)
    with pytest.raises(ValueError, match=words):
        checked(NumericCondition, {**sound, **change})


def test_categories_have_a_code_by_place_and_the_nearest_is_named():
    condition = CategoryCondition("family", ("bert", "gpt", "mlp"))
    assert [condition.encode(word) for word in ("bert", "mlp", None)] == [0, 2, -1]
    with pytest.raises(VocabularyError) as caught:
        condition.encode("gtp")
    assert str(caught.value) == (
        "Condition 'family' has no value 'gtp'. Did you mean 'gpt'? Known: bert, gpt, mlp."
    )
    with pytest.raises(VocabularyError, match=r"no value 'xyz'\. Known:"):
        condition.encode("xyz")


@pytest.mark.parametrize(
    "values", [["a", "a"], "ab", ["a", 3], ["a\x00"], ["x" * 4097], ["\ud800"]]
)
def test_words_from_outside_are_distinct_short_and_writable(values):
    words = checked(CategoryCondition, {"name": "n", "values": ["a\tb", ""]}).values
    assert words == ("a\tb", "")
    with pytest.raises(ValueError, match=r"'values|a word"):
        checked(CategoryCondition, {"name": "n", "values": values})
