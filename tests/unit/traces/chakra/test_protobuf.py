"""The primitives of Protocol Buffers, by the examples of its own documentation and by laws."""

import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import TraceError
from layerdag.traces.chakra._protobuf import Cursor, length_delimited, tag, varint


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
def test_varints_are_those_of_the_documentation(value: int, written: bytes) -> None:
    assert varint(value) == written
    cursor = Cursor(written)
    assert cursor.varint() == value
    assert (cursor.position, cursor.done) == (len(written), True)


@tried(60)
@given(st.integers(0, 2**64 - 1), st.binary(max_size=5))
def test_a_varint_ends_where_it_ends(value: int, behind: bytes) -> None:
    cursor = Cursor(varint(value) + behind)
    assert cursor.varint() == value
    assert cursor.take(len(behind)) == behind
    assert cursor.done


@tried(60)
@given(st.integers(1, 2**29 - 1), st.binary(max_size=300))
def test_a_field_is_read_as_it_was_written(number: int, payload: bytes) -> None:
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
def test_what_is_cut_off_or_none_is_told(read, data: bytes, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        read(Cursor(data))


@pytest.mark.parametrize(
    ("kind", "data"), [(0, b"\x96\x01"), (1, b"x" * 8), (2, b"\x03abc"), (5, b"x" * 4)]
)
def test_fields_of_every_kind_are_skipped_as_a_whole(kind: int, data: bytes) -> None:
    cursor = Cursor(tag(7, kind) + data + b"rest")
    assert cursor.tag() == (7, kind)
    cursor.skip(kind)
    assert cursor.take(4) == b"rest"
