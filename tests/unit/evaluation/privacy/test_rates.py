"""True-positive rates at low false-positive rates, against counting by hand and exact chances."""

import numpy as np
import pytest

from layerdag.evaluation.privacy._rates import (
    CERTAIN,
    REPLICATES,
    _by_chance,
    _clopper_pearson,
    _Draws,
    _found,
    detection_rates,
)


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
        found.append(rate.is_above_chance)
    # p-values of a discrete score are no smaller than uniform ones.
    assert np.mean(np.array(chances) <= 0.1) <= 0.22
    assert sum(found) <= 60 * CERTAIN + 1


def test_few_sure_members_are_told_although_the_area_is_one_half() -> None:
    rng = np.random.default_rng(1)
    other_H, member_T = rng.random(300), rng.random(300)
    member_T[:30] = 2.0
    member_T[30:60] = -1.0
    rate = detection_rates("a", [(member_T, other_H)], 0)[0]
    assert rate.is_above_chance
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


def test_resampled_rates_are_those_of_really_repeated_scores() -> None:
    """The draws are weights of graphs; repeating each score as often gives the same rate."""
    rng = np.random.default_rng(3)
    member_T, other_H = (
        rng.integers(0, 40, 25).astype(float),
        rng.integers(0, 40, 110).astype(float),
    )
    draws = _Draws("a", [(member_T, other_H)], 5)
    [(falling_T, upto_RT, falling_H, upto_RH)] = draws._resamples
    for rate in (0.01, 0.05, 0.3):
        found_R = draws.rates(rate)
        for row in range(0, REPLICATES, 37):
            times_T = np.diff(upto_RT[row], prepend=0).astype(int)
            times_H = np.diff(upto_RH[row], prepend=0).astype(int)
            repeated_T = np.repeat(falling_T, times_T)
            repeated_H = np.repeat(falling_H, times_H)
            assert (repeated_T.size, repeated_H.size) == (25, 110)
            expected = _found(repeated_T, repeated_H, rate) / 25
            assert found_R[row] == pytest.approx(expected)


def test_only_the_order_of_scores_counts() -> None:
    rng = np.random.default_rng(4)
    member_T, other_H = rng.normal(0.6, 1, 80), rng.normal(0, 1, 150)
    plain = detection_rates("a", [(member_T, other_H)], 0)
    assert detection_rates("a", [(np.exp(member_T), np.exp(other_H))], 0) == plain
    mixed = detection_rates("a", [(rng.permutation(member_T), rng.permutation(other_H))], 0)[0]
    assert mixed.true_positive_rate == plain[0].true_positive_rate
    assert mixed.by_chance == plain[0].by_chance


def test_the_chance_of_so_many_found_is_that_of_shuffled_labels() -> None:
    rng = np.random.default_rng(5)
    score_G = np.arange(140.0)
    shuffled = (rng.permutation(score_G) for _ in range(4000))
    counts = np.array([_found(each[:40], each[40:], 0.05) for each in shuffled])
    for found in (0, 1, 3, 6):
        assert _by_chance(found, 40, 100, 0.05) == pytest.approx(
            (counts >= found).mean(), abs=0.025
        )
    assert _by_chance(0, 40, 100, 0.05) == 1.0


def test_unknown_or_infinite_scores_find_nobody_they_should_not() -> None:
    other_H = np.arange(100.0)
    nowhere = detection_rates("a", [(np.full(20, np.nan), other_H)], 0)[0]
    assert nowhere.true_positive_rate == 0.0
    beyond = detection_rates("a", [(np.full(20, np.inf), np.full(100, np.inf))], 0)[0]
    assert beyond.true_positive_rate == 0.0
    one_sided = detection_rates("a", [(np.full(20, np.inf), np.full(100, -np.inf))], 0)[0]
    assert one_sided.true_positive_rate == 1.0


def test_dependent_folds_claim_no_more_than_one_of_them() -> None:
    rng = np.random.default_rng(6)
    member_T, other_H = np.concatenate([np.full(4, 9.0), rng.random(56)]), rng.random(100)
    once = detection_rates("a", [(member_T, other_H)], 0)[0]
    twice = detection_rates("a", [(member_T, other_H)] * 2, 0)[0]
    assert twice.true_positive_rate == once.true_positive_rate
    assert twice.by_chance == pytest.approx(min(2 * once.by_chance, 1.0))


@pytest.mark.parametrize("count", [1, 7, 40])
def test_the_exact_interval_rejects_at_its_ends_as_a_binomial_test_does(count: int) -> None:
    from scipy.stats import binomtest

    for found in {0, 1, count // 2, count}:
        expected = binomtest(found, count).proportion_ci(0.95, "exact")
        interval = _clopper_pearson(found / count, count)
        assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
