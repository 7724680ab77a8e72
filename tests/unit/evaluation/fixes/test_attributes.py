import pytest
from hypothesis import given, strategies as st
from small_workloads import collective, compute, trace

from layerdag.evaluation.fixes._attributes import nodes_of, with_text, with_word
from layerdag.traces import Wire
from layerdag.traces.chakra import decode_trace, encode_trace

THREE = trace(compute(1), collective(2, 1, group="7"), compute(3, 2))


@given(st.dictionaries(st.integers(0, 2), st.integers(-(2**31), 2**31 - 1)))
def test_a_number_is_set_where_it_was_and_where_it_was_not(word_of: dict[int, int]) -> None:
    changed = with_word(THREE, "comm_size", Wire.INT64, word_of)
    value_N, present_N = changed.integers("comm_size")
    assert present_N.tolist() == [0 in word_of, True, 2 in word_of]
    assert value_N.tolist() == [word_of.get(0, 0), word_of.get(1, 1024), word_of.get(2, 0)]
    assert changed.integers("num_ops")[0].tolist() == THREE.integers("num_ops")[0].tolist()
    assert decode_trace(encode_trace(changed)).integers("comm_size")[0].tolist() == value_N.tolist()


def test_a_text_is_set_where_it_was_and_where_it_was_not() -> None:
    changed = with_text(THREE, "pg_name", {0: "a", 1: "b"})
    assert changed.texts("pg_name")[0] == ["a", "b", ""]
    assert THREE.texts("pg_name")[0] == ["", "7", ""]


def test_nothing_to_set_leaves_the_attributes_alone() -> None:
    assert with_word(THREE, "comm_size", Wire.INT64, {}).attributes.word_A.tolist() == (
        THREE.attributes.word_A.tolist()
    )


@pytest.mark.parametrize("row", [0, 1, 2])
def test_attributes_belong_to_the_node_whose_they_are(row: int) -> None:
    node_A = nodes_of(with_word(THREE, "new", Wire.INT64, {row: 5}))
    before = nodes_of(THREE).tolist()
    assert node_A.tolist() == sorted([*before, row])
