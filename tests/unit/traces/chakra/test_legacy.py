import pytest
from trace_examples import framed, number, real, text

from layerdag.errors import TraceError
from layerdag.traces import CollectiveType, NodeType, Trace, Wire
from layerdag.traces.chakra import attribute_at, decode_trace


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
