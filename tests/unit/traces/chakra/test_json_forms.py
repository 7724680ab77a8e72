import json
from dataclasses import replace

import numpy as np
import pytest
from trace_examples import comp, pair_workload, rich_trace

from layerdag.errors import TraceError
from layerdag.traces.builder import NodeSpec, attribute_at, build_trace
from layerdag.traces.chakra.files import encode_trace
from layerdag.traces.chakra.json_forms import (
    decode_feeder_json,
    decode_trace_json,
    encode_feeder_json,
    encode_trace_json,
)
from layerdag.traces.trace import Attribute, NodeType, Wire, Workload


def feeder(*nodes: dict[str, object]) -> bytes:
    return json.dumps({"workload_graph": nodes}).encode()


def test_keys_become_columns_and_typed_attributes():
    trace = decode_feeder_json(
        feeder(
            {"Id": 3, "Name": "a", "NodeType": 4, "runtime": 12.6, "data_deps": [5], "x": "y"},
            {"Id": 5, "NodeType": 7, "comm_tag": 1, "comm_size": 8, "involved_dim": [True]},
        )
    )
    assert trace.id_N.tolist() == [3, 5]
    assert trace.duration_us_N.tolist() == [13, 0]
    assert trace.data_deps.of(0).tolist() == [5]
    assert trace.attributes.wire_A.tolist() == [Wire.STRING, Wire.INT32, Wire.INT64, Wire.BOOL + 1]


@pytest.mark.parametrize("key", ["ctrlDeps", "ctrl_deps"])
def test_both_spellings_of_control_dependencies_are_read(key):
    trace = decode_feeder_json(feeder({"Id": 3}, {"Id": 5, key: [3]}))
    assert trace.ctrl_deps.of(1).tolist() == [3]
    assert trace.names() == ["", ""]


def test_written_json_is_read_again():
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
        (b'{"workload_graph": {}}', "'workload_graph' must be a list, found {}"),
        (feeder({"Name": "a"}), "entry 0 .* no integer 'Id'"),
        (feeder({"Id": 4}, {"Id": True}), "entry 1 of 'workload_graph' has no integer 'Id'"),
        (feeder({"Id": 1, "runtime": "x"}), "node 1: 'runtime' is 'x'"),
        (feeder({"Id": 1, "num_ops": "77"}), "node 1: 'num_ops' is the text '77'; write a number"),
        (feeder({"Id": 1, "data_deps": ["0"]}), "node 1: its dependencies"),
        (feeder({"Id": 1, "x": {"a": 1}}), "node 1: 'x'"),
        (feeder({"Id": 1}, {"Id": 1}), "two nodes have id 1"),
    ],
)
def test_bad_json_is_one_sentence(data, expected):
    with pytest.raises(TraceError, match=expected):
        decode_feeder_json(data, "x.json")


def test_bytes_cannot_be_written():
    node = NodeSpec(7, "a", NodeType.COMP, attributes=(Attribute("b", Wire.BYTES, b"1"),))
    with pytest.raises(TraceError, match="node 7 carries bytes"):
        encode_feeder_json(build_trace([node]))


@pytest.mark.parametrize("depth", [2, 3, 24, 25, 250, 900])
def test_a_list_of_lists_is_no_attribute_however_deep(depth):
    nested = b"[" * depth + b"]" * depth
    data = b'{"workload_graph": [{"Id": 6, "x": ' + nested + b"}]}"
    with pytest.raises(TraceError, match=r"node 6: 'x' is .*no Chakra attribute") as caught:
        decode_feeder_json(data)
    assert len(str(caught.value)) < 220


@pytest.mark.parametrize(
    "node",
    [
        {"Id": 1, "Name": "\ud800"},
        {"Id": 1, "\udfff": 1},
        {"Id": 1, "x": "a\ud800"},
        {"Id": 1, "x": ["fine", "\ud800"]},
    ],
)
def test_half_of_a_surrogate_pair_is_refused(node):
    with pytest.raises(TraceError, match=r"half of a surrogate pair.*correct it"):
        decode_feeder_json(feeder(node), "x.json")


