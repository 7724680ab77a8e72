"""Scores under several models are compared within a model, and runs are resampled."""

from dataclasses import replace

import numpy as np
import pytest

from layerdag.evaluation.privacy import (
    ModelScores,
    Verdict,
    attack_by_scores,
    chance_half_width,
    pooled_attack,
)

GRAPHS, FOLDS = 60, 5


def folds(
    rng: np.random.Generator, *, own: float, noise: float, gain: float
) -> tuple[list[ModelScores], np.ndarray]:
    """Return scores of folds: what a graph always has, noise, and a gain of members."""
    always_G = own * rng.standard_normal(GRAPHS)
    fold_G = rng.permutation(GRAPHS) % FOLDS
    found = []
    for fold in range(FOLDS):
        member_G = fold_G != fold
        score_G = always_G + noise * rng.standard_normal(GRAPHS) + gain * member_G
        found.append(ModelScores(score_G + 100 * fold, member_G))  # scales differ
    return found, np.arange(GRAPHS)


def test_what_a_graph_always_has_says_nothing(rng: np.random.Generator) -> None:
    models, run_G = folds(rng, own=1.0, noise=0.0, gain=0.0)
    found = pooled_attack("x", "a score", models, run_G)
    assert found is not None
    assert found.auc == pytest.approx(0.5)
    silent = np.sqrt(FOLDS * (GRAPHS + 1) / (12 * GRAPHS**2 * (FOLDS - 1)))
    assert found.interval.high - found.auc == pytest.approx(1.96 * silent, rel=0.01)
    assert (found.members, found.non_members) == (GRAPHS, GRAPHS)


def test_the_interval_is_narrower_than_that_of_one_split(rng: np.random.Generator) -> None:
    models, run_G = folds(rng, own=1.0, noise=1.0, gain=0.0)
    pooled = pooled_attack("x", "a score", models, run_G)
    first = models[0]
    one = attack_by_scores(
        "x", "a score", [(first.score_G[first.member_G], first.score_G[~first.member_G])], 0
    )
    assert pooled is not None
    width, before = (each.interval.high - each.interval.low for each in (pooled, one))
    assert width < 0.55 * before


@pytest.mark.parametrize("own", [0.0, 2.0])
def test_intervals_hold_one_half_as_often_as_they_say(own: float, rng: np.random.Generator) -> None:
    inside = 0
    for _ in range(60):
        found = pooled_attack("x", "a", *folds(rng, own=own, noise=1.0, gain=0.0))
        assert found is not None
        inside += found.interval.low <= 0.5 <= found.interval.high
    assert inside >= 53


def test_members_with_a_gain_are_told_whatever_the_scale_of_a_model(
    rng: np.random.Generator,
) -> None:
    found = pooled_attack("x", "a score", *folds(rng, own=1.0, noise=0.3, gain=1.5))
    assert found is not None
    assert found.verdict is Verdict.LEAKS
    assert found.auc > 0.8
    assert found.true_positive_rate > 0.2


def test_runs_of_several_graphs_are_resampled_together(rng: np.random.Generator) -> None:
    """Ten copies of each graph are not ten times as much evidence."""
    models, run_G = folds(rng, own=0.0, noise=1.0, gain=0.5)
    copied = [
        ModelScores(np.repeat(model.score_G, 10), np.repeat(model.member_G, 10)) for model in models
    ]
    one = pooled_attack("x", "a score", models, run_G)
    ten = pooled_attack("x", "a score", copied, np.repeat(run_G, 10))
    assert one is not None
    assert ten is not None
    assert ten.auc == pytest.approx(one.auc)
    assert ten.interval.high - ten.interval.low > 0.7 * (one.interval.high - one.interval.low)


def test_what_is_not_scored_does_not_count_and_rates_are_of_distinct_graphs(
    rng: np.random.Generator,
) -> None:
    models, run_G = folds(rng, own=0.0, noise=1.0, gain=0.0)
    score_G = models[0].score_G.copy()
    score_G[models[0].member_G] = np.nan
    found = pooled_attack("x", "a", [ModelScores(score_G, models[0].member_G), *models[1:]], run_G)
    assert found is not None
    for rate in found.rates:
        assert rate.true_positive_rate is None
        assert rate.need is not None
        assert rate.need.found < GRAPHS
        assert rate.need.count == round(1 / rate.false_positive_rate)
    assert pooled_attack("x", "a", [ModelScores(score_G, models[0].member_G)], run_G) is None


def test_one_model_has_the_floor_of_one_split() -> None:
    rng = np.random.default_rng(3)
    score_G, member_G = rng.standard_normal(300), np.arange(300) < 180
    found = pooled_attack("x", "a", [ModelScores(score_G, member_G)], np.arange(300))
    assert found is not None
    assert found.interval.high - found.auc >= chance_half_width(180, 120) - 1e-12
    assert found.rates[0].true_positive_rate is not None
    ranked = ModelScores(np.array([5.0, np.nan, 7.0]), np.array([True, True, False])).ranked()
    np.testing.assert_allclose(ranked.score_G, [0.25, np.nan, 0.75])


def with_references(rng: np.random.Generator) -> tuple[list[ModelScores], np.ndarray]:
    """Return scores of fold halves, in each of which a reference favors members or others."""
    models, run_G = folds(rng, own=1.0, noise=1.0, gain=0.0)
    found = []
    for model in models:
        shift_G = 1.2 * rng.standard_normal() * model.member_G
        found.append(replace(model, score_G=model.score_G + shift_G, shares_reference=True))
    return found, run_G


def test_intervals_hold_one_half_where_scores_share_what_they_are_compared_with(
    rng: np.random.Generator,
) -> None:
    inside = without = 0
    for _ in range(60):
        models, run_G = with_references(rng)
        found = pooled_attack("x", "a", models, run_G)
        plain = [replace(model, shares_reference=False) for model in models]
        before = pooled_attack("x", "a", plain, run_G)
        assert found is not None
        assert before is not None
        assert found.auc == before.auc
        inside += found.interval.low <= 0.5 <= found.interval.high
        without += before.interval.low <= 0.5 <= before.interval.high
    assert inside >= 53
    assert without < 45
