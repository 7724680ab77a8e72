import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from trace_examples import comp, framed, number, rich_trace, text

from layerdag.errors import TraceError
from layerdag.traces import Trace
from layerdag.traces.chakra import (
    attribute_at,
    build_trace,
    decode_trace,
    encode_trace,
    read_trace,
    write_trace,
)
from layerdag.traces.chakra._schema_version import CURRENT, detect_schema_version


def everything(trace: Trace) -> list[object]:
    table = trace.attributes
    rows = range(table.wire_A.size)
    io = [[i if i < 0 else trace.strings[i] for i in row] for row in trace.io_N6.tolist()]
    return [
        trace.id_N.tolist(),
        trace.names(),
        trace.type_N.tolist(),
        trace.start_us_N.tolist(),
        trace.duration_us_N.tolist(),
        [trace.data_deps.of(row).tolist() for row in range(trace.num_nodes)],
        [trace.ctrl_deps.of(row).tolist() for row in range(trace.num_nodes)],
        io,
        table.ptr_N1.tolist(),
        [attribute_at(table, row, trace.strings) for row in rows],
        trace.version,
        trace.metadata,
    ]


def test_every_field_and_type_survives_writing_and_reading() -> None:
    trace = rich_trace()
    assert everything(decode_trace(encode_trace(trace))) == everything(trace)


def test_writing_what_was_read_gives_the_same_bytes() -> None:
    data = encode_trace(rich_trace())
    assert encode_trace(decode_trace(data)) == data


def test_bytes_are_those_of_the_schema() -> None:
    # Node {id: 1, name: "a", type: COMP, data_deps: [0], duration_micros: 5, attr: is_cpu_op false}
    trace = build_trace([comp(1, 0, name="a")], version="")
    node = b"\x08\x01\x12\x01a\x18\x04\x2a\x01\x00\x38\x05\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00"
    assert encode_trace(trace) == b"\x00" + bytes([len(node)]) + node


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_packing_is_told_from_the_content(tmp_path: Path, pack) -> None:
    path = tmp_path / "trace.bin"
    path.write_bytes(pack(encode_trace(rich_trace())))
    assert everything(read_trace(path)) == everything(rich_trace())


def test_unpacked_dependencies_are_read_too() -> None:
    node = number(1, 4) + number(5, 1) + number(5, 2) + number(4, 3)
    trace = decode_trace(framed(b"", node))
    assert trace.data_deps.of(0).tolist() == [1, 2]
    assert trace.ctrl_deps.of(0).tolist() == [3]


def test_last_value_of_a_repeated_scalar_wins() -> None:
    trace = decode_trace(framed(b"", number(1, 4) + number(1, 5) + text(2, "a") + text(2, "b")))
    assert trace.id_N.tolist() == [5]
    assert trace.names() == ["b"]


def test_a_varint_may_have_ten_bytes() -> None:
    trace = decode_trace(framed(b"", b"\x08" + b"\xff" * 9 + b"\x01"))
    assert trace.id_N.tolist() == [2**64 - 1]
    # Bits beyond the 64th are cut off, as protobuf does.
    trace = decode_trace(framed(b"", b"\x08" + b"\xff" * 9 + b"\x7f"))
    assert trace.id_N.tolist() == [2**64 - 1]


@pytest.mark.parametrize("word", ["é", "\u0800", "矩阵", "\ud7ff", "𐀀", "🔥 gemm", "\U0010ffff"])
def test_names_are_any_text_that_utf8_can_hold(word: str) -> None:
    assert decode_trace(framed(b"", number(1, 7) + text(2, word))).names() == [word]
    listed = framed(b"", number(1, 7) + text(10, text(1, "list") + text(30, text(1, word))))
    assert word.encode() in encode_trace(decode_trace(listed))


