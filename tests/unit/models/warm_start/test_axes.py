"""The rows of a weight, segment by segment: what they stand for and where they come from."""

import math
from dataclasses import replace

import numpy as np
import pytest
from warm_starts import data_of, jobs

from layerdag.datasets.schema import CategoryAttribute, GraphSchema, NumericAttribute
from layerdag.models.warm_start._axes import (
    AttributeCodes,
    Axis,
    CategoryCodes,
    CountBins,
    Degrees,
    EdgeTypes,
    Fixed,
    NumericFeatures,
    NumericMean,
    NumericSpread,
    Segment,
)
from layerdag.models.warm_start._numbers import value_and_one
from layerdag.models.warm_start._sources import BY_NAME, BY_VALUE, FRESH


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
    Degrees((0, 1, 7)),
    NumericFeatures(0, value_and_one),
    NumericMean(0),
    NumericSpread(0),
]


@pytest.mark.parametrize("segment", SEGMENTS, ids=lambda segment: type(segment).__name__)
def test_on_the_same_data_every_row_comes_from_itself(segment: Segment, schema: GraphSchema):
    source = segment.source(segment, schema, schema)
    assert source is not None
    assert np.array_equal(source.matrix_KJ, np.eye(segment.size(schema)))
    assert not source.offset_K.any()
    assert len(source.how) == segment.size(schema)


def test_keys_tell_all_segments_apart_but_those_of_the_same_thing(schema: GraphSchema):
    keys = [segment.key(schema) for segment in SEGMENTS]
    again = [i for i, key in enumerate(keys) if key in keys[:i]]
    assert [SEGMENTS[i] for i in again] == [
        AttributeCodes(0, start_token=True),
        AttributeCodes(5, start_token=True),
        CategoryCodes(0, unknown=False),
    ]


def test_keys_follow_the_name_and_not_the_place(schema: GraphSchema):
    turned = replace(schema, attributes=tuple(reversed(schema.attributes)))
    last = len(schema.attributes) - 1
    assert AttributeCodes(0).key(schema) == AttributeCodes(last).key(turned)
    assert AttributeCodes(0).key(schema) != AttributeCodes(0).key(turned)


def test_another_number_of_fixed_rows_has_nothing_to_start_from(schema: GraphSchema):
    assert Fixed("counts", 5).source(Fixed("counts", 4), schema, schema) is None


def test_the_start_token_comes_from_the_start_token(schema: GraphSchema):
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


def test_unknown_comes_from_unknown(schema: GraphSchema):
    words = schema.category_conditions[0]
    turned = replace(words, values=tuple(reversed(words.values)))
    here = replace(schema, category_conditions=(turned, *schema.category_conditions[1:]))
    source = CategoryCodes(0, unknown=True).source(SEGMENTS[5], here, schema)
    assert source is not None
    count = len(words.values)
    assert source.matrix_KJ.argmax(1).tolist() == [0, *range(count, 0, -1)]


def test_a_condition_that_the_old_data_lacks_has_no_source(schema: GraphSchema):
    there = replace(schema, numeric_conditions=(), category_conditions=())
    for segment in SEGMENTS:
        if isinstance(segment, CategoryCodes | NumericFeatures | NumericMean | NumericSpread):
            assert segment.source(segment, schema, there) is None


def test_neutral_rows_are_absent_and_unknown(schema: GraphSchema):
    number, word = column_of(schema, NumericAttribute), column_of(schema, CategoryAttribute)
    assert AttributeCodes(number).neutral_row(schema) == 0
    assert AttributeCodes(word).neutral_row(schema) is None
    assert CategoryCodes(0, unknown=True).neutral_row(schema) == 0
    assert CategoryCodes(0, unknown=False).neutral_row(schema) is None
    assert Fixed("counts", 3).neutral_row(schema) is None


def test_predictions_are_moved_to_the_new_scale(schema: GraphSchema):
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


def test_an_axis_is_its_segments_end_to_end(schema: GraphSchema):
    axis = Axis((Fixed("a", 2), EdgeTypes(), Degrees((0, 3))))
    source = axis.source(axis, schema, schema)
    rows = 2 + len(schema.edge_types) + 2
    assert np.array_equal(source.matrix_KJ, np.eye(rows))
    assert source.how == (BY_VALUE,) * 2 + (BY_NAME,) * len(schema.edge_types) + (BY_VALUE,) * 2


def test_segments_find_their_rows_wherever_they_stood(schema: GraphSchema):
    old = Axis((Fixed("a", 2), Degrees((0, 3)), Fixed("b", 1)))
    new = Axis((Fixed("b", 1), Fixed("c", 1), Fixed("a", 2)))
    source = new.source(old, schema, schema)
    assert source.matrix_KJ.tolist() == [
        [0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
    ]
    assert source.how == (BY_VALUE, FRESH, BY_VALUE, BY_VALUE)


@pytest.mark.parametrize("summed", [True, False])
def test_in_a_sum_the_unknown_of_what_is_gone_joins_the_first_segment(
    summed: bool, schema: GraphSchema
):
    first, second = CategoryCodes(0, unknown=True), CategoryCodes(1, unknown=True)
    old = Axis((first, second), summed=summed)
    here = replace(schema, category_conditions=schema.category_conditions[:1])
    source = Axis((first,), summed=summed).source(old, here, schema)
    start = first.size(schema)
    # Row ``start`` is the second condition's "unknown".
    assert source.matrix_KJ[:, start].tolist() == [float(summed)] * start
    assert np.array_equal(source.matrix_KJ[:, :start], np.eye(start))
    assert not source.matrix_KJ[:, start + 1 :].any()
