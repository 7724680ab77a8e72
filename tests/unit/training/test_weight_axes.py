"""The rows of a weight, segment by segment: what they stand for and where they come from."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from warm_starts import data_of, jobs

from layerdag.schema.attributes import CategoryAttribute, NumericAttribute
from layerdag.schema.conditions import NumericCondition
from layerdag.schema.schema import GraphSchema
from layerdag.training.weight_axes import (
    BY_KIND,
    BY_NAME,
    BY_VALUE,
    FRESH,
    AttributeCodes,
    CategoryCodes,
    CountBins,
    EdgeTypes,
    Fixed,
    InDegreeRows,
    NumericFeatures,
    NumericMean,
    NumericSpread,
    Segment,
    WeightAxis,
    affine,
    by_bin,
    by_count,
    by_largest_below,
    by_same_name,
    by_word,
    feature_source,
    numeric_pair,
    radial,
    same_scale,
    value_and_one,
    word_kind,
)


@pytest.fixture(scope="module")
def schema() -> GraphSchema:
    return data_of(jobs()).schema


def column_of(schema: GraphSchema, kind: type) -> int:
    return next(i for i, a in enumerate(schema.attributes) if isinstance(a, kind))


SEGMENTS: list[Segment] = [
    Fixed("counts", 5),
    AttributeCodes(0),
    AttributeCodes(0, start_token=True),
    AttributeCodes(5),
    AttributeCodes(5, start_token=True),
    CategoryCodes(0, unknown=True),
    CategoryCodes(0, unknown=False),
    EdgeTypes("noisy"),
    CountBins("layer size", (0, 1, 2, 9)),
    InDegreeRows((0, 1, 7)),
    NumericFeatures(0, value_and_one),
    NumericMean(0),
    NumericSpread(0),
]


@pytest.mark.parametrize("segment", SEGMENTS, ids=lambda segment: type(segment).__name__)
def test_on_the_same_data_every_row_comes_from_itself(segment, schema):
    source = segment.source(segment, schema, schema)
    assert source is not None
    assert np.array_equal(source.matrix_KJ, np.eye(segment.size(schema)))
    assert not source.offset_K.any()
    assert len(source.how) == segment.size(schema)


def test_keys_tell_all_segments_apart_but_those_of_the_same_thing(schema):
    keys = [segment.key(schema) for segment in SEGMENTS]
    again = [i for i, key in enumerate(keys) if key in keys[:i]]
    assert [SEGMENTS[i] for i in again] == [
        AttributeCodes(0, start_token=True),
        AttributeCodes(5, start_token=True),
        CategoryCodes(0, unknown=False),
    ]


def test_keys_follow_the_name_and_not_the_place(schema):
    turned = replace(schema, attributes=tuple(reversed(schema.attributes)))
    last = len(schema.attributes) - 1
    assert AttributeCodes(0).key(schema) == AttributeCodes(last).key(turned)
    assert AttributeCodes(0).key(schema) != AttributeCodes(0).key(turned)


def test_another_number_of_fixed_rows_has_nothing_to_start_from(schema):
    assert Fixed("counts", 5).source(Fixed("counts", 4), schema, schema) is None


def test_the_start_token_comes_from_the_start_token(schema):
    words = schema.attributes[0]
    assert isinstance(words, CategoryAttribute)
    fewer = replace(words, values=words.values[1:])
    here = replace(schema, attributes=(fewer, *schema.attributes[1:]))
    segment = AttributeCodes(0, start_token=True)
    source = segment.source(segment, here, schema)
    assert source is not None
    assert source.matrix_KJ.shape == (len(words.values), len(words.values) + 1)
    assert source.matrix_KJ[-1].nonzero()[0].tolist() == [len(words.values)]
    assert source.matrix_KJ[0].nonzero()[0].tolist() == [1]
    assert source.how[-1] == BY_NAME


def test_unknown_comes_from_unknown(schema):
    words = schema.category_conditions[0]
    turned = replace(words, values=tuple(reversed(words.values)))
    here = replace(schema, category_conditions=(turned, *schema.category_conditions[1:]))
    source = CategoryCodes(0, unknown=True).source(SEGMENTS[5], here, schema)
    assert source is not None
    count = len(words.values)
    assert source.matrix_KJ.argmax(1).tolist() == [0, *range(count, 0, -1)]


def test_a_condition_that_the_old_data_lacks_has_no_source(schema):
    there = replace(schema, numeric_conditions=(), category_conditions=())
    for segment in SEGMENTS:
        if isinstance(segment, CategoryCodes | NumericFeatures | NumericMean | NumericSpread):
            assert segment.source(segment, schema, there) is None


def test_neutral_rows_are_absent_and_unknown(schema):
    number, word = column_of(schema, NumericAttribute), column_of(schema, CategoryAttribute)
    assert AttributeCodes(number).neutral_row(schema) == 0
    assert AttributeCodes(word).neutral_row(schema) is None
    assert CategoryCodes(0, unknown=True).neutral_row(schema) == 0
    assert CategoryCodes(0, unknown=False).neutral_row(schema) is None
    assert Fixed("counts", 3).neutral_row(schema) is None


def test_predictions_are_moved_to_the_new_scale(schema):
    old = schema.numeric_conditions[0]
    new = replace(old, mean=old.mean + 0.6, std=old.std * 2)
    here = replace(schema, numeric_conditions=(new,))
    mean = NumericMean(0).source(NumericMean(0), here, schema)
    spread = NumericSpread(0).source(NumericSpread(0), here, schema)
    assert mean is not None
    assert spread is not None
    value = old.decode(0.7)
    assert mean.matrix_KJ[0, 0] * 0.7 + mean.offset_K[0] == pytest.approx(new.encode(value))
    # Half as many of the new standard deviations.
    assert spread.offset_K[0] == pytest.approx(-math.log(2))
    logarithm = replace(schema, numeric_conditions=(replace(old, log=not old.log),))
    assert NumericMean(0).source(NumericMean(0), logarithm, schema) is None
    assert NumericSpread(0).source(NumericSpread(0), logarithm, schema) is None


def test_an_axis_is_its_segments_end_to_end(schema):
    axis = WeightAxis((Fixed("a", 2), EdgeTypes(), InDegreeRows((0, 3))))
    source = axis.source(axis, schema, schema)
    rows = 2 + len(schema.edge_types) + 2
    assert np.array_equal(source.matrix_KJ, np.eye(rows))
    assert source.how == (BY_VALUE,) * 2 + (BY_NAME,) * len(schema.edge_types) + (BY_VALUE,) * 2


def test_segments_find_their_rows_wherever_they_stood(schema):
    old = WeightAxis((Fixed("a", 2), InDegreeRows((0, 3)), Fixed("b", 1)))
    new = WeightAxis((Fixed("b", 1), Fixed("c", 1), Fixed("a", 2)))
    source = new.source(old, schema, schema)
    assert source.matrix_KJ.tolist() == [
        [0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
    ]
    assert source.how == (BY_VALUE, FRESH, BY_VALUE, BY_VALUE)


@pytest.mark.parametrize("summed", [True, False])
def test_in_a_sum_the_unknown_of_what_is_gone_joins_the_first_segment(summed, schema):
    first, second = CategoryCodes(0, unknown=True), CategoryCodes(1, unknown=True)
    old = WeightAxis((first, second), summed=summed)
    here = replace(schema, category_conditions=schema.category_conditions[:1])
    source = WeightAxis((first,), summed=summed).source(old, here, schema)
    start = first.size(schema)
    # Row ``start`` is the second condition's "unknown".
    assert source.matrix_KJ[:, start].tolist() == [float(summed)] * start
    assert np.array_equal(source.matrix_KJ[:, :start], np.eye(start))
    assert not source.matrix_KJ[:, start + 1 :].any()


CENTERS = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])


def number(mean: float, std: float, *, log: bool = False, name: str = "label") -> NumericCondition:
    return NumericCondition(name, float(mean), float(std), log, (0.5, 2.0))


def test_conditions_of_the_same_name_are_a_pair_wherever_they_stand(schema):
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
def test_a_scale_is_mean_spread_and_whether_it_is_a_logarithm(other, same):
    assert same_scale(number(1.0, 2.0), other) is same


@pytest.mark.parametrize("log", [False, True])
def test_between_scales_of_one_sort_values_are_a_line(log):
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


def test_a_line_of_the_old_value_is_the_same_line_of_the_new_one():
    """With value and one as features the mixture is exact: w z' + c = w (a z + b) + c."""
    new, old = number(0.2, 0.9), number(0.0, 1.0)
    source = feature_source(new, old, value_and_one)
    scale = affine(new, old)
    assert scale is not None
    assert source.matrix_KJ == pytest.approx(np.array([[scale[0], 0], [scale[1], 1]]), abs=0.01)


