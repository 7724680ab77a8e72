import struct

import pytest
from trace_examples import framed, number, real, text

from layerdag.errors import TraceError
from layerdag.traces import CollectiveType, NodeType, Trace, Wire
from layerdag.traces.chakra import _legacy as legacy, attribute_at, decode_trace
from layerdag.traces.chakra._legacy import frames
from layerdag.traces.chakra._protobuf import tag, varint


def attributes(trace: Trace, row: int) -> dict[str, object]:
    table = trace.attributes
    found = [
        attribute_at(table, at, trace.strings)
        for at in range(table.ptr_N1[row], table.ptr_N1[row + 1])
    ]
    return {a.name: a.value for a in found}


def test_0_0_1() -> None:
    comp = number(1, 0) + text(2, "mm") + number(3, 3) + number(7, 12) + number(12, 99)
    coll = (
        number(1, 1) + text(2, "ar") + number(3, 6) + number(4, 0) + number(13, 4)
        + number(14, 1) + number(14, 0) + number(15, 2) + number(18, 1024) + number(20, 3)
    )  # fmt: skip
    trace = decode_trace(framed(comp, coll))
    assert trace.type_N.tolist() == [NodeType.COMP, NodeType.COMM_COLL]
    assert trace.duration_us_N.tolist() == [12, 0]
    assert trace.data_deps.of(1).tolist() == [0]
    assert attributes(trace, 0) == {"num_ops": 99}
    assert attributes(trace, 1) == {
        "comm_type": CollectiveType.REDUCE_SCATTER,
        "involved_dim": (True, False),
        "pg_name": "2",
        "comm_size": 1024,
        "comm_priority": 3,
    }


def test_drafts_before_0_0_1_number_node_types_differently() -> None:
    comp = number(1, 0) + text(2, "mm") + number(3, 4) + number(7, 12)
    load = number(1, 1) + text(2, "w") + number(3, 1) + number(6, 77)
    coll = number(1, 2) + text(2, "ar") + number(3, 7) + number(13, 1) + number(18, 8)
    trace = decode_trace(framed(comp, load, coll))
    assert trace.type_N.tolist() == [NodeType.COMP, NodeType.MEM_LOAD, NodeType.COMM_COLL]


def node_002(*attributes: bytes) -> bytes:
    texts = b"".join(text(field, f"[{field}]") for field in range(5, 11))
    body = number(1, 4) + text(2, "op") + number(3, 7) + number(4, 1) + number(4, 2) + texts
    return body + b"".join(text(11, attribute) for attribute in attributes)


def test_0_0_2_has_no_metadata_and_no_unsigned_attributes() -> None:
    trace = decode_trace(
        framed(
            node_002(
                text(1, "runtime") + number(2, 2) + number(6, 31),
                text(1, "comm_type") + number(2, 2) + number(6, 1),
                text(1, "note") + number(2, 3) + text(7, "hello"),
                text(1, "involved_dim") + number(2, 4) + number(8, 1) + number(8, 0),
            )
        )
    )
    assert trace.duration_us_N.tolist() == [31]
    assert trace.data_deps.of(0).tolist() == [1, 2]
    assert [trace.strings[i] for i in trace.io_N6[0]] == [f"[{i}]" for i in range(5, 11)]
    assert attributes(trace, 0) == {
        "comm_type": CollectiveType.ALL_TO_ALL,
        "note": "hello",
        "involved_dim": (True, False),
    }


def test_0_0_3_has_metadata_and_unsigned_attributes() -> None:
    head = text(1, text(1, "schema") + number(2, 4) + text(8, "1.0.1"))
    trace = decode_trace(
        framed(
            head,
            node_002(
                text(1, "comm_size") + number(2, 2) + number(6, 2**63),
                text(1, "offset") + number(2, 3) + number(7, -4),
                text(1, "scale") + number(2, 1) + text(3, "doc") + real(5, 0.5),
                text(1, "names") + number(2, 9) + text(13, "a") + text(13, "b"),
            ),
        )
    )
    assert [(a.name, a.value) for a in trace.metadata] == [
        ("schema", "1.0.1"),
        ("converted_from_schema", "0.0.3"),
    ]
    assert attributes(trace, 0) == {
        "comm_size": 2**63,
        "offset": -4,
        "scale": 0.5,
        "names": ("a", "b"),
    }
    wires = trace.attributes.wire_A.tolist()
    assert wires == [Wire.UINT64, Wire.INT64, Wire.FLOAT, Wire.STRING + 1]


