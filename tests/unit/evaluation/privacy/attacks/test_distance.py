"""Scores by distance and by trees: which parts are compared, and what decides the order."""

import numpy as np
import pytest
import torch

from layerdag.evaluation.privacy.attacks import Pool
from layerdag.evaluation.privacy.attacks._distance import (
    DensityRatio,
    NearestProgram,
    NearestSample,
    _bandwidth,
    _log_density,
    halves_of,
)
from layerdag.evaluation.privacy.attacks._pool import Roles
from layerdag.graph import DAG, random_dag


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, [2, 3, 3], [4, 3]) for _ in range(count)]


def test_the_halves_part_the_held_out_graphs_and_change_places(rng: np.random.Generator) -> None:
    roles = Pool(graphs(rng, 2), graphs(rng, 7), graphs(rng, 3)).roles
    (first, others), (second, rest) = halves_of(roles, 4)
    assert sorted([*first, *others]) == list(range(2, 9))
    assert (first.size, others.size) == (3, 4)
    assert (second.tolist(), rest.tolist()) == (others.tolist(), first.tolist())
    assert halves_of(roles, 4)[0][0].tolist() == first.tolist()
    assert any(halves_of(roles, seed)[0][0].tolist() != first.tolist() for seed in range(5, 9))


def test_one_held_out_graph_has_no_halves_and_the_density_no_reference(
    rng: np.random.Generator,
) -> None:
    pool = Pool(graphs(rng, 2), graphs(rng, 1), graphs(rng, 3))
    assert halves_of(pool.roles, 0) == ()
    assert DensityRatio(pool).folds(pool.roles, 0) == []
    [(member_T, other_H)] = NearestSample(pool).folds(pool.roles, 0)
    assert (member_T.size, other_H.size) == (2, 1)


def test_no_graph_scores_above_a_copy_and_more_samples_only_bring_graphs_nearer(
    rng: np.random.Generator,
) -> None:
    train = graphs(rng, 4)
    pool = Pool(train, graphs(rng, 4), [*graphs(rng, 5), train[2]])
    roles = pool.roles
    [(member_T, other_H)] = NearestSample(pool).folds(roles, 0)
    assert member_T.argmax() == 2
    assert member_T[2] == pytest.approx(0, abs=1e-6)
    assert max(member_T.max(), other_H.max()) <= 1e-6
    few = Roles(roles.member_T, roles.other_H, roles.sample_K[:3])
    [(fewer_T, fewer_H)] = NearestSample(pool).folds(few, 0)
    assert (fewer_T <= member_T).all()
    assert (fewer_H <= other_H).all()


def test_scores_do_not_depend_on_the_order_of_samples(rng: np.random.Generator) -> None:
    pool = Pool(graphs(rng, 4), graphs(rng, 6), graphs(rng, 5))
    roles = pool.roles
    turned = Roles(roles.member_T, roles.other_H, roles.sample_K[::-1])
    for attack in (NearestSample(pool), DensityRatio(pool)):
        for one, other in zip(attack.folds(roles, 1), attack.folds(turned, 1), strict=True):
            for here, there in zip(one, other, strict=True):
                np.testing.assert_allclose(here, there)


def test_members_follow_their_graphs_when_the_training_set_is_reordered(
    rng: np.random.Generator,
) -> None:
    train, held_out, made = graphs(rng, 5), graphs(rng, 4), graphs(rng, 6)
    first, second = Pool(train, held_out, made), Pool(train[::-1], held_out, made)
    for attack in (NearestSample, DensityRatio):
        here, there = (attack(pool).folds(pool.roles, 0)[0] for pool in (first, second))
        np.testing.assert_allclose(here[0], there[0][::-1], atol=1e-6)
        np.testing.assert_allclose(here[1], there[1], atol=1e-6)


def test_a_job_measured_again_is_known_by_its_program_alone(rng: np.random.Generator) -> None:
    train = graphs(rng, 4)
    again = [dag.with_columns(dag.x_NA + torch.tensor([0, 90])) for dag in train]
    pool = Pool(train, graphs(rng, 4), again, measured=(1,))
    [(by_program_T, _)] = NearestProgram(pool).folds(pool.roles, 0)
    [(by_all_T, _)] = NearestSample(pool).folds(pool.roles, 0)
    assert by_program_T == pytest.approx(0, abs=1e-6)
    assert by_all_T.max() < -0.1


def test_a_copy_outweighs_many_graphs_at_the_usual_distance() -> None:
    distance_GK = np.array([[0.6, 0.9], [0.3, 0.6], [0.9, 0.9]])
    width = _bandwidth(distance_GK)
    assert width == pytest.approx(0.2)
    copy, usual = np.exp(_log_density(np.array([[0.0], [0.6]]), width))
    assert copy / usual == pytest.approx(np.exp(4.5))
    # Of equal graphs there is no scale; densities stay finite nevertheless.
    assert _bandwidth(np.zeros((3, 3))) == 1e-3
    assert np.isfinite(_log_density(np.array([[1.4, 1.4]]), 1e-3)).all()


def test_a_density_is_a_mean_over_graphs_and_not_a_sum() -> None:
    once, twice = np.array([[0.1, 0.7]]), np.array([[0.1, 0.7, 0.1, 0.7]])
    assert _log_density(once, 0.2) == pytest.approx(_log_density(twice, 0.2))


def test_where_samples_lie_among_other_real_graphs_they_say_less(
    rng: np.random.Generator,
) -> None:
    """Of two copied members, the one with held-out graphs of its own beside it scores lower."""
    rare, common = graphs(rng, 2)
    pool = Pool([rare, common], [common] * 6, [rare, common])
    for (of_rare, of_common), other_H in DensityRatio(pool).folds(pool.roles, 0):
        assert of_rare > of_common
        assert of_common == pytest.approx(other_H)
