"""True-positive rates at low false-positive rates, against counting by hand and exact chances."""

import numpy as np
import pytest

from layerdag.evaluation.privacy._rates import CERTAIN, detection_rates


def test_members_above_all_others_but_one_in_a_hundred_are_found() -> None:
    other_H = np.arange(200.0)
    member_T = np.array([500.0, 198.5, 197.5, 196.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    one, thousandth = detection_rates("a", [(member_T, other_H)], 0)
    # Two of 200 may be accused: the threshold is the third largest, 197.
    assert one.true_positive_rate == pytest.approx(0.3)
    assert one.interval is not None
    assert one.interval.low <= 0.3 <= one.interval.high
    assert one.need is None
    assert thousandth.true_positive_rate is None
    assert thousandth.need is not None
    assert (thousandth.need.found, thousandth.need.count) == (200, 1000)
    assert "TPR at 0.1% FPR cannot be told (200 held-out graphs, about 1,000 needed)" in (
        thousandth.in_words()
    )


def test_a_score_that_says_nothing_finds_what_chance_finds() -> None:
    rng = np.random.default_rng(0)
    chances, found = [], []
    for seed in range(60):
        fold = (rng.random(150), rng.random(120))
        rate = detection_rates("a", [fold], seed)[0]
        chances.append(rate.by_chance)
        found.append(rate.is_told)
    # p-values of a discrete score are no smaller than uniform ones.
    assert np.mean(np.array(chances) <= 0.1) <= 0.22
    assert sum(found) <= 60 * CERTAIN + 1


def test_few_sure_members_are_told_although_the_area_is_one_half() -> None:
    rng = np.random.default_rng(1)
    other_H, member_T = rng.random(300), rng.random(300)
    member_T[:30] = 2.0
    member_T[30:60] = -1.0
    rate = detection_rates("a", [(member_T, other_H)], 0)[0]
    assert rate.is_told
    assert rate.true_positive_rate == pytest.approx(0.1, abs=0.03)
    assert rate.in_words().startswith("TPR at 1% FPR 1")


def test_each_of_two_folds_has_to_resolve_the_rate() -> None:
    rng = np.random.default_rng(2)
    member_T = rng.random(50)
    few = detection_rates("a", [(member_T, rng.random(60)), (member_T, rng.random(60))], 0)[0]
    assert few.true_positive_rate is None
    many = detection_rates("a", [(member_T, rng.random(100)), (member_T, rng.random(100))], 0)[0]
    assert many.true_positive_rate is not None
    assert many.by_chance is not None


def test_ties_with_the_threshold_are_not_found_and_all_or_none_have_one_sided_intervals() -> None:
    ties = detection_rates("a", [(np.ones(40), np.ones(100))], 0)[0]
    assert (ties.true_positive_rate, ties.by_chance) == (0.0, 1.0)
    assert ties.interval is not None
    assert ties.interval.low == 0.0
    assert 0.05 < ties.interval.high < 0.12  # 1 - .025 ** (1 / 40)
    every = detection_rates("a", [(np.ones(40), np.zeros(100))], 0)[0]
    assert every.true_positive_rate == 1.0
    assert every.interval is not None
    assert every.interval.high == 1.0
    assert 0.88 < every.interval.low < 0.95
