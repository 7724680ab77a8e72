"""The shape of a recommendation model: layers and parameters by hand, and what is no model."""

import dataclasses
from typing import Any

import pytest
from small_recommenders import TWO

from layerdag.errors import ConfigError
from layerdag.workloads.recommendation import RECOMMENDERS


def test_layers_follow_from_the_widths() -> None:
    assert TWO.crossed == (2 + 1) * 4  # a row of each table, and the bottom network's output
    assert TWO.bottom_layers == ((3, 8), (8, 4))
    assert TWO.cross_matrices == ((12, 2), (2, 12))
    assert TWO.top_layers == ((12, 6), (6, 1))


def test_parameters_by_hand() -> None:
    assert TWO.table_parameters == (10 + 20) * 4
    bottom = 3 * 8 + 8 + 8 * 4 + 4  # weights and biases
    cross = 12 * 2 + 2 * 12 + 12  # two matrices, one bias
    top = 12 * 6 + 6 + 6 * 1 + 1
    assert TWO.dense_parameters == bottom + cross + top == 213
    assert TWO.parameters == 120 + 213


def test_a_further_cross_layer_adds_two_matrices_and_a_bias() -> None:
    more = dataclasses.replace(TWO, cross_layers=2)
    assert len(more.cross_matrices) == 2 * len(TWO.cross_matrices)
    assert more.dense_parameters - TWO.dense_parameters == 2 * 12 * 2 + 12


def test_longer_tables_and_more_look_ups_leave_the_dense_layers_as_they_are() -> None:
    longer = dataclasses.replace(TWO, rows=(11, 20), look_ups=(50, 3))
    assert longer.dense_parameters == TWO.dense_parameters
    assert longer.parameters == TWO.parameters + TWO.width


def test_a_further_table_widens_what_is_crossed_by_a_row() -> None:
    more = dataclasses.replace(TWO, rows=(10, 20, 5), look_ups=(1, 3, 1))
    assert more.crossed == TWO.crossed + TWO.width
    assert more.top_layers[0] == (16, 6)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": (10, 0)}, {"rows": (10, True)}, {"look_ups": (1, -1)},
        {"dense_inputs": 0}, {"bottom": (0, 4)}, {"top": (6, 0)}, {"cross_layers": 0},
    ],
)  # fmt: skip
def test_every_number_is_whole_and_at_least_one(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="model two: all numbers must be whole and at least 1"):
        dataclasses.replace(TWO, **change)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rows": (), "look_ups": ()}, "0 numbers of look-ups for 0 tables"),
        ({"look_ups": (1, 1, 1)}, "3 numbers of look-ups for 2 tables; give one for each table"),
        ({"bottom": ()}, "the bottom network ends with width 0, rows have 4; give the same"),
        ({"width": 8}, "the bottom network ends with width 4, rows have 8"),
        ({"top": ()}, "the top network ends with width 0, a prediction has 1; end it with 1"),
        ({"top": (6,)}, "the top network ends with width 6, a prediction has 1; end it with 1"),
    ],
)
def test_numbers_that_do_not_fit_together_are_refused(
    change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        dataclasses.replace(TWO, **change)


def test_dlrm_v2_crosses_27_vectors_of_128_numbers() -> None:
    shape = RECOMMENDERS["dlrm-v2"]
    assert shape.crossed == 27 * 128 == 3456
    assert shape.cross_matrices == ((3456, 512), (512, 3456)) * 3
    assert shape.bottom_layers == ((13, 512), (512, 256), (256, 128))
    assert sum(shape.look_ups) == 214
