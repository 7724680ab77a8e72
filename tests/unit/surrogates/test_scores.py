import numpy as np
import pytest
from scipy import stats

from layerdag.surrogates import SCORES, scores


def test_scores_equal_those_of_scipy_with_ties(rng: np.random.Generator) -> None:
    target_B = rng.integers(1, 8, 50).astype(float)
    predicted_B = target_B + rng.integers(0, 4, 50)
    found = {name: float(draws_R[0]) for name, draws_R in scores(target_B, predicted_B).items()}
    assert found["pearson"] == pytest.approx(stats.pearsonr(target_B, predicted_B).statistic)
    logs = np.log(target_B), np.log(predicted_B)
    assert found["pearson_log"] == pytest.approx(stats.pearsonr(*logs).statistic)
    assert found["spearman"] == pytest.approx(stats.spearmanr(target_B, predicted_B).statistic)
    assert found["kendall"] == pytest.approx(stats.kendalltau(target_B, predicted_B).statistic)
    assert found["mae"] == pytest.approx(np.abs(target_B - predicted_B).mean())
    assert found["mape"] == pytest.approx((np.abs(target_B - predicted_B) / target_B).mean())
    assert set(found) == {metric.name for metric in SCORES}


def test_weights_count_like_repeated_graphs(rng: np.random.Generator) -> None:
    target_B, predicted_B = rng.random(6), rng.random(6)
    weights_B = np.array([2, 0, 1, 1, 0, 2])
    weighted = scores(target_B, predicted_B, weights_B[None].astype(float))
    repeated = scores(np.repeat(target_B, weights_B), np.repeat(predicted_B, weights_B))
    for name in ("pearson", "kendall", "mae", "mape"):
        assert weighted[name][0] == pytest.approx(repeated[name][0])


def test_correlations_do_not_depend_on_the_unit(rng: np.random.Generator) -> None:
    target_B, predicted_B = rng.random(30), rng.random(30)
    small = scores(target_B * 1e-9, predicted_B * 1e-9)
    assert small["pearson"][0] == pytest.approx(scores(target_B, predicted_B)["pearson"][0])


def test_logarithms_need_positive_numbers() -> None:
    found = scores(np.array([1.0, 2.0, 3.0]), np.array([-1.0, 2.0, 3.0]))
    assert np.isnan(found["pearson_log"][0])
    assert np.isfinite(found["pearson"][0])


def test_a_constant_prediction_has_no_correlation(rng: np.random.Generator) -> None:
    found = scores(rng.random(9), np.ones(9))
    assert np.isnan([found[name][0] for name in ("pearson", "spearman", "kendall")]).all()
    assert np.isfinite(found["mae"][0])