@pytest.mark.parametrize(("mean", "std"), [(0.3, 1.0), (0.0, 1.3), (-0.4, 0.8)])
def test_a_bumpy_function_of_the_number_stays_nearly_the_same(mean, std):
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


def bins(*rows: tuple[float, float]) -> NumericAttribute:
    return NumericAttribute(
        "bytes", "bytes", tuple(tuple(np.linspace(low, high, 5)) for low, high in rows)
    )


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("c10d::all_reduce", "collective"),
        ("c10d::send", "message"),
        ("aten::_foreach_add_", "optimizer"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::gelu_backward", "backward"),
        ("aten::mm", "compute"),
        ("<other>", "value"),
        ("float32", "value"),
    ],
)
def test_a_word_tells_its_kind(word, kind):
    assert word_kind(word) == kind


def test_a_new_word_is_the_mean_of_its_kind_and_of_all_where_there_is_none():
    old = ("aten::mm", "aten::add", "c10d::all_reduce")
    source = by_word(("c10d::all_to_all", "aten::add", "aten::bmm", "<other>"), old)
    wanted = [[0, 0, 1], [0, 1, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]
    assert np.allclose(source.matrix_KJ, wanted)
    assert source.how == (BY_KIND, BY_NAME, BY_KIND, BY_KIND)


def test_the_same_bin_is_copied_and_another_mixes_those_that_hold_its_values():
    old = bins((1, 1), (2, 4), (4, 8), (16, 16))
    new = bins((2, 4), (3, 5), (16, 16), (500, 600))
    matrix = by_bin(new, old).matrix_KJ
    assert np.allclose(matrix.sum(axis=1), 1)
    assert matrix[0].tolist() == [1, 0, 0, 0, 0], "absent"
    assert matrix[1].tolist() == [0, 0, 1, 0, 0]
    assert 0.3 < matrix[2, 2] < 0.7
    assert matrix[2, 2] + matrix[2, 3] == 1
    assert matrix[3].tolist() == [0, 0, 0, 0, 1]
    assert matrix[4].tolist() == [0, 0, 0, 0, 1], "the nearest bin"


def test_bins_of_numbers_that_were_always_absent_are_fresh():
    source = by_bin(bins((1, 2)), bins())
    assert source.how[1] == FRESH
    assert source.matrix_KJ.tolist() == [[1], [0]]


def test_counts_share_the_numbers_of_their_bins_and_the_last_bin_has_no_end():
    old, new = (0, 1, 2, 4, 8), (0, 1, 3, 9, 30)
    matrix = by_count(new, old).matrix_KJ
    assert matrix[0].tolist() == [1, 0, 0, 0]
    assert matrix[1].tolist() == [0, 0.5, 0.5, 0]
    assert np.allclose(matrix[2], [0, 0, 1 / 6, 5 / 6])
    assert matrix[3].tolist() == [0, 0, 0, 1]


def test_degrees_start_from_the_largest_that_is_not_larger():
    matrix = by_largest_below((0, 1, 5, 9), (0, 1, 2, 8)).matrix_KJ
    assert matrix.argmax(axis=1).tolist() == [0, 1, 2, 3]


def test_edge_types_have_no_kinds():
    source = by_same_name(("control", "new"), ("data", "control"))
    assert source.matrix_KJ.tolist() == [[0, 1], [0, 0]]
    assert source.how == (BY_NAME, FRESH)
