"""Layers that the stages of a pipeline share."""

import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.workloads.scaling._depth import _shared


@pytest.mark.parametrize(
    ("count", "stages", "each"),
    [(8, 4, [2, 2, 2, 2]), (9, 2, [5, 4]), (11, 4, [3, 3, 3, 2]), (3, 3, [1, 1, 1]), (5, 1, [5])],
)
def test_the_first_stages_take_the_layers_that_are_left_over(
    count: int, stages: int, each: list[int]
) -> None:
    assert _shared(count, stages) == each


@tried(60)
@given(st.integers(1, 500), st.integers(1, 40))
def test_no_layer_is_lost_and_stages_differ_by_one_at_most(count: int, stages: int) -> None:
    each = _shared(count, stages)
    assert (len(each), sum(each)) == (stages, count)
    assert max(each) - min(each) <= 1
    assert each == sorted(each, reverse=True)
