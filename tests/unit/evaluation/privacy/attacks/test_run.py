"""Every attack on a memorizer, on real graphs that pose as samples, and on the honest holdout."""

import numpy as np
import pytest
import torch

from layerdag.evaluation.privacy import Attack, Verdict
from layerdag.evaluation.privacy.attacks import (
    Fold,
    Pool,
    all_attacks,
    attacked,
    cross_fitted_attacks,
)
from layerdag.graph import DAG, random_dag

NAMES = ("nearest_sample", "density_ratio", "calibrated_classifier", "unique_motifs",
         "reconstruction")  # fmt: skip


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, [2, 3, 3, 3], [5, 3]) for _ in range(count)]


def edited(dag: DAG, rng: np.random.Generator) -> DAG:
    """Return the graph with another first attribute at one node."""
    x_NA = dag.x_NA.clone()
    x_NA[int(rng.integers(dag.num_nodes)), 0] = int(rng.integers(5))
    return dag.with_columns(x_NA)


def found(train: list[DAG], held_out: list[DAG], made: list[DAG]) -> dict[str, Attack]:
    pool = Pool(train, held_out, made)
    return {attack.name: attack for attack in attacked(all_attacks(pool), pool.roles, 0)}


@pytest.fixture(scope="module")
def memorized() -> dict[str, Attack]:
    rng = np.random.default_rng(0)
    train = graphs(rng, 60)
    return found(train, graphs(rng, 60), [edited(dag, rng) for dag in train])


@pytest.fixture(scope="module")
def honest() -> list[dict[str, Attack]]:
    everything = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        everything.append(found(graphs(rng, 80), graphs(rng, 60), graphs(rng, 30)))
    return everything


def test_copies_are_caught_by_every_attack() -> None:
    rng = np.random.default_rng(7)
    train = graphs(rng, 40)
    areas = {name: attack.auc for name, attack in found(train, graphs(rng, 40), train).items()}
    assert set(areas) == {*NAMES}
    assert min(areas.values()) >= 0.95


@pytest.mark.parametrize("name", NAMES)
def test_a_memorizer_is_caught(memorized: dict[str, Attack], name: str) -> None:
    assert memorized[name].auc > (0.7 if name == "calibrated_classifier" else 0.9)
    assert memorized[name].leaks
    assert memorized[name].interval.high >= memorized[name].auc


@pytest.mark.parametrize("name", NAMES)
def test_graphs_that_nobody_made_from_the_training_graphs_are_not_accused(
    honest: list[dict[str, Attack]], name: str
) -> None:
    areas = [attacks[name].auc for attacks in honest]
    assert abs(np.mean(areas) - 0.5) < 0.08  # 2.8 standard errors of three draws
    assert sum(attacks[name].leaks for attacks in honest) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_the_honest_holdout_of_a_memorizer_is_no_memorizer(
    memorized: dict[str, Attack], name: str
) -> None:
    beside = memorized[name].holdout
    assert beside is not None
    assert beside.verdict is not Verdict.LEAKS
    assert 0.35 < beside.auc < 0.65
    assert beside.description == "30 held-out graphs pose as samples"
    assert (beside.members, beside.non_members) == (60, 60)
    assert beside.holdout is None


def test_fractions_are_told_where_a_score_is_one(memorized: dict[str, Attack]) -> None:
    with_fractions = {name for name, attack in memorized.items() if attack.fractions is not None}
    assert with_fractions == {"unique_motifs", "reconstruction"}
    for name in with_fractions:
        of_members, of_others = memorized[name].fractions
        assert 1 >= of_members > of_others >= 0


def test_attacks_do_not_depend_on_the_order_of_nodes() -> None:
    rng = np.random.default_rng(3)
    train, held_out, made = graphs(rng, 10), graphs(rng, 10), graphs(rng, 10)
    mixed = [g.permuted(torch.from_numpy(rng.permutation(g.num_nodes))) for g in made]
    first, second = found(train, held_out, made), found(train, held_out, mixed)
    assert [a.auc for a in first.values()] == pytest.approx([a.auc for a in second.values()])


def test_too_few_graphs_for_a_classifier_leave_the_other_attacks() -> None:
    rng = np.random.default_rng(4)
    names = set(found(graphs(rng, 5), graphs(rng, 3), graphs(rng, 6)))
    assert names == {*NAMES} - {"calibrated_classifier"}


def cross_fitted(
    rng: np.random.Generator, count: int, folds: int, *, copies: bool
) -> dict[str, Attack]:
    """Return the attacks on generators of folds, which copy graphs or draw others like them."""
    real, fold_G = graphs(rng, count), rng.permutation(count) % folds
    parts = []
    for fold in range(folds):
        member, held = np.flatnonzero(fold_G != fold), np.flatnonzero(fold_G == fold)
        train = [real[i] for i in member]
        made = [edited(dag, rng) for dag in train] if copies else graphs(rng, len(train))
        pool = Pool(train, [real[i] for i in held], made)
        parts.append(Fold(pool, np.concatenate([member, held])))
    return {each.name: each for each in cross_fitted_attacks(parts, np.arange(count), 0)}


def test_memorizers_of_folds_are_caught_with_every_graph_on_both_sides() -> None:
    attacks = cross_fitted(np.random.default_rng(1), 40, 4, copies=True)
    assert set(attacks) == {*NAMES}
    for name, attack in attacks.items():
        assert (attack.members, attack.non_members) == (40, 40), name
        needs_reference = name in ("density_ratio", "calibrated_classifier")
        assert (attack.holdout is None) == needs_reference, name  # of ten, five pose as samples
    assert attacks["nearest_sample"].auc > 0.9
    assert attacks["nearest_sample"].leaks
    assert not attacks["nearest_sample"].holdout.leaks


def test_generators_of_folds_that_copy_nothing_are_not_accused_and_intervals_are_narrower() -> None:
    rng = np.random.default_rng(2)
    attacks = cross_fitted(rng, 40, 4, copies=False)
    once = found(graphs(rng, 28), graphs(rng, 12), graphs(rng, 28))
    for name, attack in attacks.items():
        assert not attack.leaks, name
        width, before = (each.interval.high - each.interval.low for each in (attack, once[name]))
        assert width < 0.8 * before, name


def test_attacks_that_compare_are_left_out_where_a_fold_has_too_few() -> None:
    attacks = cross_fitted(np.random.default_rng(3), 20, 4, copies=True)
    assert set(attacks) == {"nearest_sample", "unique_motifs", "reconstruction"}
