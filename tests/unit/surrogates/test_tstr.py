import numpy as np
import pytest

from layerdag import surrogates
from layerdag._runtime import RenamedWarning
from layerdag.errors import UsageError
from layerdag.evaluation.metrics import Interval
from layerdag.graph import GraphSizes
from layerdag.surrogates import REAL, SHUFFLED, SYNTHETIC, Labeled, transfer
from layerdag.surrogates._tstr import (
    AUGMENTED,
    CONDITIONS,
    SUBSAMPLE,
    ReachedFraction,
    TransferReport,
    training_set,
)
from layerdag.surrogates.families import BoostingSettings, NetworkSettings, fit_boosting


def _fit(dags, target_B, sizes, seed):
    return fit_boosting(
        dags, target_B, sizes, seed=seed, settings=BoostingSettings(trees=30, depth=3)
    )


def test_real_like_synthetic_graphs_reach_the_ceiling_and_shuffled_ones_do_not(
    real: Labeled, test_set: Labeled, sizes: GraphSizes
) -> None:
    half = np.arange(30)
    report = transfer(
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


def test_fractions_pair_both_scores_of_a_resample(
    real: Labeled, test_set: Labeled, sizes: GraphSizes
) -> None:
    """Real graphs beside themselves reach all that real graphs do, without any spread."""
    report = transfer(
        real, real, test_set, sizes, {"trees": _fit}, seeds=(0, 1), conditions=(REAL, SYNTHETIC)
    )
    fraction = report.fraction("trees", "pearson")
    assert fraction.value == pytest.approx(1.0)
    assert fraction.interval == Interval(1.0, 1.0)


def test_a_fraction_has_an_interval_around_it_and_needs_both_conditions(
    real: Labeled, test_set: Labeled, sizes: GraphSizes
) -> None:
    few = real.taken(np.arange(10))
    fraction = transfer(real, few, test_set, sizes, {"trees": _fit}).fraction("trees", "pearson")
    assert fraction.interval is not None
    assert fraction.interval.low < fraction.value < fraction.interval.high
    alone = transfer(real, few, test_set, sizes, {"trees": _fit}, conditions=(REAL, SHUFFLED))
    assert alone.fractions == ()


def test_training_sets_are_what_their_names_say(real: Labeled) -> None:
    half = np.arange(30)
    first, second = real.taken(half), real.taken(half + 30)
    assert training_set(REAL, first, second, 0) is first
    assert training_set(SYNTHETIC, first, second, 0) is second
    assert len(training_set(AUGMENTED, first, second, 0).dags) == 60
    assert len(training_set(SUBSAMPLE, first, second, 0).dags) == 7
    shuffled = training_set(SHUFFLED, first, second, 0)
    assert shuffled.dags is first.dags
    assert sorted(shuffled.target_B) == sorted(first.target_B)
    assert (shuffled.target_B != first.target_B).any()


def test_wrong_use_is_refused(real: Labeled, sizes: GraphSizes) -> None:
    with pytest.raises(UsageError, match="one target per graph"):
        Labeled(real.dags, real.target_B[:3])
    with pytest.raises(UsageError, match="no condition 'imaginary'"):
        transfer(real, real, real, sizes, {"trees": _fit}, conditions=["imaginary"])
    with pytest.raises(UsageError, match="at least one seed"):
        transfer(real, real, real, sizes, {"trees": _fit}, seeds=())


def test_old_names_of_fractions_work_and_the_new_ones_are_told() -> None:
    reached = ReachedFraction("trees", "pearson", 0.9, None)
    with pytest.warns(RenamedWarning, match="'shares' is now called 'fractions'"):
        report = TransferReport(rows=(), shares=(reached,), tested_on=4, seeds=(0,))
    with pytest.warns(RenamedWarning, match="'share' is now called 'fraction'"):
        assert report.share("trees", "pearson") is reached
    with pytest.warns(RenamedWarning, match=r"'layerdag.surrogates.Share' is now called"):
        assert surrogates.Share is ReachedFraction
    with pytest.warns(RenamedWarning, match="'feature_share' is now called 'feature_fraction'"):
        assert BoostingSettings(feature_share=0.5).feature_fraction == 0.5
    with pytest.warns(RenamedWarning, match="'validation_share' is now called"):
        assert NetworkSettings(validation_share=0.5).validation_fraction == 0.5
