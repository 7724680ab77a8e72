"""The classifier of samples: when it is asked, and that it never scores what it has learned."""

import numpy as np
import pytest
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.privacy import membership_attacks as _classifier
from layerdag.privacy.membership_attacks import MIN_GRAPHS, AttackPool, CalibratedClassifier


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch) -> None:
    monkeypatch.setattr(_classifier, "TREES", 12)


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, rng.integers(1, 5, 4).tolist(), [5, 3]) for _ in range(count)]


@pytest.mark.parametrize(
    ("held_out", "made", "folds"),
    [(2 * MIN_GRAPHS, MIN_GRAPHS, 2), (2 * MIN_GRAPHS - 1, 9, 0), (20, MIN_GRAPHS - 1, 0)],
)
def test_it_takes_four_graphs_on_either_side(rng, held_out, made, folds):
    pool = AttackPool(graphs(rng, 1), graphs(rng, held_out), graphs(rng, made))
    assert len(CalibratedClassifier(pool).folds(pool.roles, 0)) == folds


def test_scores_are_chances_that_a_seed_repeats_and_another_one_changes(rng):
    pool = AttackPool(graphs(rng, 6), graphs(rng, 12), graphs(rng, 9))
    attack = CalibratedClassifier(pool)
    first, again, other = (attack.folds(pool.roles, seed) for seed in (0, 0, 1))
    for (member_T, other_H), (member_again_T, other_again_H) in zip(first, again, strict=True):
        assert member_T.tolist() == member_again_T.tolist()
        assert other_H.tolist() == other_again_H.tolist()
        assert min(member_T.min(), other_H.min()) >= 0
        assert max(member_T.max(), other_H.max()) <= 1
    assert first[0][0].tolist() != other[0][0].tolist()


def test_held_out_graphs_are_scored_by_trees_that_have_not_seen_them(rng, monkeypatch):
    pool = AttackPool(graphs(rng, 5), graphs(rng, 11), graphs(rng, 8))
    row_of = {row.tobytes(): place for place, row in enumerate(pool.components)}
    assert len(row_of) == 24
    learned, scored, weights = [], [], []

    class Spy:
        def fit(self, x_BC: np.ndarray, is_sample_B: np.ndarray, weight_B: np.ndarray) -> "Spy":
            learned.append([row_of[row.tobytes()] for row in x_BC])
            weights.append([weight_B[is_sample_B].sum(), weight_B[~is_sample_B].sum()])
            scored.append([])
            return self

        def predict_proba(self, x_BC: np.ndarray) -> np.ndarray:
            scored[-1] += [row_of[row.tobytes()] for row in x_BC]
            return np.full((len(x_BC), 2), 0.5)

    monkeypatch.setattr("sklearn.ensemble.ExtraTreesClassifier", lambda *_, **__: Spy())
    CalibratedClassifier(pool).folds(pool.roles, 0)
    for known, asked, (of_samples, of_others) in zip(learned, scored, weights, strict=True):
        assert not set(known) & set(asked)
        assert set(known) >= set(pool.roles.sample_K.tolist())
        assert of_samples == pytest.approx(of_others)
    assert sorted(row for asked in scored for row in asked if row >= 5) == list(range(5, 16))


def test_graphs_that_cannot_be_told_apart_score_alike():
    dag = random_dag(np.random.default_rng(0), [2, 2], [3])
    pool = AttackPool([dag] * 3, [dag] * 8, [dag] * 6)
    for member_T, other_H in CalibratedClassifier(pool).folds(pool.roles, 0):
        assert np.ptp(np.concatenate([member_T, other_H])) < 1e-9
        assert member_T == pytest.approx(0.5)
