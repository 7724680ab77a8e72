import json

import pytest
from trace_examples import pair_workload

from layerdag.errors import TraceError
from layerdag.traces import Attribute, NodeType, Wire
from layerdag.traces.chakra import NodeSpec, build_trace, decode_feeder_json, encode_feeder_json


def feeder(*nodes: dict[str, object]) -> bytes:
    return json.dumps({"workload_graph": nodes}).encode()


def test_keys_become_columns_and_typed_attributes() -> None:
    trace = decode_feeder_json(
        feeder(
            {"Id": 3, "Name": "a", "NodeType": 4, "runtime": 12.6, "data_deps": [5], "x": "y"},
            {"Id": 5, "NodeType": 7, "comm_tag": 1, "comm_size": 8, "involved_dim": [True]},
        )
    )
    assert trace.id_N.tolist() == [3, 5]
    assert trace.duration_us_N.tolist() == [13, 0]
    assert trace.data_deps.of(0).tolist() == [5]
    assert trace.attributes.wire_A.tolist() == [
        Wire.STRING,
        Wire.INT32,
        Wire.INT64,
        Wire.BOOL + 1,
    ]


@pytest.mark.parametrize("key", ["ctrlDeps", "ctrl_deps"])
def test_both_spellings_of_control_dependencies_are_read(key: str) -> None:
    trace = decode_feeder_json(feeder({"Id": 3}, {"Id": 5, key: [3]}))
    assert trace.ctrl_deps.of(1).tolist() == [3]
    assert trace.names() == ["", ""]


def test_written_json_is_read_again() -> None:
    trace = pair_workload().traces[0]
    again = decode_feeder_json(encode_feeder_json(trace))
    assert again.id_N.tolist() == trace.id_N.tolist()
    assert again.attributes.word_A.tolist() == trace.attributes.word_A.tolist()
    assert again.attributes.wire_A.tolist() == trace.attributes.wire_A.tolist()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"{", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b'{"workload_graph": {}}', "no list"),
        (feeder({"Name": "a"}), "entry 0 .* no integer 'Id'"),
        (feeder({"Id": 1, "runtime": "x"}), "node 1: 'runtime' is 'x'"),
        (feeder({"Id": 1, "data_deps": ["0"]}), "node 1: its dependencies"),
        (feeder({"Id": 1, "x": {"a": 1}}), "node 1: 'x'"),
        (feeder({"Id": 1}, {"Id": 1}), "two nodes have id 1"),
    ],
)
def test_bad_json_is_one_sentence(data: bytes, expected: str) -> None:
    with pytest.raises(TraceError, match=expected):
        decode_feeder_json(data, "x.json")


def test_bytes_cannot_be_written() -> None:
    node = NodeSpec(7, "a", NodeType.COMP, attributes=(Attribute("b", Wire.BYTES, b"1"),))
    with pytest.raises(TraceError, match="node 7 carries bytes"):
        encode_feeder_json(build_trace([node]))
