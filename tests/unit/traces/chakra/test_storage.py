"""Storage, batch and checkpoint nodes, and fields that are newer than the schema."""

import pytest
from storage_nodes import storage_attribute

from layerdag.errors import TraceError
from layerdag.runtime.notes import NoteKind
from layerdag.traces.builder import VARINT, NodeSpec, build_trace, length_delimited, tag, varint
from layerdag.traces.chakra.files import decode_trace, encode_trace, normalize
from layerdag.traces.chakra.json_forms import decode_trace_json, encode_trace_json
from layerdag.traces.chakra.storage import (
    StorageOperation,
    storage_bytes,
    storage_operations,
)
from layerdag.traces.trace import STORAGE, Attribute, NodeType, Wire, Workload
from layerdag.validation.checking import check_trace

MOVES = {"fs.read": 4097, "page.readahead_async": 8192, "block.write": 1024, "fs.fsync": 0}


def number(field: int, value: int) -> bytes:
    return tag(field, VARINT) + varint(value)


def job():
    other = Attribute("x", Wire.INT64, 3)
    nodes = [
        NodeSpec(at, name, NodeType.STORAGE, attributes=(other, storage_attribute(name, size)))
        for at, (name, size) in enumerate(MOVES.items())
    ]
    spans = [NodeSpec(8, "batch", NodeType.BATCH), NodeSpec(9, "save", NodeType.CHECKPOINT)]
    return build_trace([*nodes, *spans])


def test_storage_nodes_are_written_as_the_schema_says_and_read_back():
    data = encode_trace(job())
    # level FS; of the file operation READ the bytes: Node.storage, field 11
    read = number(1, 1) + length_delimited(10, number(1, 3) + number(5, 4097))
    assert length_delimited(11, read) in data
    trace = decode_trace(data)
    assert (encode_trace(trace), trace.notes) == (data, ())
    assert [op.name for op in storage_operations(trace).values()] == list(MOVES)
    value_N, present_N = storage_bytes(normalize(trace))
    assert value_N.tolist() == [*MOVES.values(), 0, 0]
    assert present_N.tolist() == [True] * 4 + [False] * 2


def test_json_of_layerdag_keeps_storage_nodes():
    (trace,) = decode_trace_json(encode_trace_json(Workload((job(),)))).traces
    assert encode_trace(trace) == encode_trace(job())


def test_a_storage_node_that_does_not_say_what_it_does_is_told():
    bare = build_trace([NodeSpec(0, "s", NodeType.STORAGE)])
    assert [f.found for f in check_trace(bare) if f.rule.id == "storage-operation"]
    assert not [f for f in check_trace(job()) if f.rule.id == "storage-operation"]
    assert [f.count for f in check_trace(job()) if f.rule.id == "storage-nodes"] == [6]


def test_a_message_that_is_none_names_its_node():
    bad = NodeSpec(4, "s", NodeType.STORAGE, attributes=(Attribute(STORAGE, Wire.BYTES, b"\x08"),))
    with pytest.raises(TraceError, match="node 4 has a 'storage' that is none"):
        storage_operations(build_trace([bad]))
    assert StorageOperation.from_bytes(b"") == StorageOperation("UNKNOWN", "", 0)


NODE = number(1, 7) + number(3, 4)
META = length_delimited(1, b"1.0.0")


def framed(*messages: bytes) -> bytes:
    return b"".join(varint(len(message)) + message for message in messages)


@pytest.mark.parametrize(
    ("meta", "node", "word"),
    [
        (META, NODE + number(12, 1), "field 12 of Node"),
        (META, NODE + length_delimited(44, b"abc"), "field 44 of Node"),
        (META, NODE + length_delimited(8, number(4, 1)), "field 4 of IOInfo"),
        (META, NODE + length_delimited(10, number(40, 1)), "field 40 of AttributeProto"),
        (META, NODE + length_delimited(11, number(13, 1)), "field 13 of StorageInfo"),
        (META + number(3, 1), NODE, "field 3 of GlobalMetadata"),
        (META + length_delimited(2, number(33, 1)), NODE, "field 33 of AttributeProto"),
    ],
)
def test_newer_fields_are_noted_and_left_out(meta, node, word):
    trace = decode_trace(framed(meta, node, node), "x")
    assert [(note.kind, note.word) for note in trace.notes] == [(NoteKind.KEY, word)]
    assert trace.id_N.tolist() == [7, 7]
    kept = decode_trace(encode_trace(trace)).notes
    assert [note.word for note in kept] == ([word] if "Storage" in word else [])


def test_many_kinds_of_newer_fields_are_all_counted():
    node = NODE + b"".join(number(field, 1) for field in range(12, 40))
    notes = decode_trace(framed(META, node)).notes
    assert sum(note.count for note in notes) == 28


@pytest.mark.parametrize(("level", "detail"), [(1, length_delimited(10, number(1, 44))), (9, b"")])
def test_operations_of_a_newer_schema_are_noted_and_kept(level, detail):
    data = framed(META, NODE + length_delimited(11, number(1, level) + detail))
    trace = decode_trace(data)
    assert [note.kind for note in trace.notes] == [NoteKind.OPERATOR]
    assert encode_trace(trace) == data
