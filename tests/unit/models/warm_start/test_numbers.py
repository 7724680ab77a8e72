"""The same number enters two models as two values; one is expressed by the other."""

import math

import numpy as np
import pytest
import torch
from warm_starts import data_of, jobs

from layerdag.datasets.schema import GraphSchema, NumericCondition
from layerdag.models.warm_start._numbers import (
    affine,
    feature_source,
    numeric_pair,
    radial,
    same_scale,
    value_and_one,
)
from layerdag.models.warm_start._sources import BY_VALUE

CENTERS = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])


def number(mean: float, std: float, *, log: bool = False, name: str = "label") -> NumericCondition:
    return NumericCondition(name, float(mean), float(std), log, (0.5, 2.0))


@pytest.fixture(scope="module")
def schema() -> GraphSchema:
    return data_of(jobs()).schema


def test_conditions_of_the_same_name_are_a_pair_wherever_they_stand(schema: GraphSchema):
    first, second = number(0, 1, name="a"), number(3, 1, name="b")
    here = _with_numbers(schema, first, second)
    there = _with_numbers(schema, number(9, 1, name="b"))
    assert numeric_pair(1, here, there) == (second, there.numeric_conditions[0])
    assert numeric_pair(0, here, there) is None


def _with_numbers(schema: GraphSchema, *numbers: NumericCondition) -> GraphSchema:
    return GraphSchema(schema.kind, schema.attributes, schema.edge_types, numbers)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (number(1.0, 2.0), True),
        (number(1.0, 2.0, name="duration"), True),
        (number(1.1, 2.0), False),
        (number(1.0, 2.1), False),
        (number(1.0, 2.0, log=True), False),
    ],
)
def test_a_scale_is_mean_spread_and_whether_it_is_a_logarithm(other: NumericCondition, same: bool):
    assert same_scale(number(1.0, 2.0), other) is same


@pytest.mark.parametrize("log", [False, True])
def test_between_scales_of_one_sort_values_are_a_line(log: bool):
    new, old = number(1.3, 2.0, log=log), number(0.5, 4.0, log=log)
    scale = affine(new, old)
    assert scale is not None
    for value in (0.1, 1.0, 7.5):
        assert old.encode(value) == pytest.approx(scale[0] * new.encode(value) + scale[1])


def test_between_a_number_and_a_logarithm_there_is_no_line():
    assert affine(number(1, 2), number(1, 2, log=True)) is None
    assert affine(number(1, 2, log=True), number(1, 2)) is None


def test_features_are_values_bumps_and_a_one():
    found = radial(CENTERS)(np.array([0.0, 1.0]))
    assert found.shape == (2, 7)
    assert found[:, 0].tolist() == [0, 1]
    assert found[:, -1].tolist() == [1, 1]
    assert found[1, 1:-1].tolist() == pytest.approx(
        [math.exp(-0.5 * (1 - center) ** 2) for center in (-2, -1, 0, 1, 2)]
    )
    assert value_and_one(np.array([3.0])).tolist() == [[3, 1]]


def test_on_the_same_scale_weights_are_copied():
    source = feature_source(number(1, 2), number(1, 2), radial(CENTERS))
    assert np.array_equal(source.matrix_KJ, np.eye(7))
    assert source.how == (BY_VALUE,) * 7


def test_a_line_of_the_old_value_is_the_same_line_of_the_new_one():
    """With value and one as features the mixture is exact: w z' + c = w (a z + b) + c."""
    new, old = number(0.2, 0.9), number(0.0, 1.0)
    source = feature_source(new, old, value_and_one)
    scale = affine(new, old)
    assert scale is not None
    assert source.matrix_KJ == pytest.approx(np.array([[scale[0], 0], [scale[1], 1]]), abs=0.01)


@pytest.mark.parametrize(("mean", "std"), [(0.3, 1.0), (0.0, 1.3), (-0.4, 0.8)])
def test_a_bumpy_function_of_the_number_stays_nearly_the_same(mean: float, std: float):
    new, old, features = number(mean, std), number(0.0, 1.0), radial(CENTERS)
    matrix = feature_source(new, old, features).matrix_KJ
    weight_J = np.random.default_rng(0).normal(size=7)
    new_V = np.linspace(-1.5, 1.5, 31)
    old_V = np.array([old.encode(new.decode(value)) for value in new_V])
    wanted_V = features(old_V) @ weight_J
    found_V = features(new_V) @ (matrix @ weight_J)
    ignored_V = features(new_V) @ weight_J
    assert np.abs(found_V - wanted_V).max() < 0.1
    assert np.abs(found_V - wanted_V).mean() < 0.2 * np.abs(ignored_V - wanted_V).mean()


def test_what_the_old_model_has_never_seen_does_not_blow_up():
    """New numbers lie a hundred deviations beyond the old data: they count for its end."""
    matrix = feature_source(number(100.0, 1.0), number(0.0, 1.0), value_and_one).matrix_KJ
    assert matrix[1, 0] == pytest.approx(3.0, abs=0.05)
    assert matrix[0, 0] == pytest.approx(0.0, abs=0.05)


def test_numbers_that_have_no_logarithm_are_left_out_of_the_fit():
    """Half of the new data is negative, of which the old model's scale knows nothing."""
    matrix = feature_source(number(0.0, 1.0), number(0.0, 1.0, log=True), value_and_one).matrix_KJ
    assert np.isfinite(matrix).all()
    # The logarithm grows with the number.
    assert matrix[0, 0] > 0.1