@pytest.mark.parametrize(
    ("value", "wire", "held"),
    [
        (True, Wire.BOOL, True),
        (-3, Wire.INT64, -3),
        (2.5, Wire.DOUBLE, 2.5),
        ("word", Wire.STRING, "word"),
        ([1, -2], Wire.INT64 + 1, (1, -2)),
        ([0.5, 2], Wire.DOUBLE + 1, (0.5, 2.0)),
        (["a", ""], Wire.STRING + 1, ("a", "")),
        ([False, True], Wire.BOOL + 1, (False, True)),
        ([], Wire.INT64 + 1, ()),
    ],
)
def test_a_further_key_gets_the_type_of_its_value(value, wire, held):
    trace = decode_feeder_json(feeder({"Id": 1, "own": value}))
    found = attribute_at(trace.attributes, 0, trace.strings)
    assert (found.name, found.wire, found.value) == ("own", wire, held)


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("is_cpu_op", Wire.BOOL),
        ("tensor_size", Wire.UINT64),
        ("comm_priority", Wire.INT32),
        ("comm_src", Wire.INT32),
        ("comm_dst", Wire.INT32),
        ("comm_tag", Wire.INT32),
        ("comm_size", Wire.INT64),
    ],
)
def test_known_integers_get_the_type_that_the_feeder_reads(name, wire):
    trace = decode_feeder_json(feeder({"Id": 1, name: 1}))
    assert trace.attributes.wire_A.tolist() == [wire]


@pytest.mark.parametrize(("given", "kept"), [(2.4, 2), (2.5, 2), (3.5, 4), (0.6, 1), (7, 7)])
def test_run_times_are_rounded_to_microseconds(given, kept):
    assert decode_feeder_json(feeder({"Id": 1, "runtime": given})).duration_us_N.tolist() == [kept]


@pytest.mark.parametrize("value", ["1e400", "NaN", "null", '"7"', "9.3e18"])
def test_run_times_that_are_no_time_are_refused(value):
    data = b'{"workload_graph": [{"Id": 1, "runtime": ' + value.encode() + b"}]}"
    with pytest.raises(TraceError, match=r"node 1: 'runtime' is .*, not an integer"):
        decode_feeder_json(data)


def test_a_list_of_different_kinds_is_refused_with_the_element_that_does_not_fit():
    with pytest.raises(TraceError, match=r"attribute 'x': 2\.5 does not fit into int64_val"):
        decode_feeder_json(feeder({"Id": 1, "x": [1, 2.5]}))
    with pytest.raises(TraceError, match="attribute 'x': string_val cannot hold 2"):
        decode_feeder_json(feeder({"Id": 1, "x": ["a", 2]}))


def test_absent_names_and_unset_attributes_are_written_as_nothing():
    unset = Attribute("unset", Wire.UNSET, None)
    nameless = Attribute("", Wire.INT64, 3)
    trace = build_trace([NodeSpec(1, "", NodeType.COMP, attributes=(unset, nameless))])
    trace = replace(
        trace,
        name_N=np.array([-1], np.int32),
        attributes=replace(trace.attributes, name_A=np.array([1, -1], np.int32)),
    )
    (row,) = json.loads(encode_feeder_json(trace))["workload_graph"]
    assert (row["Name"], row[""]) == ("", 3)
    assert set(row) == {"Id", "Name", "NodeType", "data_deps", "ctrlDeps", "runtime", ""}


def test_nothing_is_lost():
    workload = Workload((rich_trace(), *pair_workload().traces), {"1": (2, 0)})
    again = decode_trace_json(encode_trace_json(workload))
    assert [encode_trace(t) for t in again.traces] == [encode_trace(t) for t in workload.traces]
    assert again.groups == workload.groups


def test_shared_traces_are_written_once():
    trace = rich_trace()
    data = encode_trace_json(Workload((trace, trace)))
    assert len(json.loads(data)["traces"]) == 1
    first, second = decode_trace_json(data).traces
    assert first is second


@pytest.mark.parametrize(
    "change",
    [
        lambda j: j.pop("ranks"),
        lambda j: j.update(groups=[1]),
        lambda j: j["traces"][0]["nodes"][0].update(type="MAGIC"),
        lambda j: j["traces"][0]["nodes"][0].update(id="x"),
        lambda j: j["traces"][0]["nodes"][0]["attributes"][0].update(type="int65_val"),
        lambda j: j["traces"][0]["nodes"][0].pop("name"),
    ],
)
def test_damaged_json_is_refused(change):
    loaded = json.loads(encode_trace_json(pair_workload()))
    change(loaded)
    with pytest.raises(TraceError, match=r"x\.json"):
        decode_trace_json(json.dumps(loaded).encode(), "x.json")


def with_node(**changes: object) -> bytes:
    """Return the JSON of one node whose entries are changed."""
    loaded = json.loads(encode_trace_json(Workload((build_trace([comp(4, us=9)]),))))
    loaded["traces"][0]["nodes"][0].update(changes)
    return json.dumps(loaded).encode()