@pytest.mark.parametrize(
    "written",
    [b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80"],
)
def test_overlong_forms_and_what_lies_beyond_unicode_are_refused(written: bytes) -> None:
    with pytest.raises(TraceError, match="not UTF-8"):
        decode_trace(framed(b"", number(1, 7) + text(2, written)))
    with pytest.raises(TraceError, match="not UTF-8"):
        decode_trace(framed(b"", number(1, 7) + text(10, text(30, text(1, written)))))


def test_the_length_of_a_message_takes_five_bytes_at_most() -> None:
    node = number(1, 7)
    five = bytes([0x80 | len(node), 0x80, 0x80, 0x80, 0])
    assert decode_trace(framed(b"") + five + node).id_N.tolist() == [7]
    six = bytes([0x80 | len(node), 0x80, 0x80, 0x80, 0x80, 0])
    with pytest.raises(TraceError, match="too long"):
        decode_trace(framed(b"") + six + node)


def test_no_empty_node_is_written() -> None:
    # Python tools take a message of length 0 for the end of the file.
    trace = decode_trace(framed(b"", b"", number(1, 1)))
    assert trace.id_N.tolist() == [0, 1]
    assert encode_trace(trace) == framed(b"", number(1, 0), number(1, 1))


def test_metadata_attributes_of_the_first_0_0_4_files_are_read() -> None:
    attribute = text(1, "schema") + text(29, "x")
    trace = decode_trace(framed(text(1, attribute), number(1, 4)))
    assert [(a.name, a.value) for a in trace.metadata] == [("schema", "x")]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (framed(b"", number(1, 7) + text(2, "abc"))[:-1], "is cut off"),
        (framed(b"") + b"\xff\xff\xff\xff\x0f", "is cut off"),
        (framed(b"") + b"\xff\xff\xff\xff\xff\xff\x01", "too long"),
        (framed(b"", b"\x08" + b"\x80" * 10 + b"\x01"), "too long"),
        (
            framed(b"", number(1, 7) + text(10, text(8, text(1, b"\x80" * 10 + b"\x01")))),
            "too long",
        ),
        (framed(b"", number(1, 7) + number(3, 8)), "node number 0 (id 7).*type 8"),
        (framed(b"", number(1, 7) + number(12, 8)), "node number 0 (id 7).*field 12"),
        (framed(b"", number(1, 7) + text(10, number(40, 1))), "(id 7).*field 40"),
        (framed(b"", number(1, 7) + text(2, b"\xff\xfe")), "not UTF-8"),
        (framed(b"", number(1, 7) + text(10, text(30, number(1, 1)))), "(id 7).*field 1"),
        (framed(b"", number(1, 7) + text(10, text(28, text(1, b"\x80")))), "(id 7).*cut off"),
        (framed(b"", number(1, 7) + text(10, text(30, text(1, b"\xed\xa0\x80")))), "not UTF-8"),
        (framed(text(2, text(30, number(1, 1))), number(1, 7)), "string_list holds an element"),
        (framed(text(1, "9.9.9"), number(1, 7)), "version '9.9.9'; known are 0.0.4, 1.0.0"),
        (framed(number(1, 7) + text(10, text(1, "a"))), "empty GlobalMetadata"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "no Chakra trace"),
    ],
)
def test_bad_bytes_are_one_sentence(data: bytes, expected: str) -> None:
    pattern = expected.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(TraceError, match=pattern) as caught:
        decode_trace(data, "some.et")
    assert "some.et" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_length_of_four_gigabytes_allocates_nothing() -> None:
    import tracemalloc

    tracemalloc.start()
    with pytest.raises(TraceError, match="cut off"):
        decode_trace(framed(b"") + b"\xff\xff\xff\xff\x0f" + b"\x08\x01")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize("cut", range(1, 60))
def test_every_truncation_is_refused_or_a_whole_prefix(cut: int) -> None:
    whole = encode_trace(rich_trace())
    try:
        trace = decode_trace(whole[:-cut])
    except TraceError:
        return
    assert trace.num_nodes < rich_trace().num_nodes


def test_no_bytes_are_no_trace_of_an_old_generation() -> None:
    assert detect_schema_version(b"", "x.et") == CURRENT
    with pytest.raises(TraceError, match="does not begin with Chakra metadata"):
        decode_trace(b"", "x.et")


def test_missing_empty_and_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.et").touch()
    for name, expected in [("no.et", "no such file"), ("empty.et", "empty"), ("", "folder")]:
        with pytest.raises(TraceError, match=expected):
            read_trace(tmp_path / name)


def test_trace_put_together_wrongly_is_refused_before_writing(tmp_path: Path) -> None:
    from dataclasses import replace

    trace = rich_trace()
    broken = [
        replace(trace, name_N=trace.name_N + 1000),
        replace(trace, type_N=np.full_like(trace.type_N, 9)),
        replace(trace, start_us_N=trace.start_us_N[:-1]),
        replace(trace, strings=trace.strings[:3]),
        replace(trace, attributes=replace(trace.attributes, blobs=())),
        replace(trace, attributes=replace(trace.attributes, ptr_N1=trace.attributes.ptr_N1[::-1])),
        replace(trace, data_deps=replace(trace.data_deps, values=trace.data_deps.values[:-1])),
        replace(trace, data_deps=replace(trace.data_deps, ptr_N1=trace.data_deps.ptr_N1 + 1)),
    ]
    for bad in broken:
        with pytest.raises(TraceError, match="put together wrongly"):
            write_trace(bad, tmp_path / "x.et")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_every_reference_trace_is_written_byte_for_byte(shared_data: Path) -> None:
    from layerdag._runtime import read_whole

    paths = [p for pattern in ("*.et", "*.et.gz", "*.et.xz") for p in shared_data.rglob(pattern)]
    assert len(paths) > 1000
    for path in paths:
        data = read_whole(path)
        assert encode_trace(decode_trace(data, str(path))) == data, path


@pytest.mark.parametrize(
    "head", [b"\x80\x00", b"\x80\x80\x80\x00", b"\x87\x80\x00" + text(1, "1.0.0")]
)
def test_a_length_may_have_more_bytes_than_it_needs(head: bytes) -> None:
    """Protocol Buffers allow it; the first node begins behind all of them."""
    node = number(1, 5) + text(2, "a") + number(3, 4)
    assert decode_trace(head + framed(node)).id_N.tolist() == [5]
