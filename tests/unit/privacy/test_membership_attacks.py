"""Whole graphs as vectors: what they say, what they leave out, and what they do not depend on."""

import numpy as np
import pytest
import torch
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.privacy.membership_attacks import (
    COMPONENTS,
    GRAPHS_PER_VALUE,
    MAX_CODES,
    MAX_VALUES,
    RADIUS,
    AttackPool,
    DensityRatio,
    NearestProgram,
    NearestSample,
    Roles,
    Trait,
    UniqueMotifs,
    _bandwidth,
    _log_density,
    graph_descriptors,
    main_components,
    traits_of,
)


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, rng.integers(1, 5, 4).tolist(), [5, 3]) for _ in range(count)]


def alike(rng: np.random.Generator, count: int) -> list[DAG]:
    """Return graphs of one layout."""
    return [random_dag(rng, [2, 3, 3], [4, 3]) for _ in range(count)]


def path(*codes: int) -> DAG:
    size = len(codes)
    edges = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
    return DAG.build(torch.tensor(codes)[:, None], edges)


def test_the_widest_layer_is_counted_wherever_it_lies(rng):
    dags = [random_dag(rng, sizes, [3]) for sizes in ([7, 1, 2], [1, 2, 6], [1], [2, 2, 2, 2])]
    assert GraphSet.from_dags(dags).widest_B.tolist() == [7, 6, 1, 2]


def test_descriptors_do_not_depend_on_the_order_of_nodes(rng):
    dags = graphs(rng, 8)
    mixed = [dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes))) for dag in dags]
    first, second = (graph_descriptors(GraphSet.from_dags(each), 5) for each in (dags, mixed))
    np.testing.assert_allclose(first, second, rtol=1e-6)


def test_rows_follow_the_order_of_graphs(rng):
    dags = graphs(rng, 8)
    order = rng.permutation(8)
    first = graph_descriptors(GraphSet.from_dags(dags), 8)
    second = graph_descriptors(GraphSet.from_dags([dags[i] for i in order]), 8)
    np.testing.assert_allclose(first[order], second, rtol=1e-6)


def test_equal_graphs_have_no_column_that_tells_them_apart():
    assert graph_descriptors(GraphSet.from_dags([path(0, 1, 2)] * 3), 2).shape == (3, 0)


def test_the_order_of_operators_is_seen_at_the_edges_alone():
    there, back = path(0, 1, 2), path(2, 1, 0)
    found = graph_descriptors(GraphSet.from_dags([there, back]), 2)
    # Sizes and counts of codes are equal; four pairs of neighbors are in one of both.
    assert found.shape == (2, 4)
    assert np.allclose(found.sum(axis=1), 2 * np.log(2))


def test_pairs_that_samples_alone_have_get_no_column():
    real = [path(0, 1, 2), path(0, 1, 2)]
    assert graph_descriptors(GraphSet.from_dags([*real, path(2, 1, 0)]), 2).shape == (3, 2)
    assert graph_descriptors(GraphSet.from_dags([*real, path(2, 1, 0)]), 3).shape == (3, 4)


def test_codes_beyond_the_last_column_share_it():
    last = MAX_CODES - 1
    dags = [path(last, last), path(last + 1, last + 700)]
    counts = graph_descriptors(GraphSet.from_dags(dags), 0)
    assert counts.shape == (2, 0)  # no pairs are counted without real graphs


def test_components_keep_the_distances_of_standardized_columns(rng):
    x_BF = rng.normal(3, 5, (40, 6))
    z_BF = (x_BF - x_BF[:30].mean(axis=0)) / x_BF[:30].std(axis=0)
    found = main_components(x_BF, 30)
    assert found.shape == (40, 6)
    for i, j in ((0, 1), (3, 35), (38, 39)):
        assert np.linalg.norm(found[i] - found[j]) == pytest.approx(
            np.linalg.norm(z_BF[i] - z_BF[j])
        )
    spread_C = found[:30].std(axis=0)
    assert (np.diff(spread_C) <= 1e-9).all()


