import json
from dataclasses import replace

import numpy as np
import pytest
from trace_examples import comp, pair_workload, rich_trace

from layerdag.errors import TraceError
from layerdag.traces import Attribute, NodeType, Wire, Workload
from layerdag.traces.chakra import (
    NodeSpec,
    attribute_at,
    build_trace,
    decode_trace_json,
    encode_trace,
    encode_trace_json,
)


def test_nothing_is_lost() -> None:
    workload = Workload((rich_trace(), *pair_workload().traces), {"1": (2, 0)})
    again = decode_trace_json(encode_trace_json(workload))
    assert [encode_trace(t) for t in again.traces] == [encode_trace(t) for t in workload.traces]
    assert again.groups == workload.groups


def test_shared_traces_are_written_once() -> None:
    trace = rich_trace()
    data = encode_trace_json(Workload((trace, trace)))
    assert len(json.loads(data)["traces"]) == 1
    first, second = decode_trace_json(data).traces
    assert first is second


@pytest.mark.parametrize(
    "change",
    [
        lambda j: j.pop("ranks"),
        lambda j: j.update(ranks=[4]),
        lambda j: j.update(groups=[1]),
        lambda j: j["traces"][0]["nodes"][0].update(type="MAGIC"),
        lambda j: j["traces"][0]["nodes"][0].update(id="x"),
        lambda j: j["traces"][0]["nodes"][0]["attributes"][0].update(type="int65_val"),
        lambda j: j["traces"][0]["nodes"][0].pop("name"),
    ],
)
def test_damaged_json_is_refused(change) -> None:
    loaded = json.loads(encode_trace_json(pair_workload()))
    change(loaded)
    with pytest.raises(TraceError, match=r"x\.json"):
        decode_trace_json(json.dumps(loaded).encode(), "x.json")


def with_node(**changes: object) -> bytes:
    """Return the JSON of one node whose entries are changed."""
    loaded = json.loads(encode_trace_json(Workload((build_trace([comp(4, us=9)]),))))
    loaded["traces"][0]["nodes"][0].update(changes)
    return json.dumps(loaded).encode()


@pytest.mark.parametrize("ranks", [[-1], [0, 1], [True], [0.0], ["0"]])
def test_a_rank_must_name_a_trace_that_is_there(ranks: list[object]) -> None:
    loaded = json.loads(with_node())
    loaded["ranks"] = ranks
    with pytest.raises(TraceError, match=r"is no sound JSON of layerdag .*is not one of 0 to 0"):
        decode_trace_json(json.dumps(loaded).encode(), "x.json")


@pytest.mark.parametrize("members", [[2], [-1], [0, "1"], [0.5]])
def test_a_group_must_name_ranks_that_are_there(members: list[object]) -> None:
    loaded = json.loads(encode_trace_json(pair_workload()))
    loaded["groups"] = {"1": members}
    with pytest.raises(TraceError, match=r"is not one of 0 to 1"):
        decode_trace_json(json.dumps(loaded).encode(), "x.json")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"id": 0.7}, "0.7 is no integer"),
        ({"id": float("inf")}, "inf is no integer"),
        ({"id": -1}, "it must lie in 0 to"),
        ({"start_us": "3"}, "'3' is no integer"),
        ({"duration_us": None}, "None is no integer"),
        ({"data_deps": [1.0]}, "1.0 is no integer"),
        ({"ctrl_deps": 5}, "not iterable"),
        ({"input_values": 5}, "5 is no string"),
        ({"name": "\ud800"}, "half of a surrogate pair"),
    ],
)
def test_a_node_with_a_wrong_entry_is_refused(changes: dict[str, object], expected: str) -> None:
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
def test_a_value_that_its_type_cannot_hold_is_refused(kind: str, value: object) -> None:
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
def test_what_json_cannot_write_is_written_as_bits_or_base64(
    wire: int, value: object, written: object
) -> None:
    attribute = Attribute("a", wire, value, "doc")
    node = NodeSpec(1, "n", NodeType.COMP, attributes=(attribute,))
    data = encode_trace_json(Workload((build_trace([node]),)))
    (row,) = json.loads(data)["traces"][0]["nodes"][0]["attributes"]
    assert (row["value"], row["doc"]) == (written, "doc")
    trace = decode_trace_json(data).traces[0]
    assert attribute_at(trace.attributes, 0, trace.strings) == attribute


def test_every_node_stands_on_a_line_of_its_own_and_absent_fields_are_left_out() -> None:
    trace = build_trace([comp(0), comp(1, 0)], version="1.0.0")
    lines = encode_trace_json(Workload((trace,))).decode().splitlines()
    assert [line.startswith('{"id": ') for line in lines] == [False, False, False, True, True] + [
        False
    ] * (len(lines) - 5)
    assert "input_values" not in lines[3]
    assert json.loads(lines[4])["data_deps"] == [0]


def test_nodes_without_a_name_in_the_file_get_an_empty_one() -> None:
    trace = replace(build_trace([comp(0)]), name_N=np.array([-1], np.int32))
    (node,) = json.loads(encode_trace_json(Workload((trace,))))["traces"][0]["nodes"]
    assert node["name"] == ""


def test_a_workload_without_ranks_is_refused() -> None:
    loaded = json.loads(with_node())
    loaded["ranks"] = []
    with pytest.raises(TraceError, match=r"x\.json: is no sound JSON .*it has no rank"):
        decode_trace_json(json.dumps(loaded).encode(), "x.json")
