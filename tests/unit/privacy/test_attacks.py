"""Reconstruction by alignment, against the textbook table of common subsequences."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import torch
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.privacy import attacks as _alignment
from layerdag.privacy.attacks import (
    SHARING,
    WIDER,
    Fold,
    Inference,
    Reconstruction,
    all_attacks,
    attack_outcomes,
    common_length,
    cross_fitted_attacks,
    identified_traits,
    inferred_properties,
    significant_after_correction,
)
from layerdag.privacy.membership import AttackResult
from layerdag.privacy.membership_attacks import AttackPool, Roles, traits_of
from layerdag.statistics import Interval, Verdict


def by_table(first: list[int], second: list[int]) -> int:
    table = np.zeros((len(first) + 1, len(second) + 1), dtype=int)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            table[i + 1, j + 1] = (
                table[i, j] + 1 if a == b else max(table[i, j + 1], table[i + 1, j])
            )
    return int(table[-1, -1])


def test_lengths_are_those_of_the_table(rng):
    for _ in range(60):
        words = [rng.integers(0, 4, rng.integers(0, 70)).tolist() for _ in range(2)]
        assert common_length(*words) == by_table(*words)
    assert common_length([], [1]) == common_length([1], []) == 0
    assert common_length([1, 2, 3] * 50, [1, 2, 3] * 50) == 150


def path(*codes: int) -> DAG:
    size = len(codes)
    edges = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
    return DAG.build(torch.tensor(codes)[:, None], edges)


def test_the_fraction_is_of_the_larger_graph():
    pool = AttackPool([path(0, 1, 2, 3)], [path(7, 7)], [path(0, 1, 2, 3, 4, 4, 4, 4), path(0, 2)])
    attack = Reconstruction(pool)
    assert attack.best_fractions(np.array([0, 1]), np.array([2])).tolist() == [0.5, 0.0]
    assert attack.best_fractions(np.array([0]), np.array([2, 3])).tolist() == [0.5]
    assert attack.fractions(pool.roles) == (0.5, 0.0)


def test_order_along_the_layers_counts():
    pool = AttackPool([path(0, 1, 2)], [path(7, 7)], [path(2, 1, 0)])
    assert Reconstruction(pool).fractions(pool.roles)[0] == pytest.approx(1 / 3)


def test_the_best_sample_is_found_without_aligning_with_every_one(rng, monkeypatch):
    dags = [random_dag(rng, [2, 3, 3], [4]) for _ in range(30)]
    pool = AttackPool(dags[:5], dags[5:10], dags[10:])
    few = Reconstruction(pool).best_fractions(pool.roles.real_G, pool.roles.sample_K)
    monkeypatch.setattr(_alignment, "MAX_ALIGNED", 20)
    monkeypatch.setattr(_alignment, "CHUNK", 3)
    every = Reconstruction(pool)
    assert every.best_fractions(pool.roles.real_G, pool.roles.sample_K) == pytest.approx(
        few, abs=0.13
    )
    slow = [
        max(every._aligned(real, sample) for sample in pool.roles.sample_K.tolist())
        for real in pool.roles.real_G.tolist()
    ]
    assert every.best_fractions(pool.roles.real_G, pool.roles.sample_K).tolist() == slow


def job(rng: np.random.Generator) -> DAG:
    """Return a graph whose family can be seen from its first codes, and its size from others."""
    family = int(rng.integers(3))
    dag = random_dag(rng, rng.integers(1, 5, rng.integers(3, 9)).tolist(), [2, 12])
    x_NA = dag.x_NA.clone()
    x_NA[:, 0] += 2 * family
    return dag.with_columns(x_NA).with_conditions({"family": f"f{family}", "label": 1.5})


def jobs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [job(rng) for _ in range(count)]


def read(pool: AttackPool) -> dict[str, Inference]:
    found = identified_traits(pool, traits_of(pool, 0), pool.roles, 0)
    return {each.name: each for each in found}


@pytest.fixture(scope="module")
def real() -> tuple[list[DAG], list[DAG], list[DAG]]:
    rng = np.random.default_rng(0)
    return jobs(rng, 100), jobs(rng, 100), jobs(rng, 100)


def test_traits_are_conditions_that_are_words_and_what_can_be_seen(real):
    train, held_out, made = real
    asked = [dag.with_conditions({}) for dag in made]
    traits = {t.name: t for t in traits_of(AttackPool(train, held_out, asked, numeric=(1,)), 0)}
    assert list(traits) == ["family", "depth", "width", "size"]
    truth = [int(dag.conditions["family"][1:]) for dag in made]
    assert (traits["family"].code_P[200:] == truth).mean() > 0.95  # read, for it is not stated
    assert set(traits["family"].stated_P[200:]) == {-1}
    assert traits["depth"].code_P.tolist() == [dag.num_layers for dag in (*train, *held_out, *made)]


def test_copies_betray_the_models_of_training_jobs_and_real_jobs_do_not(real):
    train, held_out, made = real
    copied = read(AttackPool(train, held_out, train, numeric=(1,)))
    for name in ("model:depth", "model:width", "model:size"):
        assert copied[name].of_training == 1.0
        assert copied[name].advantage > 0.2
        assert copied[name].leaks
        assert copied[name].in_words() == "says more of training graphs"
    honest = read(AttackPool(train, held_out, made, numeric=(1,)))
    for each in honest.values():
        assert not each.leaks
        assert each.interval.low <= 0 <= each.interval.high


def test_what_was_asked_for_is_chance(real):
    train, held_out, made = real
    asked = read(AttackPool(train, held_out, made))["model:family"]
    silent = read(AttackPool(train, held_out, [dag.with_conditions({}) for dag in made]))[
        "model:family"
    ]
    assert asked.by_chance > 0.95
    assert 0.2 < silent.by_chance < 0.5


def test_what_never_happens_among_few_is_not_called_chance():
    rng = np.random.default_rng(1)
    pool = AttackPool(jobs(rng, 8), jobs(rng, 8), jobs(rng, 8))
    verdicts = {each.verdict for each in read(pool).values()}
    assert Verdict.CHANCE not in verdicts


def test_the_properties_of_a_set_are_followed_all_the_way_by_itself_and_not_by_others(real):
    train, held_out, made = real
    slopes = {}
    for name, samples in (("copied", train), ("honest", made), ("reversed", held_out)):
        pool = AttackPool(train, held_out, samples, numeric=(1,))
        found = inferred_properties(pool, traits_of(pool, 0), pool.roles, 0)
        assert found is not None
        assert found.interval.low <= found.advantage <= found.interval.high
        slopes[name] = found
    assert slopes["copied"].advantage == pytest.approx(1.0, abs=0.1)
    assert slopes["copied"].leaks
    assert slopes["honest"].interval.low < 0 < slopes["honest"].interval.high
    assert slopes["reversed"].advantage == pytest.approx(-1.0, abs=0.1)
    assert slopes["copied"].of_training > slopes["copied"].of_held_out > slopes["copied"].by_chance


def test_no_properties_of_too_few_graphs():
    dag = DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0], [1]]))
    for train, held_out in (([dag], [dag, dag]), ([dag, dag], [dag]), ([dag] * 4, [dag] * 4)):
        pool = AttackPool(train, held_out, [dag])
        assert inferred_properties(pool, traits_of(pool, 0), pool.roles, 0) is None


def outcome(value: float, half: float) -> Inference:
    roles = Roles(np.arange(30), np.arange(20), np.arange(9))
    return Inference.from_half_width(
        "properties", "it", (0.9, 0.8, 0.5), value, half, margin=0.5, roles=roles
    )


@pytest.mark.parametrize(
    ("value", "half", "verdict"),
    [
        (0.6, 0.5, Verdict.LEAKS),
        (0.1, 0.3, Verdict.CHANCE),
        (0.1, 0.6, Verdict.TOO_FEW),
        (-0.9, 0.5, Verdict.REVERSED),
    ],
)
def test_verdicts_follow_from_interval_and_margin(value, half, verdict):
    found = outcome(value, half)
    assert found.verdict is verdict
    assert (found.need is None) == (verdict is not Verdict.TOO_FEW)
    assert found.interval == Interval(value - half, value + half)


def test_among_several_attacks_more_evidence_is_asked_for():
    assert outcome(0.6, 0.5).leaks
    assert not significant_after_correction(outcome(0.6, 0.5))
    assert significant_after_correction(outcome(0.7, 0.5))
    assert not significant_after_correction(outcome(0.1, 0.6))


NAMES = ("nearest_sample", "density_ratio", "calibrated_classifier", "unique_motifs",
         "reconstruction")  # fmt: skip


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, [2, 3, 3, 3], [5, 3]) for _ in range(count)]


def edited(dag: DAG, rng: np.random.Generator) -> DAG:
    """Return the graph with another first attribute at one node."""
    x_NA = dag.x_NA.clone()
    x_NA[int(rng.integers(dag.num_nodes)), 0] = int(rng.integers(5))
    return dag.with_columns(x_NA)


def found(train: list[DAG], held_out: list[DAG], made: list[DAG]) -> dict[str, AttackResult]:
    pool = AttackPool(train, held_out, made)
    return {attack.name: attack for attack in attack_outcomes(all_attacks(pool), pool.roles, 0)}


@pytest.fixture(scope="module")
def memorized() -> dict[str, AttackResult]:
    rng = np.random.default_rng(0)
    train = graphs(rng, 60)
    return found(train, graphs(rng, 60), [edited(dag, rng) for dag in train])


@pytest.fixture(scope="module")
def honest() -> list[dict[str, AttackResult]]:
    everything = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        everything.append(found(graphs(rng, 80), graphs(rng, 60), graphs(rng, 30)))
    return everything


@pytest.mark.parametrize("name", NAMES)
def test_a_memorizer_is_caught(memorized, name):
    assert memorized[name].auc > (0.7 if name == "calibrated_classifier" else 0.9)
    assert memorized[name].leaks
    assert memorized[name].interval.high >= memorized[name].auc


@pytest.mark.parametrize("name", NAMES)
def test_graphs_that_nobody_made_from_the_training_graphs_are_not_accused(honest, name):
    areas = [attacks[name].auc for attacks in honest]
    assert abs(np.mean(areas) - 0.5) < 0.08  # 2.8 standard errors of three draws
    assert sum(attacks[name].leaks for attacks in honest) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_the_honest_holdout_of_a_memorizer_is_no_memorizer(memorized, name):
    beside = memorized[name].holdout
    assert beside is not None
    assert beside.verdict is not Verdict.LEAKS
    assert 0.35 < beside.auc < 0.65
    assert beside.description == "30 held-out graphs pose as samples"
    assert (beside.members, beside.non_members) == (60, 60)
    assert beside.holdout is None


def test_fractions_are_told_where_a_score_is_one(memorized):
    with_fractions = {name for name, attack in memorized.items() if attack.fractions is not None}
    assert with_fractions == {"unique_motifs", "reconstruction"}
    for name in with_fractions:
        of_members, of_others = memorized[name].fractions
        assert 1 >= of_members > of_others >= 0


def test_attacks_do_not_depend_on_the_order_of_nodes():
    rng = np.random.default_rng(3)
    train, held_out, made = graphs(rng, 10), graphs(rng, 10), graphs(rng, 10)
    mixed = [g.permuted(torch.from_numpy(rng.permutation(g.num_nodes))) for g in made]
    first, second = found(train, held_out, made), found(train, held_out, mixed)
    assert [a.auc for a in first.values()] == pytest.approx([a.auc for a in second.values()])


def test_too_few_graphs_for_a_classifier_leave_the_other_attacks():
    rng = np.random.default_rng(4)
    names = set(found(graphs(rng, 5), graphs(rng, 3), graphs(rng, 6)))
    assert names == {*NAMES} - {"calibrated_classifier"}


def cross_fitted(
    rng: np.random.Generator, count: int, folds: int, *, copies: bool
) -> dict[str, AttackResult]:
    """Return the attacks on generators of folds, which copy graphs or draw others like them."""
    real, fold_G = graphs(rng, count), rng.permutation(count) % folds
    parts = []
    for fold in range(folds):
        member, held = np.flatnonzero(fold_G != fold), np.flatnonzero(fold_G == fold)
        train = [real[i] for i in member]
        made = [edited(dag, rng) for dag in train] if copies else graphs(rng, len(train))
        pool = AttackPool(train, [real[i] for i in held], made)
        parts.append(Fold(pool, np.concatenate([member, held])))
    return {each.name: each for each in cross_fitted_attacks(parts, np.arange(count), 0)}


def test_memorizers_of_folds_are_caught_with_every_graph_on_both_sides():
    attacks = cross_fitted(np.random.default_rng(1), 40, 4, copies=True)
    assert set(attacks) == {*NAMES}
    for name, attack in attacks.items():
        assert (attack.members, attack.non_members) == (40, 40), name
        needs_reference = name in ("density_ratio", "calibrated_classifier")
        assert (attack.holdout is None) == needs_reference, name  # of ten, five pose as samples
    assert attacks["nearest_sample"].auc > 0.9
    assert attacks["nearest_sample"].leaks
    assert not attacks["nearest_sample"].holdout.leaks


def test_generators_of_folds_that_copy_nothing_are_not_accused_and_intervals_are_narrower():
    rng = np.random.default_rng(2)
    attacks = cross_fitted(rng, 40, 4, copies=False)
    once = found(graphs(rng, 28), graphs(rng, 12), graphs(rng, 28))
    for name, attack in attacks.items():
        assert not attack.leaks, name
        width, before = (each.interval.high - each.interval.low for each in (attack, once[name]))
        assert width < 0.8 * before, name


def test_attacks_that_compare_are_left_out_where_a_fold_has_too_few():
    attacks = cross_fitted(np.random.default_rng(3), 20, 4, copies=True)
    assert set(attacks) == {"nearest_sample", "unique_motifs", "reconstruction"}


def attack(name: str, auc: float, low: float) -> AttackResult:
    interval = Interval(low, 2 * auc - low)
    return AttackResult(name, "", auc, interval, 0.0, 50, 50, Verdict.from_interval(interval), None)


def test_the_wider_interval_is_that_of_five_tests_at_once():
    assert len(SHARING) == 5
    error = 1 - NormalDist().cdf(WIDER * NormalDist().inv_cdf(0.975))
    assert error == pytest.approx(0.025 / 5, rel=1e-3)


@pytest.mark.parametrize("name", ["nearest_sample", "density_ratio", "likelihood"])
def test_attacks_by_distance_keep_their_own_interval(name):
    assert significant_after_correction(attack(name, 0.6, 0.501))
    assert not significant_after_correction(attack(name, 0.6, 0.5))


@pytest.mark.parametrize("name", ["calibrated_classifier", "unique_motifs", "reconstruction"])
def test_attacks_that_share_their_error_need_an_interval_further_from_chance(name):
    edge = 0.6 - 0.1 / WIDER
    assert significant_after_correction(attack(name, 0.6, edge + 1e-6))
    found = attack(name, 0.6, edge - 1e-6)
    assert found.leaks
    assert not significant_after_correction(found)


def test_what_prefers_held_out_graphs_never_succeeds():
    found = attack("reconstruction", 0.1, 0.05)
    assert found.verdict is Verdict.REVERSED
    assert not significant_after_correction(found)
    assert not significant_after_correction(replace(found, name="nearest_sample"))