def test_samples_have_no_say_in_scale_and_axes(rng):
    real, samples = rng.normal(size=(20, 4)), rng.normal(size=(5, 4))
    near, far = (main_components(np.concatenate([real, samples * by]), 20) for by in (1, 1000))
    np.testing.assert_allclose(near[:20], far[:20])


def test_there_are_no_more_components_than_graphs_columns_or_the_limit(rng):
    assert main_components(rng.normal(size=(9, 50)), 5).shape == (9, 5)
    assert main_components(rng.normal(size=(60, 50)), 60).shape == (60, COMPONENTS)


def test_nothing_that_differs_is_one_column_of_zeros():
    assert main_components(np.ones((4, 3), dtype=np.float32), 3).tolist() == [[0.0]] * 4
    assert main_components(np.ones((4, 0), dtype=np.float32), 3).tolist() == [[0.0]] * 4
    # Of one real graph nothing differs either, whatever samples are like.
    assert main_components(np.arange(8.0).reshape(4, 2), 1).tolist() == [[0.0]] * 4
    pool = AttackPool([path(0, 1)], [path(0, 1)], [path(0, 1, 1)])
    assert np.isfinite(pool.components).all()


def test_the_halves_part_the_held_out_graphs_and_change_places(rng):
    roles = AttackPool(alike(rng, 2), alike(rng, 7), alike(rng, 3)).roles
    (first, others), (second, rest) = roles.halves(4)
    assert sorted([*first, *others]) == list(range(2, 9))
    assert (first.size, others.size) == (3, 4)
    assert (second.tolist(), rest.tolist()) == (others.tolist(), first.tolist())
    assert roles.halves(4)[0][0].tolist() == first.tolist()
    assert any(roles.halves(seed)[0][0].tolist() != first.tolist() for seed in range(5, 9))


def test_graphs_of_one_program_are_in_one_half(rng):
    held_out = alike(rng, 6)
    pool = AttackPool(alike(rng, 2), [*held_out, *held_out, *held_out[:2]], alike(rng, 9))
    for seed in range(5):
        first, others = (set((half - 2) % 6) for half in pool.roles.halves(seed)[0])
        assert first.isdisjoint(others)
        assert first | others == set(range(6))
        for roles in pool.roles.honest(seed):
            assert set((roles.other_H - 2) % 6).isdisjoint((roles.sample_K - 2) % 6)
    twins = AttackPool(alike(rng, 2), held_out[:1] * 2, alike(rng, 3)).roles
    assert twins.halves(0) == twins.honest(0) == ()


def test_one_held_out_graph_has_no_halves_and_the_density_no_reference(rng):
    pool = AttackPool(alike(rng, 2), alike(rng, 1), alike(rng, 3))
    assert pool.roles.halves(0) == ()
    assert DensityRatio(pool).folds(pool.roles, 0) == []
    [(member_T, other_H)] = NearestSample(pool).folds(pool.roles, 0)
    assert (member_T.size, other_H.size) == (2, 1)


def test_no_graph_scores_above_a_copy_and_more_samples_only_bring_graphs_nearer(rng):
    train = alike(rng, 4)
    pool = AttackPool(train, alike(rng, 4), [*alike(rng, 5), train[2]])
    roles = pool.roles
    [(member_T, other_H)] = NearestSample(pool).folds(roles, 0)
    assert member_T.argmax() == 2
    assert member_T[2] == pytest.approx(0, abs=1e-6)
    assert max(member_T.max(), other_H.max()) <= 1e-6
    few = Roles(roles.member_T, roles.other_H, roles.sample_K[:3])
    [(fewer_T, fewer_H)] = NearestSample(pool).folds(few, 0)
    assert (fewer_T <= member_T).all()
    assert (fewer_H <= other_H).all()