def test_old_trace_that_is_cut_off_is_refused_with_its_generation() -> None:
    whole = framed(number(1, 0) + text(2, "a") + number(3, 3) + number(7, 1) + number(12, 1))
    with pytest.raises(TraceError, match=r"message 1 .*cut off"):
        decode_trace(whole + whole[:-1], "old.et")
    with pytest.raises(TraceError, match=r"schema version 0\.0\.1 .collective type 9"):
        decode_trace(framed(number(1, 0) + text(2, "a") + number(3, 6) + number(13, 9)), "old.et")


def attributes_003(*fields: bytes) -> dict[str, object]:
    """Return the attributes of one node of 0.0.3 that holds AttributeProto messages."""
    node = number(1, 4) + text(2, "op") + number(3, 4) + b"".join(text(11, f) for f in fields)
    return attributes(decode_trace(framed(b"", node)), 0)


def packed(*values: int) -> bytes:
    return b"".join(varint(value & 2**64 - 1) for value in values)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (number(4, 1), True),
        (real(5, 0.25), 0.25),
        (number(6, 2**64 - 1), 2**64 - 1),
        (number(7, -3), -3),
        (text(8, "Größe"), "Größe"),
        (number(9, 1) + number(9, 0), (True, False)),
        (text(9, packed(1, 0)), (True, False)),
        (real(10, 0.5) + real(10, -1), (0.5, -1.0)),
        (text(10, struct.pack("<3f", 1, 2, 4)), (1.0, 2.0, 4.0)),
        (number(11, 7) + text(11, packed(8, 2**64 - 1)), (7, 8, 2**64 - 1)),
        (text(12, packed(-1, 5)), (-1, 5)),
        (text(13, "a") + text(13, ""), ("a", "")),
        (b"", None),
        (number(2, 5), None),
    ],
)
def test_values_of_0_0_3(payload: bytes, expected: object) -> None:
    assert attributes_003(text(1, "own") + payload) == {"own": expected}


def test_docs_of_attributes_stay() -> None:
    node = number(1, 4) + number(3, 4) + text(11, text(1, "a") + text(3, "why") + number(7, 2))
    trace = decode_trace(framed(b"", node))
    assert attribute_at(trace.attributes, 0, trace.strings).doc == "why"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (0, CollectiveType.ALL_REDUCE),
        (1, CollectiveType.ALL_TO_ALL),
        (2, CollectiveType.ALL_GATHER),
        (3, CollectiveType.REDUCE_SCATTER),
        (4, CollectiveType.BROADCAST),
    ],
)
@pytest.mark.parametrize("field", [6, 7])
def test_collectives_are_numbered_as_in_1_0_0(field: int, kind: int, expected: int) -> None:
    found = attributes_003(text(1, "comm_type") + number(field, kind))
    assert found == {"comm_type": expected}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (1, CollectiveType.ALL_REDUCE),
        (2, CollectiveType.ALL_TO_ALL),
        (3, CollectiveType.ALL_GATHER),
        (4, CollectiveType.REDUCE_SCATTER),
    ],
)
def test_collectives_of_0_0_1_are_numbered_otherwise(kind: int, expected: int) -> None:
    node = number(1, 1) + text(2, "c") + number(3, 6) + number(13, kind) + number(18, 8)
    assert attributes(decode_trace(framed(node)), 0)["comm_type"] == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("runtime", number(7, 31), 31),
        ("simulated_run_time", number(6, 8), 8),
        ("runtime", real(5, 2.5), 2),
        ("runtime", real(5, 3.5), 4),
        ("runtime", number(4, 1), 1),
    ],
)
def test_run_times_become_the_duration(name: str, value: bytes, expected: int) -> None:
    node = number(1, 4) + number(3, 4) + text(11, text(1, name) + value)
    trace = decode_trace(framed(b"", node))
    assert trace.duration_us_N.tolist() == [expected]
    assert attributes(trace, 0) == {}


