"""The primitives of Protocol Buffers, by the examples of its own documentation and by laws."""

import math

import pytest
from hypothesis import given, strategies as st
from laws import tried
from trace_examples import comp

from layerdag.errors import TraceError
from layerdag.traces.builder import (
    Cursor,
    NodeSpec,
    build_trace,
    length_delimited,
    scalar_to_word,
    tag,
    varint,
    word_to_scalar,
)
from layerdag.traces.trace import Attribute, NodeType, Wire

SIGNED_32 = (Wire.INT32, Wire.SINT32, Wire.SFIXED32)
SIGNED_64 = (Wire.INT64, Wire.SINT64, Wire.SFIXED64)
RANGES = {
    **dict.fromkeys(SIGNED_32, (-(2**31), 2**31 - 1)),
    **dict.fromkeys(SIGNED_64, (-(2**63), 2**63 - 1)),
    **dict.fromkeys((Wire.UINT32, Wire.FIXED32), (0, 2**32 - 1)),
    **dict.fromkeys((Wire.UINT64, Wire.FIXED64), (0, 2**64 - 1)),
    Wire.BOOL: (0, 1),
}


@pytest.mark.parametrize("wire", RANGES)
def test_integers_have_the_range_of_protobuf(wire):
    low, high = RANGES[wire]
    for value in (low, 0, 1, high):
        assert word_to_scalar(wire, scalar_to_word(wire, value)) == value
    for value in (low - 1, high + 1, 0.5):
        with pytest.raises(TraceError, match="does not fit"):
            scalar_to_word(wire, value)


def test_whole_floats_are_integers_and_text_is_none():
    assert scalar_to_word(Wire.INT64, 3.0) == 3
    with pytest.raises(TraceError, match="needs a number, found 'x'"):
        scalar_to_word(Wire.INT64, "x")


def test_floats_keep_their_bits_and_overflow_is_refused():
    assert scalar_to_word(Wire.DOUBLE, 1.0) == 0x3FF0000000000000
    assert scalar_to_word(Wire.FLOAT, 1.0) == 0x3F800000
    assert word_to_scalar(Wire.DOUBLE, scalar_to_word(Wire.DOUBLE, -math.pi)) == -math.pi
    with pytest.raises(TraceError, match="does not fit"):
        scalar_to_word(Wire.FLOAT, 1e39)


def test_integers_and_texts_tell_absent_from_zero():
    nodes = (
        NodeSpec(0, "a", NodeType.COMP, attributes=(Attribute("comm_type", Wire.INT64, 0),)),
        NodeSpec(1, "b", NodeType.COMP, attributes=(Attribute("pg_name", Wire.STRING, ""),)),
    )
    trace = build_trace(nodes)
    value_N, present_N = trace.integers("comm_type", default=-1)
    assert (value_N.tolist(), present_N.tolist()) == ([0, -1], [True, False])
    text_N, present_N = trace.texts("pg_name")
    assert (text_N, present_N.tolist()) == (["", ""], [False, True])


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        (Attribute("x", Wire.INT32, 2**31), "does not fit into int32_val"),
        (Attribute("x", Wire.UINT64, -1), "does not fit into uint64_val"),
        (Attribute("x", Wire.INT64, 1.5), "does not fit into int64_val"),
        (Attribute("x", Wire.INT64, float("inf")), "does not fit into int64_val"),
        (Attribute("x", Wire.INT64, float("nan")), "does not fit into int64_val"),
        (Attribute("x", Wire.FLOAT, 1e300), "does not fit into float_val"),
        (Attribute("x", Wire.DOUBLE, 10**400), "does not fit into double_val"),
        (Attribute("x", Wire.STRING, 3), "string_val cannot hold 3"),
        (Attribute("x", Wire.BOOL, "yes"), "needs a number"),
        (Attribute("x", Wire.STRING + 1, ("a", 3)), "string_val cannot hold 3"),
        (Attribute("x", Wire.BOOL + 1, True), "bool_list cannot hold True"),
    ],
)
def test_value_of_another_type_is_refused_by_name(attribute, expected):
    with pytest.raises(TraceError, match=f"attribute 'x': .*{expected}"):
        build_trace([NodeSpec(0, "a", NodeType.COMP, attributes=(attribute,))])


def test_double_id_and_impossible_numbers_are_refused():
    with pytest.raises(TraceError, match="two nodes have id 4"):
        build_trace([comp(4), comp(4)])
    with pytest.raises(TraceError, match="names node -1"):
        build_trace([comp(0, -1)])
    with pytest.raises(TraceError, match="names node -7"):
        build_trace([comp(0), comp(1, 0), comp(2, 0, -7)])
    with pytest.raises(TraceError, match="node 0 has type 11"):
        build_trace([NodeSpec(0, "a", 11)])
    with pytest.raises(TraceError, match="duration_us -5"):
        build_trace([comp(0, us=-5)])


def test_empty_trace_has_columns():
    trace = build_trace([])
    assert trace.num_nodes == 0
    assert trace.io_N6.shape == (0, 6)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, b"\x00"),
        (1, b"\x01"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (150, b"\x96\x01"),  # the example of protobuf.dev
        (2**64 - 1, b"\xff" * 9 + b"\x01"),
    ],
)
def test_varints_are_those_of_the_documentation(value, written):
    assert varint(value) == written
    cursor = Cursor(written)
    assert cursor.varint() == value
    assert (cursor.position, cursor.done) == (len(written), True)


@tried(60)
@given(st.integers(0, 2**64 - 1), st.binary(max_size=5))
def test_a_varint_ends_where_it_ends(value, behind):
    cursor = Cursor(varint(value) + behind)
    assert cursor.varint() == value
    assert cursor.take(len(behind)) == behind
    assert cursor.done


@tried(60)
@given(st.integers(1, 2**29 - 1), st.binary(max_size=300))
def test_a_field_is_read_as_it_was_written(number, payload):
    cursor = Cursor(length_delimited(number, payload))
    assert cursor.tag() == (number, 2)
    assert cursor.bytes() == payload
    assert cursor.done


@pytest.mark.parametrize(
    ("read", "data", "says"),
    [
        (Cursor.varint, b"", "a field of 1 bytes stands 0 bytes before the end of its message"),
        (Cursor.varint, b"\x80", "a field of 1 bytes stands 0 bytes before the end"),
        (Cursor.varint, b"\xff" * 10 + b"\x01", "more than 10 bytes"),
        (Cursor.bytes, b"\x05abc", "a field of 5 bytes stands 3 bytes before the end"),
        (Cursor.tag, b"\x02", "a field has number 0, which no schema uses"),
        (lambda cursor: cursor.skip(3), b"abc", "wire type 3 is not part of this format"),
        (lambda cursor: cursor.skip(1), b"abc", "a field of 8 bytes stands 3 bytes before"),
    ],
)
def test_what_is_cut_off_or_none_is_told(read, data, says):
    with pytest.raises(TraceError, match=says):
        read(Cursor(data))


@pytest.mark.parametrize(
    ("kind", "data"), [(0, b"\x96\x01"), (1, b"x" * 8), (2, b"\x03abc"), (5, b"x" * 4)]
)
def test_fields_of_every_kind_are_skipped_as_a_whole(kind, data):
    cursor = Cursor(tag(7, kind) + data + b"rest")
    assert cursor.tag() == (7, kind)
    cursor.skip(kind)
    assert cursor.take(4) == b"rest"