def test_scores_do_not_depend_on_the_order_of_samples(rng):
    pool = AttackPool(alike(rng, 4), alike(rng, 6), alike(rng, 5))
    roles = pool.roles
    turned = Roles(roles.member_T, roles.other_H, roles.sample_K[::-1])
    for attack in (NearestSample(pool), DensityRatio(pool)):
        for one, other in zip(attack.folds(roles, 1), attack.folds(turned, 1), strict=True):
            for here, there in zip(one, other, strict=True):
                np.testing.assert_allclose(here, there)


def test_members_follow_their_graphs_when_the_training_set_is_reordered(rng):
    train, held_out, made = (alike(rng, 5), alike(rng, 4), alike(rng, 6))
    first, second = AttackPool(train, held_out, made), AttackPool(train[::-1], held_out, made)
    for attack in (NearestSample, DensityRatio):
        here, there = (attack(pool).folds(pool.roles, 0)[0] for pool in (first, second))
        np.testing.assert_allclose(here[0], there[0][::-1], atol=1e-6)
        np.testing.assert_allclose(here[1], there[1], atol=1e-6)


def test_a_job_measured_again_is_known_by_its_program_alone(rng):
    train = alike(rng, 4)
    again = [dag.with_columns(dag.x_NA + torch.tensor([0, 90])) for dag in train]
    pool = AttackPool(train, alike(rng, 4), again, measured=(1,))
    [(by_program_T, _)] = NearestProgram(pool).folds(pool.roles, 0)
    [(by_all_T, _)] = NearestSample(pool).folds(pool.roles, 0)
    assert by_program_T == pytest.approx(0, abs=1e-6)
    assert by_all_T.max() < -0.1


def test_a_copy_outweighs_many_graphs_at_the_usual_distance():
    distance_GK = np.array([[0.6, 0.9], [0.3, 0.6], [0.9, 0.9]])
    width = _bandwidth(distance_GK)
    assert width == pytest.approx(0.2)
    copy, usual = np.exp(_log_density(np.array([[0.0], [0.6]]), width))
    assert copy / usual == pytest.approx(np.exp(4.5))
    # Of equal graphs there is no scale; densities stay finite nevertheless.
    assert _bandwidth(np.zeros((3, 3))) == 1e-3
    assert np.isfinite(_log_density(np.array([[1.4, 1.4]]), 1e-3)).all()


def test_a_density_is_a_mean_over_graphs_and_not_a_sum():
    once, twice = np.array([[0.1, 0.7]]), np.array([[0.1, 0.7, 0.1, 0.7]])
    assert _log_density(once, 0.2) == pytest.approx(_log_density(twice, 0.2))


def test_where_samples_lie_among_other_real_graphs_they_say_less(rng):
    """Of two copied members, the one with held-out graphs of its own beside it scores lower."""
    rare, common = alike(rng, 2)
    pool = AttackPool([rare, common], [common] * 6, [rare, common])
    for (of_rare, of_common), other_H in DensityRatio(pool).folds(pool.roles, 0):
        assert of_rare > of_common
        assert of_common == pytest.approx(other_H)


def motif_counts(pool: AttackPool) -> tuple[np.ndarray, np.ndarray]:
    tally = UniqueMotifs(pool).tally(pool.roles, 0)
    tally.add(pool.samples(pool.roles.sample_K))
    return tally.counts()


def test_a_motif_of_two_real_graphs_is_nobodys_and_one_of_a_sample_recurs():
    pool = AttackPool([path(0, 1), path(2, 3)], [path(0, 1), path(4, 5)], [path(2, 3)])
    unique_P, recurring_P = motif_counts(pool)
    # Each node of a path of two is a motif at every radius.
    assert unique_P.tolist() == [0, 2 * RADIUS, 0, 2 * RADIUS, 0]
    assert recurring_P.tolist() == [0, 2 * RADIUS, 0, 0, 0]
    assert UniqueMotifs(pool).fractions(pool.roles) == (1.0, 0.0)