@pytest.mark.parametrize("ranks", [[], [-1], [0, 1], [True], [0.0], ["0"]])
def test_a_rank_must_name_a_trace_that_is_there(ranks):
    loaded = json.loads(with_node())
    loaded["ranks"] = ranks
    says = "(is not one of 0 to 0|must be a whole number)" if ranks else "it has no rank"
    with pytest.raises(TraceError, match=rf"x\.json: is no sound JSON of layerdag .*{says}"):
        decode_trace_json(json.dumps(loaded).encode(), "x.json")


@pytest.mark.parametrize("members", [[2], [-1], [0, "1"], [0.5]])
def test_a_group_must_name_ranks_that_are_there(members):
    loaded = json.loads(encode_trace_json(pair_workload()))
    loaded["groups"] = {"1": members}
    with pytest.raises(TraceError, match=r"is not one of 0 to 1|a whole number"):
        decode_trace_json(json.dumps(loaded).encode(), "x.json")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"id": 0.7}, r"nodes\[0\]\.id' must be a whole number, found 0\.7"),
        ({"id": float("inf")}, "must be a whole number, found Infinity"),
        ({"id": -1}, "it must lie in 0 to"),
        ({"start_us": "3"}, "start_us' must be a whole number, found '3'"),
        ({"duration_us": None}, "must be a whole number, found null"),
        ({"data_deps": [1.0]}, r"data_deps\[0\]' must be a whole number, found 1\.0"),
        ({"ctrl_deps": 5}, "ctrl_deps' must be a list, found 5"),
        ({"input_values": 5}, "must be a text or null, found 5"),
        ({"name": "\ud800"}, "half of a surrogate pair"),
    ],
)
def test_a_node_with_a_wrong_entry_is_refused(changes, expected):
    with pytest.raises(TraceError, match=expected):
        decode_trace_json(with_node(**changes), "x.json")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("double_val", {"bits": 2**64}),
        ("float_val", {"bits": 2**32}),
        ("double_val", {"bits": -1}),
        ("double_val", {"bits": 0.5}),
        ("double_val", 10**400),
        ("int64_val", 2**63),
        ("uint64_val", -1),
        ("string_val", {"bits": 1}),
        ("bytes_val", {"base64": "no base64"}),
        ("bytes_val", {"base64": 7}),
        ("int64_list", 7),
        ("string_list", [1]),
        ("int64_val", {}),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_refused(kind, value):
    data = with_node(attributes=[{"name": "a", "type": kind, "value": value}])
    with pytest.raises(TraceError, match=r"x\.json"):
        decode_trace_json(data, "x.json")


@pytest.mark.parametrize(
    ("wire", "value", "written"),
    [
        (Wire.DOUBLE, float("inf"), {"bits": 0x7FF0_0000_0000_0000}),
        (Wire.DOUBLE, float("-inf"), {"bits": 0xFFF0_0000_0000_0000}),
        (Wire.FLOAT, float("inf"), {"bits": 0x7F80_0000}),
        (Wire.DOUBLE, 0.1, 0.1),
        (Wire.UINT64, 2**64 - 1, 2**64 - 1),
        (Wire.BOOL, False, False),
        (Wire.BYTES, b"\x00\xff", {"base64": "AP8="}),
        (Wire.BYTES + 1, (b"", b"a"), [{"base64": ""}, {"base64": "YQ=="}]),
        (Wire.FLOAT + 1, (0.5, float("inf")), [0.5, {"bits": 0x7F80_0000}]),
    ],
)
def test_what_json_cannot_write_is_written_as_bits_or_base64(wire, value, written):
    attribute = Attribute("a", wire, value, "doc")
    node = NodeSpec(1, "n", NodeType.COMP, attributes=(attribute,))
    data = encode_trace_json(Workload((build_trace([node]),)))
    (row,) = json.loads(data)["traces"][0]["nodes"][0]["attributes"]
    assert (row["value"], row["doc"]) == (written, "doc")
    trace = decode_trace_json(data).traces[0]
    assert attribute_at(trace.attributes, 0, trace.strings) == attribute


def test_every_node_stands_on_a_line_of_its_own_and_absent_fields_are_left_out():
    trace = build_trace([comp(0), comp(1, 0)], version="1.0.0")
    lines = encode_trace_json(Workload((trace,))).decode().splitlines()
    assert [line.startswith('{"id": ') for line in lines] == [False, False, False, True, True] + [
        False
    ] * (len(lines) - 5)
    assert "input_values" not in lines[3]
    assert json.loads(lines[4])["data_deps"] == [0]


def test_nodes_without_a_name_in_the_file_get_an_empty_one():
    trace = replace(build_trace([comp(0)]), name_N=np.array([-1], np.int32))
    (node,) = json.loads(encode_trace_json(Workload((trace,))))["traces"][0]["nodes"]
    assert node["name"] == ""
