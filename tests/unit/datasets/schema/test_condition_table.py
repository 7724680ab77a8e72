"""The table of conditions: nobody can be looked up in it, and draws are like training graphs."""

import json

import numpy as np
import pytest
from scipy.stats import ks_2samp

from layerdag.datasets.schema import ConditionTable, fit_table

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


def test_fewer_than_five_graphs_make_no_table(rng):
    assert fit_table(np.zeros((4, 1), np.int64), rng.normal(size=(4, 1))).cells == ()


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


def test_it_can_be_narrowed_to_some_conditions(rng):
    table = fit_table(*rows(rng, 200)).narrowed([1], [0])
    table.check([2], 1)
    assert table.narrowed([], []) == ConditionTable()


def test_it_survives_strict_json(rng):
    category_BM, number_BC = rows(rng, 200)
    number_BC[:, 1] = np.nan
    table = fit_table(category_BM, number_BC)
    text = json.dumps(table.to_dict(), allow_nan=False)
    again = ConditionTable.from_dict(json.loads(text))
    assert json.dumps(again.to_dict()) == text


def test_members_are_told_from_others_no_better_than_by_chance():
    areas = []
    for seed in range(6):
        category_BM, number_BC = rows(np.random.default_rng(seed), 1000)
        table = fit_table(category_BM[:600], number_BC[:600])
        score_B = table.log_density(category_BM, number_BC)
        areas.append((score_B[:600, None] > score_B[600:]).mean())
    assert np.mean(areas) == pytest.approx(0.5, abs=0.03)
