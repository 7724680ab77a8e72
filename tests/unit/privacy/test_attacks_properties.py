"""How far samples follow the training set: laws of the slope, and of the classes behind it."""

import numpy as np
import pytest
from random_graphs import random_dag

from layerdag.privacy import attacks as _properties
from layerdag.privacy.attacks import CLASSES, CLIP, _clipped, _values, inferred_properties
from layerdag.privacy.membership_attacks import AttackPool, Roles, Trait


class Shown(AttackPool):
    """A pool of which nothing but the components is looked at."""

    def __init__(self, components: np.ndarray) -> None:
        self.components = components


@pytest.fixture(autouse=True)
def _few_choices(monkeypatch) -> None:
    monkeypatch.setattr(_properties, "PROPERTY_RELABELINGS", 200)


def roles(train: int, held_out: int, made: int) -> Roles:
    return Roles(*np.split(np.arange(train + held_out + made), [train, train + held_out]))


def trait(code_P: np.ndarray) -> Trait:
    return Trait("family", code_P, np.full(code_P.size, -1))


def slope(code_P: np.ndarray, parts: Roles, seed: int = 0) -> float:
    found = inferred_properties(Shown(np.zeros((code_P.size, 1))), [trait(code_P)], parts, seed)
    assert found is not None
    return found.advantage


def test_few_values_are_their_own_classes_and_foreign_ones_have_none():
    code_P = np.array([4, 4, 7, 9, 7, 5])
    found = _values(code_P, np.arange(4))
    assert found.tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0]]


def test_many_values_fall_into_classes_of_about_equal_numbers(rng):
    code_P = np.concatenate([rng.permutation(400), [-50, 10_000]])
    found = _values(code_P, np.arange(400))
    assert found.shape == (402, CLASSES)
    assert (found.sum(axis=1) == 1).all()
    assert set(found[:400].sum(axis=0)) == {50.0}
    assert (found[400].argmax(), found[401].argmax()) == (0, CLASSES - 1)


def test_one_value_that_nearly_all_have_leaves_fewer_classes():
    code_P = np.concatenate([np.zeros(200, dtype=int), np.arange(1, 12)])
    found = _values(code_P, np.arange(211))
    assert (found.sum(axis=1) == 1).all()
    assert found.sum(axis=0).tolist() == [200.0, 11.0]


def test_samples_far_off_count_no_more_than_the_limit(rng):
    x_PC = np.concatenate([rng.normal(5, 2, (50, 1)), [[1e9], [-1e9], [5.0]]])
    found = _clipped(np.hstack([x_PC, np.full((53, 1), 3.0)]), np.arange(50))
    assert found[50:52, 0].tolist() == [CLIP, -CLIP]
    assert abs(found[52, 0]) < 0.5
    assert (found[:, 1] == 0).all()


def test_mixing_members_and_others_moves_the_slope_in_a_straight_line():
    """Samples with the frequencies of the training set give 1, of all real graphs 0."""
    train, held_out = np.repeat([0, 1], [30, 10]), np.repeat([0, 1], [10, 30])
    for ones, expected in ((10, 1.0), (20, 0.0), (30, -1.0), (15, 0.5), (0, 2.0)):
        made = np.repeat([0, 1], [40 - ones, ones])
        code_P = np.concatenate([train, held_out, made])
        assert slope(code_P, roles(40, 40, 40)) == pytest.approx(expected)


def test_names_of_values_and_the_order_of_graphs_do_not_matter(rng):
    parts = roles(40, 30, 50)
    code_P = rng.integers(0, 5, 120)
    renamed_P = np.array([30, 2, 11, 7, 19])[code_P]
    blocks = np.split(code_P, [40, 70])
    mixed_P = np.concatenate([rng.permutation(block) for block in blocks])
    assert slope(renamed_P, parts) == pytest.approx(slope(code_P, parts))
    assert slope(mixed_P, parts) == pytest.approx(slope(code_P, parts))


def test_the_seed_moves_the_interval_and_not_the_value(rng):
    pool, parts = Shown(rng.normal(size=(90, 3))), roles(30, 30, 30)
    family = [trait(rng.integers(0, 3, 90))]
    first, again, other = (inferred_properties(pool, family, parts, seed) for seed in (0, 0, 1))
    assert first == again
    assert first.advantage == other.advantage
    assert first.interval != other.interval
    assert first.of_training == other.of_training <= 1


def test_sets_that_do_not_differ_have_nothing_to_be_followed():
    alike = np.tile(np.repeat([0, 1], 5), 3)
    shown = Shown(np.zeros((30, 1)))
    assert inferred_properties(shown, [trait(alike)], roles(10, 10, 10), 0) is None
    assert inferred_properties(shown, [trait(alike)], roles(10, 20, 0), 0) is None


def test_what_no_sample_shows_is_still_a_figure():
    """Samples of a value that no real graph has: an accuracy between 0 and 1, a finite slope."""
    dag = random_dag(np.random.default_rng(1), [1, 2], [3])
    pool = AttackPool([dag] * 6, [dag] * 6, [dag] * 4)
    code_P = np.concatenate([[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1], np.full(4, 8)])
    found = inferred_properties(pool, [trait(code_P)], pool.roles, 0)
    assert found is not None
    assert np.isfinite(found.advantage)
    assert 0 <= found.of_training <= 1
    assert found.by_chance == pytest.approx(1 - 1 / 6)
