"""Graphs that are likely under every model hide members from a plain attack, and not from this."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from raw_graphs import chain

from layerdag.dag.dag import DAG
from layerdag.errors import UsageError
from layerdag.privacy.likelihood_ratio import (
    ModelScores,
    ShadowLosses,
    balanced_members,
    likelihood_ratio_attacks,
    pooled_attack,
    schema_attacks,
    scores_as_members,
    shadows_as_targets,
)
from layerdag.privacy.membership import attack_by_scores
from layerdag.schema.conditions import ConditionCell, ConditionTable
from layerdag.schema.schema import GraphSchema
from layerdag.statistics import Verdict, chance_half_width

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


def test_what_a_plain_attack_on_losses_misses_is_found(rng):
    target_G, shadows = drawn(rng, gain=0.1)
    plain = attack_by_scores("likelihood", "", [(-target_G[:MEMBERS], -target_G[MEMBERS:])], 0)
    offline, online = likelihood_ratio_attacks(target_G, shadows, MEMBERS)
    assert plain.auc < 0.6
    assert offline.auc > 0.85
    assert online.auc > 0.85
    assert offline.leaks
    assert online.leaks
    assert (offline.members, offline.non_members) == (MEMBERS, GRAPHS - MEMBERS)


def test_a_model_that_never_saw_the_members_is_not_accused():
    areas = []
    for seed in range(8):
        target_G, shadows = drawn(np.random.default_rng(seed), gain=0.0)
        areas += [attack.auc for attack in likelihood_ratio_attacks(target_G, shadows, MEMBERS)]
    assert abs(float(np.mean(areas)) - 0.5) < 0.03
    assert max(abs(area - 0.5) for area in areas) < 0.11


def test_a_level_that_a_model_has_on_all_graphs_changes_nothing(rng):
    target_G, shadows = drawn(rng, gain=0.05)
    moved = ShadowLosses(shadows.loss_SG + np.arange(MODELS)[:, None], shadows.member_SG)
    first = likelihood_ratio_attacks(target_G, shadows, MEMBERS)
    second = likelihood_ratio_attacks(target_G + 7.0, moved, MEMBERS)
    assert [a.auc for a in first] == pytest.approx([a.auc for a in second])


def test_graphs_that_a_model_cannot_express_score_lowest(rng):
    target_G, shadows = drawn(rng, gain=0.0)
    target_G[:MEMBERS] = np.nan  # members only: never above another graph
    for attack in likelihood_ratio_attacks(target_G, shadows, MEMBERS):
        assert attack.auc == 0.0
    loss_SG = shadows.loss_SG.copy()
    loss_SG[:, 0] = np.nan  # no shadow model can express the first graph
    target_G, _ = drawn(rng, gain=0.0)
    for attack in likelihood_ratio_attacks(target_G, ShadowLosses(loss_SG, shadows.member_SG), 1):
        assert attack.auc == 0.0


def test_every_run_is_left_out_by_half_of_the_models(rng):
    member_SR = balanced_members(16, 37, rng)
    assert member_SR.shape == (16, 37)
    assert (member_SR.sum(axis=0) == 8).all()
    assert len({tuple(column) for column in member_SR.T.tolist()}) > 30  # not one half for all


def test_too_few_models_or_kinds_of_graphs_are_refused(rng):
    target_G, shadows = drawn(rng, gain=0.0)
    for members in (0, GRAPHS):
        with pytest.raises(UsageError, match="needs both kinds"):
            likelihood_ratio_attacks(target_G, shadows, members)
    with pytest.raises(UsageError, match="left out by 1 of 3 shadow models"):
        ShadowLosses(np.zeros((3, 2)), np.array([[True, False], [True, False], [False, False]]))


def test_each_shadow_model_is_a_target_of_the_others(rng):
    _, leaking = drawn(rng, gain=0.1)
    targets = shadows_as_targets(leaking)
    assert set(targets) == {"likelihood", "likelihood_ratio", "likelihood_ratio_offline"}
    offline = targets["likelihood_ratio_offline"]
    assert len(offline) == MODELS
    own = pooled_attack("x", "a", offline, np.arange(GRAPHS))
    assert own is not None
    assert own.auc > 0.9
    posing = scores_as_members(offline, MEMBERS)
    assert all(
        np.isnan(model.score_G[was]).all()
        for model, was in zip(posing, leaking.member_SG, strict=True)
    )
    honest = pooled_attack("x", "a", posing, np.arange(GRAPHS))
    assert honest is not None
    assert honest.interval.low < 0.5 < honest.interval.high
    assert own.interval.low > 0.8


def test_what_a_shadow_model_cannot_express_is_not_scored_under_it(rng):
    _, shadows = drawn(rng, gain=0.1)
    loss_SG = shadows.loss_SG.copy()
    loss_SG[2, 5] = np.nan
    for models in shadows_as_targets(ShadowLosses(loss_SG, shadows.member_SG)).values():
        assert np.isnan(models[2].score_G[5])
        assert not np.isnan(models[3].score_G[5])


POOLED_GRAPHS, FOLDS = 60, 5


def folds(
    rng: np.random.Generator, *, own: float, noise: float, gain: float
) -> tuple[list[ModelScores], np.ndarray]:
    """Return scores of folds: what a graph always has, noise, and a gain of members."""
    always_G = own * rng.standard_normal(POOLED_GRAPHS)
    fold_G = rng.permutation(POOLED_GRAPHS) % FOLDS
    found = []
    for fold in range(FOLDS):
        member_G = fold_G != fold
        score_G = always_G + noise * rng.standard_normal(POOLED_GRAPHS) + gain * member_G
        found.append(ModelScores(score_G + 100 * fold, member_G))  # scales differ
    return found, np.arange(POOLED_GRAPHS)


def test_what_a_graph_always_has_says_nothing(rng):
    models, run_G = folds(rng, own=1.0, noise=0.0, gain=0.0)
    found = pooled_attack("x", "a score", models, run_G)
    assert found is not None
    assert found.auc == pytest.approx(0.5)
    silent = np.sqrt(FOLDS * (POOLED_GRAPHS + 1) / (12 * POOLED_GRAPHS**2 * (FOLDS - 1)))
    assert found.interval.high - found.auc == pytest.approx(1.96 * silent, rel=0.01)
    assert (found.members, found.non_members) == (POOLED_GRAPHS, POOLED_GRAPHS)


def test_the_interval_is_narrower_than_that_of_one_split(rng):
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
def test_intervals_hold_one_half_as_often_as_they_say(own, rng):
    inside = 0
    for _ in range(60):
        found = pooled_attack("x", "a", *folds(rng, own=own, noise=1.0, gain=0.0))
        assert found is not None
        inside += found.interval.low <= 0.5 <= found.interval.high
    assert inside >= 53


def test_members_with_a_gain_are_told_whatever_the_scale_of_a_model(rng):
    found = pooled_attack("x", "a score", *folds(rng, own=1.0, noise=0.3, gain=1.5))
    assert found is not None
    assert found.verdict is Verdict.LEAKS
    assert found.auc > 0.8
    assert found.true_positive_rate > 0.2


def test_runs_of_several_graphs_are_resampled_together(rng):
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


def test_what_is_not_scored_does_not_count_and_rates_are_of_distinct_graphs(rng):
    models, run_G = folds(rng, own=0.0, noise=1.0, gain=0.0)
    score_G = models[0].score_G.copy()
    score_G[models[0].member_G] = np.nan
    found = pooled_attack("x", "a", [ModelScores(score_G, models[0].member_G), *models[1:]], run_G)
    assert found is not None
    for rate in found.rates:
        assert rate.true_positive_rate is None
        assert rate.need is not None
        assert rate.need.found < POOLED_GRAPHS
        assert rate.need.count == round(1 / rate.false_positive_rate)
    assert pooled_attack("x", "a", [ModelScores(score_G, models[0].member_G)], run_G) is None


def test_one_model_has_the_floor_of_one_split():
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


def test_intervals_hold_one_half_where_scores_share_what_they_are_compared_with(rng):
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


def with_labels(labels: np.ndarray) -> list[DAG]:
    node, none = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64)
    return [DAG.build(node, none, conditions={"label": float(label)}) for label in labels]


def fitted(labels: np.ndarray) -> GraphSchema:
    return GraphSchema.fit("flow", [chain("g", "a", label=float(label)) for label in labels])


def test_a_fitted_table_tells_nothing_of_note(rng):
    labels = rng.normal(10.0, 2.0, 600)
    schema = fitted(labels[:300])
    attacks = schema_attacks(schema, with_labels(labels[:300]), with_labels(labels[300:]))
    assert [attack.name for attack in attacks] == ["schema_lookup", "schema_density"]
    assert all(abs(attack.auc - 0.5) < 0.05 for attack in attacks)


def test_a_table_of_single_graphs_is_caught_by_both(rng):
    labels = rng.normal(10.0, 2.0, 60)
    schema = fitted(labels[:30])
    scaled, _ = schema.encode_conditions([{"label": float(label)} for label in labels[:30]])
    cells = tuple(ConditionCell((), 1, (float(v),), (1e-4,)) for v in scaled[:, 0].tolist())
    leaking = replace(schema, condition_table=ConditionTable(cells, ((1.0,),)))
    attacks = schema_attacks(leaking, with_labels(labels[:30]), with_labels(labels[30:]))
    assert all(attack.auc > 0.95 and attack.leaks for attack in attacks)


def test_a_schema_without_a_table_cannot_be_attacked(rng):
    schema = fitted(np.arange(1.0, 4.0))
    assert schema_attacks(schema, with_labels(np.ones(3)), with_labels(np.ones(3))) == ()


def test_without_graphs_on_both_sides_there_is_no_attack(rng):
    labels = rng.normal(10.0, 2.0, 20)
    schema, some = fitted(labels), with_labels(labels)
    assert schema_attacks(schema, [], some) == ()
    assert schema_attacks(schema, some, []) == ()
    assert len(schema_attacks(schema, some, some)) == 2