METADATA = text(1, text(1, "host") + text(8, "x"))
SOUND = number(1, 1) + text(2, "a") + number(3, 4) + text(11, text(1, "n") + number(7, 1))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (number(1, 4) + text(3, "x"), "a number is expected where bytes stand"),
        (number(1, 4) + number(2, 5) + number(3, 4), "bytes are expected where a number stands"),
        (number(1, 4) + number(3, 8), "node type 8 does not exist in this schema version"),
        (number(3, 4) + number(11, 5), "bytes are expected where a number stands"),
        (number(3, 4) + text(11, text(1, "n") + number(5, 1)), "bytes are expected where"),
        (number(3, 4) + text(11, text(1, "n") + text(5, "abcde")), "a float does not have 4 bytes"),
        (number(3, 4) + text(11, text(1, "n") + text(7, "x")), "a number is expected where bytes"),
        (
            number(3, 4) + text(11, text(1, "comm_type") + number(7, 9)),
            "collective type 9 does not",
        ),
        (number(3, 4) + text(11, text(1, "runtime") + text(8, "long")), "the run time is 'long'"),
        (number(3, 4) + text(11, text(1, "runtime") + number(7, -1)), "the run time is -1, not"),
        (
            number(3, 4) + text(11, text(1, "runtime") + real(5, float("nan"))),
            "the run time is nan",
        ),
        (number(3, 4) + text(11, text(1, b"\xff") + number(7, 1)), "a string is not UTF-8"),
        (number(3, 4) + text(11, text(1, "n") + text(12, b"\x80")), "a field of 1 bytes stands 0"),
        (number(3, 4) + tag(12, 3), "wire type 3 is not part of this format"),
        (number(3, 4) + tag(12, 7) + b"x" * 8, "wire type 7 is not part of this format"),
    ],
)
def test_damage_in_a_later_node_is_told(node: bytes, expected: str) -> None:
    """The schema version is told from the first messages, so damage must come behind them."""
    data = framed(METADATA, *[SOUND] * 64, node)
    with pytest.raises(TraceError, match=f"x.et: is no sound Chakra .* 0.0.3 .*{expected}.*again"):
        decode_trace(data, "x.et")


def test_a_message_without_length_or_end_is_named_by_its_number() -> None:
    data = framed(METADATA, *[SOUND] * 64)
    with pytest.raises(TraceError, match=r"x\.et: message 65 at byte \d+ is cut off"):
        decode_trace(data + b"\x7f" + SOUND, "x.et")
    with pytest.raises(TraceError, match=r"x\.et: message 65 has no length"):
        decode_trace(data + b"\xff" * 12, "x.et")


def test_fixed_numbers_of_fields_that_nobody_knows_are_skipped() -> None:
    node = SOUND + tag(20, 5) + b"abcd" + tag(21, 1) + b"abcdefgh"
    assert attributes(decode_trace(framed(METADATA, node)), 0) == {"n": 1}


def test_integers_of_0_0_1_are_signed_where_the_field_is() -> None:
    node = (
        number(1, 7) + text(2, "s") + number(3, 4) + number(16, -1) + number(18, 2**40)
        + number(19, -(2**31)) + number(6, 2**64 - 1) + number(22, 1)
    )  # fmt: skip
    assert attributes(decode_trace(framed(node)), 0) == {
        "comm_src": -1,
        "comm_size": 2**40,
        "comm_tag": -(2**31),
        "tensor_size": 2**64 - 1,
        "local_mem_access_completed": True,
    }


def test_the_origin_is_told_in_the_metadata() -> None:
    trace = decode_trace(framed(METADATA, SOUND))
    assert [(a.name, a.value) for a in trace.metadata] == [
        ("host", "x"),
        ("converted_from_schema", "0.0.3"),
    ]
    assert trace.version == "1.0.0"


def test_memory_is_looked_at_while_a_long_old_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(legacy, "_LOOK", 10)
    monkeypatch.setattr(legacy, "require_memory", lambda source, error: asked.append(source))
    list(frames(framed(*[b"x"] * 35), "x.et"))
    assert asked == ["x.et"] * 3