def test_surroundings_count_and_not_the_node_alone():
    pool = AttackPool([path(0, 1, 2)], [path(5, 5, 5)], [path(0, 1, 3)])
    unique_P, recurring_P = motif_counts(pool)
    assert unique_P[0] == 3 * RADIUS
    # Of the first node alone the nearest surroundings, one edge away, are those of the sample.
    assert recurring_P[0] == 1


def test_copies_inside_a_graph_are_one_motif():
    twice = torch.tensor([[0, 2], [1, 3]])
    pair = DAG.build(torch.tensor([[0], [1], [0], [1]]), twice)
    pool = AttackPool([pair], [path(7, 7)], [path(0, 1)])
    unique_P, recurring_P = motif_counts(pool)
    assert (unique_P[0], recurring_P[0]) == (2 * RADIUS, 2 * RADIUS)


def test_one_motif_of_one_is_less_evidence_than_all_of_many():
    pool = AttackPool(
        [path(0), path(*range(10, 19))], [path(30, 31)], [path(0), path(*range(10, 19))]
    )
    [(few, many)], _ = UniqueMotifs(pool).folds(pool.roles, 0)[0][:1], None
    assert few < many < 1
    assert np.isfinite([few, many]).all()


def test_every_held_out_graph_is_other_once_and_none_poses_and_is_other_at_once(rng):
    pool = AttackPool(alike(rng, 5), alike(rng, 9), alike(rng, 7))
    first, second = pool.roles.honest(3)
    assert sorted([*first.other_H, *second.other_H]) == list(range(5, 14))
    for roles in (first, second):
        assert roles.member_T.tolist() == list(range(5))
        assert not set(roles.sample_K) & set(roles.other_H)
        assert set(roles.sample_K) <= set(range(5, 14))


def test_no_more_graphs_pose_than_there_are_samples(rng):
    pool = AttackPool(alike(rng, 2), alike(rng, 12), alike(rng, 3))
    assert [roles.sample_K.size for roles in pool.roles.honest(0)] == [3, 3]
    assert AttackPool(alike(rng, 2), alike(rng, 1), alike(rng, 3)).roles.honest(0) == ()


def test_distances_are_those_of_the_graphs_asked_for(rng):
    train, held_out = alike(rng, 3), alike(rng, 4)
    pool = AttackPool(train, held_out, [train[1], held_out[2]])
    found = pool.distances(pool.roles.real_G, pool.roles.sample_K)
    assert found.shape == (7, 2)
    assert found[1, 0] < 1e-6
    assert found[3 + 2, 1] < 1e-6
    assert pool.distances(np.array([1]), np.array([5])).tolist() == [[found[1, 1]]]


