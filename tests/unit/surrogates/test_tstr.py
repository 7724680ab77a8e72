import numpy as np
import pytest

from layerdag.errors import UsageError
from layerdag.statistics import Interval
from layerdag.surrogates.families.trees import BoostingSettings, fit_boosting
from layerdag.surrogates.targets import Labeled
from layerdag.surrogates.training_sets import (
    AUGMENTED,
    CONDITIONS,
    REAL,
    RELABELED,
    SHUFFLED,
    SYNTHETIC,
    few_real,
    training_set,
)
from layerdag.surrogates.tstr import evaluate_tstr


def _fit(dags, target_B, sizes, seed):
    return fit_boosting(
        dags, target_B, sizes, seed=seed, settings=BoostingSettings(trees=30, depth=3)
    )


def test_real_like_synthetic_graphs_reach_the_ceiling_and_shuffled_ones_do_not(
    real, test_set, sizes
):
    half = np.arange(30)
    report = evaluate_tstr(
        real.taken(half), real.taken(half + 30), test_set, sizes, {"trees": _fit}, seeds=(0, 1)
    )
    assert [row.condition for row in report.rows] == list(CONDITIONS)
    assert report.tested_on == 40
    assert report.fraction("trees", "pearson").value > 0.7
    floor = report.row("trees", SHUFFLED).scores["pearson"]
    assert floor.mean < 0.5 < report.row("trees", REAL).scores["pearson"].mean
    assert len(floor.by_seed) == 2
    assert floor.interval is not None
    assert floor.interval.low < floor.mean < floor.interval.high


def test_fractions_pair_both_scores_of_a_resample(real, test_set, sizes):
    """Real graphs beside themselves reach all that real graphs do, without any spread."""
    report = evaluate_tstr(
        real, real, test_set, sizes, {"trees": _fit}, seeds=(0, 1), conditions=(REAL, SYNTHETIC)
    )
    fraction = report.fraction("trees", "pearson")
    assert fraction.value == pytest.approx(1.0)
    assert fraction.interval == Interval(1.0, 1.0)


def test_a_fraction_has_an_interval_around_it_and_needs_both_conditions(real, test_set, sizes):
    few = real.taken(np.arange(10))
    fraction = evaluate_tstr(real, few, test_set, sizes, {"trees": _fit}).fraction(
        "trees", "pearson"
    )
    assert fraction.interval is not None
    assert fraction.interval.low < fraction.value < fraction.interval.high
    alone = evaluate_tstr(real, few, test_set, sizes, {"trees": _fit}, conditions=(REAL, SHUFFLED))
    assert alone.fractions == ()


def test_what_samples_add_to_few_real_graphs_is_paired_and_positive_when_better(
    real, test_set, sizes
):
    """Forty graphs of the same kind beside eight help: errors fall, correlations rise."""
    report = evaluate_tstr(
        real.taken(np.arange(20)),
        real.taken(np.arange(20, 60)),
        test_set,
        sizes,
        {"trees": _fit},
        seeds=(0, 1, 2),
        conditions=(REAL, AUGMENTED, *few_real((8,), 20)),
    )
    assert [row.condition for row in report.rows[2:]] == ["8 real", "8 real + synthetic"]
    assert [row.trained_on for row in report.rows] == [20, 60, 8, 48]
    for score in ("spearman", "mae"):
        gain = report.gain("trees", "8 real + synthetic", score)
        means = [
            report.row("trees", name).scores[score].mean
            for name in ("8 real + synthetic", "8 real")
        ]
        assert gain.value == pytest.approx(abs(means[0] - means[1]))
        assert gain.interval is not None
        assert 0 < gain.interval.low < gain.value < gain.interval.high
    assert {gain.condition for gain in report.gains} == {AUGMENTED, "8 real + synthetic"}


def test_labels_that_samples_do_not_have_are_told_from_those_that_they_have(real, test_set, sizes):
    """Real graphs pose as samples; with twice the label the error is a half of it and more."""
    doubled = Labeled(real.dags, 2 * real.target_B)
    right, wrong = (
        evaluate_tstr(
            real, samples, test_set, sizes, {"trees": _fit}, seeds=(0, 1), conditions=(REAL,)
        ).conditional[0]
        for samples in (real, doubled)
    )
    assert right.synthetic["mape"].mean < right.real["mape"].mean < 0.3
    assert wrong.synthetic["mape"].mean > 0.4
    assert wrong.synthetic["within_10_percent"].mean == 0
    assert wrong.real == right.real
    interval = wrong.synthetic["mape"].interval
    assert interval is not None
    assert interval.low < wrong.synthetic["mape"].mean < interval.high


def test_a_family_can_learn_from_the_labels_of_the_others(real, test_set, sizes):
    """Recorded labels are shuffled, so that only those of the other family teach anything."""
    learned: list[np.ndarray] = []

    def remembering(dags, target_B, sizes, seed):
        learned.append(target_B)
        return _fit(dags, target_B, sizes, seed)

    wrong = training_set(SHUFFLED, real, real, 0)
    report = evaluate_tstr(
        real,
        wrong,
        test_set,
        sizes,
        {"trees": _fit, "remembering": remembering},
        seeds=(0,),
        conditions=(REAL, SYNTHETIC, RELABELED),
    )
    assert report.row("remembering", RELABELED).scores["spearman"].mean > 0.6
    assert report.row("remembering", SYNTHETIC).scores["spearman"].mean < 0.4
    trees = _fit(real.dags, real.target_B, sizes, 0)
    np.testing.assert_allclose(learned[-1], trees.predict(wrong.dags))
    assert len(learned) == 3, "the surrogate of all real graphs is fitted once"


def test_wrong_use_is_refused(real, sizes):
    with pytest.raises(UsageError, match="one target per graph"):
        Labeled(real.dags, real.target_B[:3])
    with pytest.raises(UsageError, match=r"no condition 'imaginary'.*few_real"):
        evaluate_tstr(real, real, real, sizes, {"trees": _fit}, conditions=["imaginary"])
    with pytest.raises(UsageError, match="only trees; name two families"):
        evaluate_tstr(real, real, real, sizes, {"trees": _fit}, conditions=[RELABELED])
    with pytest.raises(UsageError, match="at least one seed"):
        evaluate_tstr(real, real, real, sizes, {"trees": _fit}, seeds=())
