"""Laws of attacks, verdicts and distances to the closest record."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from leak_figures import closer_to_training
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.privacy.attacks import attack_outcomes, tally_attacks
from layerdag.privacy.copies import (
    kernel_distances,
    nearness_by_distance,
    novelty,
)
from layerdag.privacy.membership import attack_by_scores
from layerdag.privacy.membership_attacks import AttackPool
from layerdag.privacy.sample_leaks import LeakTally, sample_leaks
from layerdag.statistics import Interval, Verdict, auroc, chance_half_width, needed

SEEDS = st.integers(0, 2**32 - 1)
SCORES = st.lists(st.integers(-5, 5), min_size=1, max_size=20).map(
    lambda values: np.array(values, dtype=float)
)
FRACTIONS = st.floats(0.0, 1.0)


def graphs(seed: int, count: int) -> list[DAG]:
    rng = np.random.default_rng(seed)
    return [random_dag(rng, rng.integers(1, 4, 4).tolist(), [4, 3]) for _ in range(count)]


@given(SCORES, SCORES)
@tried(60)
def test_the_area_is_the_mean_over_pairs_and_mirrors(members, others):
    pairs = np.sign(members[:, None] - others) / 2 + 0.5
    area = auroc(members, others)
    assert area == pytest.approx(pairs.mean())
    assert auroc(others, members) == pytest.approx(1 - area)
    assert auroc(-members, -others) == pytest.approx(1 - area)
    assert auroc(3 * members + 7, 3 * others + 7) == pytest.approx(area)


@given(SCORES, SCORES, SEEDS)
@tried(25)
def test_an_attack_has_its_area_inside_its_interval_and_a_verdict_on_it(members, others, seed):
    attack = attack_by_scores("plain", "a score", [(members, others)], seed)
    assert 0 <= attack.interval.low <= attack.auc <= attack.interval.high <= 1
    width = chance_half_width(members.size, others.size)
    assert attack.interval.low <= max(attack.auc - width, 0) + 1e-12
    assert attack.verdict is Verdict.from_interval(attack.interval)
    assert (attack.need is None) == (attack.verdict is not Verdict.TOO_FEW)
    assert attack.leaks == (attack.interval.low > 0.5)
    assert 0 <= attack.true_positive_rate <= 1
    assert (attack.members, attack.non_members) == (members.size, others.size)


@given(FRACTIONS, FRACTIONS)
@tried(100)
def test_every_interval_has_one_verdict_and_mirrors(first, second):
    low, high = sorted((first, second))
    verdict, mirrored = (
        Verdict.from_interval(Interval(low, high)),
        Verdict.from_interval(Interval(1 - high, 1 - low)),
    )
    if low > 0.5:
        # A leak is told before chance: an interval above .5 is one, however near.
        assert verdict is Verdict.LEAKS
        assert mirrored in (Verdict.REVERSED, Verdict.CHANCE)
    elif low < 0.45 and high > 0.5:
        assert verdict is Verdict.TOO_FEW
    elif high < 0.45:
        assert (verdict, mirrored) == (Verdict.REVERSED, Verdict.LEAKS)
    if verdict is Verdict.CHANCE:
        assert 0.45 <= low <= high <= 0.55


@given(FRACTIONS, st.floats(0.001, 0.5), st.integers(2, 10_000))
@tried(60)
def test_the_number_needed_grows_with_the_width_and_shrinks_no_more_than_to_a_verdict(
    value, half, found
):
    count = needed(value, half, found)
    assert needed(value, 2 * half, found) >= count
    narrowed = half * np.sqrt(found / count)
    distance = abs(value - 0.5)
    assert narrowed <= max(distance, 0.05 - distance) + 1e-9


@given(st.integers(1, 300), st.data())
@tried(60)
def test_wilsons_interval_holds_the_fraction_and_narrows(count, data):
    hits = data.draw(st.integers(0, count))
    few, many = Interval.wilson(hits / count, count), Interval.wilson(hits / count, 100 * count)
    assert few.low + 1e-12 >= 0
    assert few.high <= 1 + 1e-12
    assert few.low <= many.low + 1e-12
    assert many.high <= few.high + 1e-12
    assert few.low - 1e-12 <= hits / count <= few.high + 1e-12
    mirrored = Interval.wilson(1 - hits / count, count)
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - few.high, 1 - few.low))


@given(SEEDS)
@tried(10)
def test_kernel_distances_are_distances_and_see_no_order_of_nodes(seed):
    rng = np.random.default_rng(seed)
    dags = graphs(seed, 5)
    shuffled = [dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes))) for dag in dags]
    distance = kernel_distances(dags, dags)
    np.testing.assert_allclose(distance, distance.T, atol=1e-7)
    np.testing.assert_allclose(np.diag(distance), 0, atol=1e-7)
    assert (distance <= np.sqrt(2) + 1e-9).all()
    for middle in range(5):
        detour = distance[:, middle, None] + distance[None, middle, :]
        assert (distance <= detour + 1e-7).all()
    np.testing.assert_allclose(kernel_distances(dags, shuffled), distance, atol=1e-7)


@given(SEEDS, st.integers(2, 9), st.integers(2, 9), st.integers(1, 9))
@tried(15)
def test_swapping_training_and_held_out_graphs_mirrors_the_dcr_share(seed, train, held, made):
    rng = np.random.default_rng(seed)
    to_train_KT, to_held_KH = rng.random((made, train)), rng.random((made, train))
    found = nearness_by_distance(to_train_KT, to_held_KH, seed)
    back = nearness_by_distance(to_held_KH, to_train_KT, seed)
    # All graphs of both sets are compared, in whatever order they are drawn.
    assert found.dcr_share == pytest.approx(1 - back.dcr_share)
    assert (found.median_to_train, found.median_to_held_out) == (
        back.median_to_held_out,
        back.median_to_train,
    )
    assert 0 <= found.interval.low <= found.dcr_share <= found.interval.high <= 1
    fewer = nearness_by_distance(to_train_KT, rng.random((made, held)), seed)
    assert (fewer.compared, fewer.samples) == (min(train, held), made)


@given(SEEDS, st.integers(0, 6))
@tried(15)
def test_novelty_counts_add_up(seed, copies):
    train, fresh = graphs(seed, 6), graphs(seed + 1, 4)
    valid_B = np.random.default_rng(seed).random(copies + 4) < 0.7
    found = novelty(train, fresh, [*train[:copies], *fresh], valid_B)
    assert found.graphs == copies + 4
    assert found.copied == pytest.approx(1 - found.novel)
    assert found.copied >= copies / (copies + 4) - 1e-12
    assert found.vun <= min(found.valid, found.novel, found.unique) + 1e-12
    assert found.valid == valid_B.mean()


@given(SEEDS)
@tried(8)
def test_every_figure_looks_at_all_samples_and_has_a_verdict(seed):
    found = sample_leaks(graphs(seed, 5), graphs(seed + 1, 5), graphs(seed + 2, 8))
    assert (found.samples, found.nearness.samples) == (8, 8)
    figures = (found.nearness, *found.attacks, *found.inferences)
    assert [*found.verdicts.values()] == [figure.verdict for figure in figures]


@given(SEEDS, st.integers(1, 7), st.sampled_from([(), (1,)]))
@tried(12)
def test_samples_that_come_some_at_a_time_give_away_what_they_do_together(seed, at_once, measured):
    train, held_out, made = graphs(seed, 9), graphs(seed + 1, 8), graphs(seed + 2, 23)
    tally = LeakTally(train, held_out, len(made), measured=measured)
    for first in range(0, len(made), at_once):
        tally.add(made[first : first + at_once])
    pool = AttackPool(train, held_out, made, measured=measured)
    assert tuple(tally.outcomes()) == attack_outcomes(tally_attacks(pool), pool.roles, 0)
    found, known = tally.nearness, closer_to_training(train, held_out, made)
    medians = (known.median_to_train, known.median_to_held_out)  # but for the last digit
    assert (found.median_to_train, found.median_to_held_out) == pytest.approx(medians)
    assert replace(found, median_to_train=medians[0], median_to_held_out=medians[1]) == known
