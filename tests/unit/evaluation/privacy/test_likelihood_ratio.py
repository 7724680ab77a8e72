"""Graphs that are likely under every model hide members from a plain attack, and not from this."""

import numpy as np
import pytest

from layerdag.errors import UsageError
from layerdag.evaluation.privacy import (
    ShadowLosses,
    areas_over_shadows,
    balanced_members,
    likelihood_ratio_attacks,
    pooled_attack,
    posing_as_members,
    shadows_as_targets,
)
from layerdag.evaluation.privacy._membership import attack_by_scores

GRAPHS, MEMBERS, MODELS = 400, 200, 16


def drawn(rng: np.random.Generator, gain: float) -> tuple[np.ndarray, ShadowLosses]:
    """Return losses of a target and of its shadows: members cost ``gain`` less than they would."""
    difficulty_G = rng.normal(3.0, 1.0, GRAPHS)
    member_SG = balanced_members(MODELS, GRAPHS, rng)
    level_S = rng.normal(0.0, 0.5, (MODELS, 1))  # one model is better than another on all graphs
    loss_SG = difficulty_G + level_S + rng.normal(0.0, 0.05, (MODELS, GRAPHS)) - gain * member_SG
    target_G = difficulty_G + 0.3 + rng.normal(0.0, 0.05, GRAPHS)
    target_G[:MEMBERS] -= gain
    return target_G, ShadowLosses(loss_SG, member_SG)


def test_what_a_plain_attack_on_losses_misses_is_found(rng: np.random.Generator) -> None:
    target_G, shadows = drawn(rng, gain=0.1)
    plain = attack_by_scores("likelihood", "", [(-target_G[:MEMBERS], -target_G[MEMBERS:])], 0)
    offline, online = likelihood_ratio_attacks(target_G, shadows, MEMBERS)
    assert plain.auc < 0.6
    assert offline.auc > 0.85
    assert online.auc > 0.85
    assert offline.leaks
    assert online.leaks
    assert (offline.members, offline.non_members) == (MEMBERS, GRAPHS - MEMBERS)


def test_a_model_that_never_saw_the_members_is_not_accused() -> None:
    areas = []
    for seed in range(8):
        target_G, shadows = drawn(np.random.default_rng(seed), gain=0.0)
        areas += [attack.auc for attack in likelihood_ratio_attacks(target_G, shadows, MEMBERS)]
    assert abs(float(np.mean(areas)) - 0.5) < 0.03
    assert max(abs(area - 0.5) for area in areas) < 0.11


def test_a_level_that_a_model_has_on_all_graphs_changes_nothing(rng: np.random.Generator) -> None:
    target_G, shadows = drawn(rng, gain=0.05)
    moved = ShadowLosses(shadows.loss_SG + np.arange(MODELS)[:, None], shadows.member_SG)
    first = likelihood_ratio_attacks(target_G, shadows, MEMBERS)
    second = likelihood_ratio_attacks(target_G + 7.0, moved, MEMBERS)
    assert [a.auc for a in first] == pytest.approx([a.auc for a in second])


def test_graphs_that_a_model_cannot_express_score_lowest(rng: np.random.Generator) -> None:
    target_G, shadows = drawn(rng, gain=0.0)
    target_G[:MEMBERS] = np.nan  # members only: never above another graph
    for attack in likelihood_ratio_attacks(target_G, shadows, MEMBERS):
        assert attack.auc == 0.0
    loss_SG = shadows.loss_SG.copy()
    loss_SG[:, 0] = np.nan  # no shadow model can express the first graph
    target_G, _ = drawn(rng, gain=0.0)
    for attack in likelihood_ratio_attacks(target_G, ShadowLosses(loss_SG, shadows.member_SG), 1):
        assert attack.auc == 0.0


def test_every_run_is_left_out_by_half_of_the_models(rng: np.random.Generator) -> None:
    member_SR = balanced_members(16, 37, rng)
    assert member_SR.shape == (16, 37)
    assert (member_SR.sum(axis=0) == 8).all()
    assert len({tuple(column) for column in member_SR.T.tolist()}) > 30  # not one half for all


def test_too_few_models_or_kinds_of_graphs_are_refused(rng: np.random.Generator) -> None:
    target_G, shadows = drawn(rng, gain=0.0)
    for members in (0, GRAPHS):
        with pytest.raises(UsageError, match="needs both kinds"):
            likelihood_ratio_attacks(target_G, shadows, members)
    with pytest.raises(UsageError, match="left out by 1 of 3 shadow models"):
        ShadowLosses(np.zeros((3, 2)), np.array([[True, False], [True, False], [False, False]]))


def test_what_models_made_in_one_way_give_away_is_the_mean_over_them(
    rng: np.random.Generator,
) -> None:
    _, leaking = drawn(rng, gain=0.1)
    _, silent = drawn(rng, gain=0.0)
    found = areas_over_shadows(leaking)
    assert found.shape == (MODELS,)
    assert found.min() > 0.85
    assert abs(float(areas_over_shadows(silent).mean()) - 0.5) < 0.03


def test_each_shadow_model_is_a_target_of_the_others(rng: np.random.Generator) -> None:
    _, leaking = drawn(rng, gain=0.1)
    targets = shadows_as_targets(leaking)
    assert set(targets) == {"likelihood", "likelihood_ratio", "likelihood_ratio_offline"}
    offline = targets["likelihood_ratio_offline"]
    assert len(offline) == MODELS
    own = pooled_attack("x", "a", offline, np.arange(GRAPHS))
    assert own is not None
    assert own.auc == pytest.approx(float(areas_over_shadows(leaking).mean()), abs=0.01)
    posing = posing_as_members(offline, MEMBERS)
    assert all(
        np.isnan(model.score_G[was]).all()
        for model, was in zip(posing, leaking.member_SG, strict=True)
    )
    honest = pooled_attack("x", "a", posing, np.arange(GRAPHS))
    assert honest is not None
    assert honest.interval.low < 0.5 < honest.interval.high
    assert own.interval.low > 0.8


def test_what_a_shadow_model_cannot_express_is_not_scored_under_it(
    rng: np.random.Generator,
) -> None:
    _, shadows = drawn(rng, gain=0.1)
    loss_SG = shadows.loss_SG.copy()
    loss_SG[2, 5] = np.nan
    for models in shadows_as_targets(ShadowLosses(loss_SG, shadows.member_SG)).values():
        assert np.isnan(models[2].score_G[5])
        assert not np.isnan(models[3].score_G[5])