def test_a_sample_with_a_cycle_is_looked_at_like_any_other(rng):
    ring = DAG.build(torch.zeros((2, 2), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    pool = AttackPool(alike(rng, 3), alike(rng, 3), [ring, *alike(rng, 2)])
    assert pool.graphs.layers_B[6] == 1
    assert pool.components.shape[0] == 9
    assert np.isfinite(pool.components).all()


def job(code: int, **conditions: float | str) -> DAG:
    """Return a path of six nodes, all of one code."""
    edges = torch.stack([torch.arange(5), torch.arange(1, 6)])
    return DAG.build(torch.full((6, 1), code), edges).with_conditions(conditions)


def traits(real: list[DAG], made: list[DAG], seed: int = 0) -> dict[str, Trait]:
    half = len(real) // 2
    pool = AttackPool(real[:half], real[half:], made)
    return {trait.name: trait for trait in traits_of(pool, seed)}


def test_a_condition_needs_two_values_and_graphs_enough_of_them():
    two = [job(i % 2, family=f"f{i % 2}", tp=float(i % 2), same="x") for i in range(12)]
    assert list(traits(two, two[:1])) == ["family", "tp", "depth", "width"]
    each_its_own = [job(i % 2, name=f"job{i}") for i in range(12)]
    assert list(traits(each_its_own, two[:1])) == ["depth", "width"]
    three_of_eleven = [job(i % 3, family=f"f{i % 3}") for i in range(11)]
    assert 11 // GRAPHS_PER_VALUE == 2
    assert "family" not in traits(three_of_eleven, two[:1])
    assert "family" in traits([*three_of_eleven, job(2, family="f2")], two[:1])


@pytest.mark.parametrize("label", [0.5, float("nan"), float("inf")])
def test_numbers_that_are_not_whole_are_no_trait(label):
    real = [job(i % 2, label=label if i % 2 else 1.0) for i in range(12)]
    assert "label" not in traits(real, real[:1])


def test_the_size_of_a_graph_is_no_condition_to_be_read():
    real = [job(i % 2, num_nodes=6.0 + i % 2, num_layers=6.0 + i % 2) for i in range(12)]
    assert list(traits(real, real[:1])) == ["depth", "width"]


def test_one_in_ten_real_graphs_may_be_silent_and_no_more():
    real = [job(i % 2, family=f"f{i % 2}") for i in range(20)]
    silent = job(0)
    some = traits([*real[:18], silent, silent], [job(0)])
    assert some["family"].code_P[18:20].tolist() == [-1, -1]
    assert "family" not in traits([*real[:17], silent, silent, silent], [job(0)])


def test_silence_is_not_the_word_none():
    real = [job(i % 2, family="None" if i % 2 else "gpt") for i in range(19)]
    found = traits([*real, job(0)], [job(0), job(1, family="None")])["family"]
    assert found.stated_P[19] == -1
    assert found.stated_P[20] == -1
    assert found.stated_P[21] == found.stated_P[1] >= 0


def test_what_is_read_of_a_sample_is_what_it_shows_and_not_what_it_states():
    real = [job(i % 2, family=f"f{i % 2}") for i in range(40)]
    liar, foreign = job(1, family="f0"), job(0, family="elsewhere")
    found = traits(real, [liar, foreign])["family"]
    assert found.code_P[40:].tolist() == [1, 0]
    assert found.stated_P[40:].tolist() == [0, -1]
    assert found.code_P[:40].tolist() == found.stated_P[:40].tolist() == [0, 1] * 20


def test_values_beyond_the_limit_are_too_many():
    many = [job(0, family=f"f{i % (MAX_VALUES + 1)}") for i in range(5 * (MAX_VALUES + 1))]
    assert "family" not in traits(many, [job(0)])


def test_what_is_seen_is_the_same_whatever_the_seed_and_the_order_of_nodes():
    rng = np.random.default_rng(0)
    dags = [random_dag(rng, rng.integers(1, 5, 4).tolist(), [4, 6]) for _ in range(9)]
    mixed = [dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes))) for dag in dags]
    for name in ("depth", "width", "size"):
        first, second = (
            {t.name: t for t in traits_of(AttackPool(d[:3], d[3:6], d[6:], numeric=(1,)), seed)}[
                name
            ]
            for d, seed in ((dags, 0), (mixed, 1))
        )
        assert first.code_P.tolist() == second.code_P.tolist()
        assert set(first.stated_P.tolist()) == {-1}


def test_size_is_one_code_for_each_combination_of_largest_numbers():
    edge = torch.tensor([[0], [1]])
    rows = ([[0, 3, 1], [0, 1, 5]], [[0, 3, 5], [0, 0, 0]], [[0, 3, 4], [0, 0, 0]])
    dags = [DAG.build(torch.tensor(row), edge) for row in rows]
    pool = AttackPool(dags[:1], dags[1:2], dags[2:], numeric=(1, 2))
    size = traits_of(pool, 0)[-1].code_P
    assert size[0] == size[1] != size[2]
