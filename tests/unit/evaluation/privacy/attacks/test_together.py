"""Which attacks succeed when several are run, at the edge of the wider interval."""

from dataclasses import replace
from statistics import NormalDist

import pytest

from layerdag.evaluation.metrics import Interval
from layerdag.evaluation.privacy import Attack, Verdict
from layerdag.evaluation.privacy.attacks import succeeds_among_all
from layerdag.evaluation.privacy.attacks._together import SHARING, WIDER


def attack(name: str, auc: float, low: float) -> Attack:
    interval = Interval(low, 2 * auc - low)
    return Attack(name, "", auc, interval, 0.0, 50, 50, Verdict.of(interval), None)


def test_the_wider_interval_is_that_of_five_tests_at_once() -> None:
    assert len(SHARING) == 5
    error = 1 - NormalDist().cdf(WIDER * NormalDist().inv_cdf(0.975))
    assert error == pytest.approx(0.025 / 5, rel=1e-3)


@pytest.mark.parametrize("name", ["nearest_sample", "density_ratio", "likelihood"])
def test_attacks_by_distance_keep_their_own_interval(name: str) -> None:
    assert succeeds_among_all(attack(name, 0.6, 0.501))
    assert not succeeds_among_all(attack(name, 0.6, 0.5))


@pytest.mark.parametrize("name", ["calibrated_classifier", "unique_motifs", "reconstruction"])
def test_attacks_that_share_their_error_need_an_interval_further_from_chance(name: str) -> None:
    edge = 0.6 - 0.1 / WIDER
    assert succeeds_among_all(attack(name, 0.6, edge + 1e-6))
    found = attack(name, 0.6, edge - 1e-6)
    assert found.leaks
    assert not succeeds_among_all(found)


def test_what_prefers_held_out_graphs_never_succeeds() -> None:
    found = attack("reconstruction", 0.1, 0.05)
    assert found.verdict is Verdict.REVERSED
    assert not succeeds_among_all(found)
    assert not succeeds_among_all(replace(found, name="nearest_sample"))
