import json

import pytest
from host_json import MM, host_blocks, listed, node, plain, tensor, write_host

from layerdag.errors import TraceError
from layerdag.traces.pytorch import host_trace as host_scan
from layerdag.traces.pytorch.host_trace import (
    FLAT,
    OpSchema,
    argument_values,
    attribute,
    read_host_blocks,
)
from layerdag.traces.pytorch.operators import WHOLE, BlockTensors, TensorView

NODES = [node(3, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(3),)), node(5, "my scope")]


def read_host_nodes(path) -> list[tuple]:
    """Return (id, RecordFunction handle, thread, kind) of all nodes."""
    return [
        (
            *block.nodes_N[["id", "rf_id", "tid"]][row].item(),
            block.kinds[block.nodes_N["kind"][row]],
        )
        for block in read_host_blocks(path)
        for row in range(len(block.nodes_N))
    ]


def test_yields_nodes_in_file_order_with_their_attributes(tmp_path):
    nodes = read_host_nodes(write_host(tmp_path / "host.json", NODES))
    assert nodes == [
        (3, 503, 1, OpSchema("aten::mm", MM, False)),
        (5, 505, 1, OpSchema("my scope", "", False)),
    ]


@pytest.mark.parametrize("version", [v for v, flat in FLAT.items() if not flat])
def test_nested_versions_are_read_with_any_suffix(tmp_path, version):
    path = write_host(tmp_path / "host.json", NODES, schema=f"{version}-chakra.0.0.4")
    assert len(read_host_nodes(path)) == 2


def test_version_1_0_1_is_flat(tmp_path):
    flat = {
        "name": "aten::mm", "id": 9, "rf_id": 4, "parent": 2, "tid": 1, "op_schema": MM,
        "inputs": [[1, 2, 0, 16, 4, "cpu"]], "input_shapes": [[4, 4]],
        "input_types": ["Tensor(float)"], "outputs": [], "output_shapes": [], "output_types": [],
    }  # fmt: skip
    path = write_host(tmp_path / "host.json", [flat], schema="1.0.1")
    assert read_host_nodes(path) == [(9, 4, 1, OpSchema("aten::mm", MM, False))]
    (block,) = read_host_blocks(path)
    assert BlockTensors(block).view(0) == TensorView(2, 0, WHOLE, 64, (4, 4), "float32", "cpu")


def test_unknown_version_is_refused(tmp_path):
    path = write_host(tmp_path / "host.json", NODES, schema="2.7.0")
    with pytest.raises(TraceError, match=r"2\.7\.0.*not known; known are 1\.0\.1"):
        read_host_nodes(path)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_file_cut_short_is_refused(tmp_path, share):
    path = write_host(tmp_path / "host.json", NODES)
    text = path.read_text()
    path.write_text(text[: int(len(text) * share)])
    with pytest.raises(TraceError, match=r"host\.json: no valid JSON from character \d+"):
        read_host_nodes(path)


@pytest.mark.parametrize("tail", ["", "]", "x", ', "finish_ts": }', "}} {", "}[1]"])
def test_what_follows_the_list_of_nodes_is_read(tmp_path, tail):
    path = write_host(tmp_path / "host.json", NODES)
    text = path.read_text()
    whole = text[: text.rindex("]") + 1]
    path.write_text(whole + tail)
    with pytest.raises(TraceError, match="after the list of nodes"):
        read_host_nodes(path)
    path.write_text(whole + ', "finish_ts": 3}\n')
    assert read_host_nodes(path)


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "1.1.1", "traceEvents": []}', "\x00\x01"])
def test_what_is_no_host_trace_is_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=r"other\.json: no list 'nodes'"):
        read_host_nodes(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"gone\.json: there is no such file"):
        read_host_nodes(tmp_path / "gone.json")


def test_a_node_without_its_fields_is_named(tmp_path):
    broken = json.loads(json.dumps(NODES[0]))
    del broken["inputs"]["shapes"]
    with pytest.raises(TraceError, match=r"node 3 lacks or misuses field 'shapes'"):
        read_host_nodes(write_host(tmp_path / "host.json", [broken]))


def test_a_node_larger_than_the_window_is_read(tmp_path):
    large = node(3, "x" * 3_000_000)
    ((*_, kind),) = read_host_nodes(write_host(tmp_path / "host.json", [large]))
    assert len(kind.name) == 3_000_000


def accesses(*arguments: dict) -> list[tuple[int, TensorView]]:
    """Return (position, tensor) of the arguments of one node."""
    (block,) = host_blocks(node(3, "aten::mm", MM, arguments))
    held = BlockTensors(block)
    return [(held.position[at], held.view(at)) for at in range(len(block.tensors_T))]


def test_a_tensor_reaches_from_its_offset_as_far_as_its_strides():
    wide = tensor(7, (4, 2), offset=3) | {"strides": [10, 1]}
    begin, end = 3 * 4, 3 * 4 + (1 + 3 * 10 + 1) * 4
    assert accesses(wide) == [(0, TensorView(7, begin, end, 32, (4, 2), "float32", "cpu"))]


def test_without_strides_a_shape_means_the_whole_storage_and_none_the_number():
    whole = accesses(tensor(7) | {"strides": []})
    number = accesses(tensor(8, ()) | {"strides": []})
    assert (whole[0][1].end, number[0][1].end) == (WHOLE, 4)


def test_lists_give_their_tensors_in_order_and_empty_tensors_are_left_out():
    found = accesses(plain(3), listed(tensor(1), tensor(2, (0,)), tensor(3)), tensor(4))
    assert [(at, held.storage) for at, held in found] == [(1, 1), (1, 3), (2, 4)]


def test_each_tensor_of_a_list_has_its_own_type():
    mixed = listed(tensor(1), tensor(2) | {"type": "Tensor(c10::Half)"})
    assert [held.dtype for _, held in accesses(mixed)] == ["float32", "float16"]


def test_a_device_is_named_without_its_index():
    on_gpu = tensor(1)
    on_gpu["value"][5] = "cuda:3"
    assert accesses(on_gpu)[0][1].device == "cuda"


@pytest.mark.parametrize("value", [[1, 2, 3], [], ["a"], [[1, 2], [3]], None, "<Object>"])
def test_what_only_looks_like_tensors_is_none(value):
    assert accesses({"value": value, "shape": [[]], "type": "Tensor(float)", "strides": []}) == []


def test_huge_numbers_are_cut_and_do_not_wrap_around():
    huge = tensor(1)
    huge["value"][2:5] = [2**62, 2**63 - 1, 2**61]
    assert accesses(huge)[0][1][1:4] == (WHOLE, WHOLE, WHOLE)


def test_chunks_may_cut_a_file_anywhere(tmp_path, monkeypatch):
    nodes = [node(at, f"operator \\ \u00e4 {at}", MM, (tensor(at),)) for at in range(1, 40)]
    path = write_host(tmp_path / "host.json", nodes)
    monkeypatch.setattr(host_scan, "CHUNK", 7)
    blocks = list(read_host_blocks(path))
    numbers = [number for block in blocks for number in block.nodes_N["id"].tolist()]
    names = [block.kinds[kind].name for block in blocks for kind in block.nodes_N["kind"]]
    assert numbers == list(range(1, 40))
    assert names == [each["name"] for each in nodes]
    assert len(blocks) > 39


def test_tensors_of_kinds_that_nobody_asks_for_are_left_out_after_the_first_block(
    tmp_path, monkeypatch
):
    path = write_host(tmp_path / "host.json", [node(1, "a", MM, (tensor(1),))] * 3)
    monkeypatch.setattr(host_scan, "CHUNK", 600)
    blocks = list(read_host_blocks(path, lambda kind: False))
    held = [len(block.tensors_T) for block in blocks if len(block.nodes_N)]
    assert held == [1, 0, 0]


def test_numbers_that_json_lacks_do_not_end_the_import(tmp_path):
    path = write_host(tmp_path / "host.json", [node(3, "a", MM, (plain("HERE", "Double"),))])
    for word in ("NaN", "-Infinity", "inf", "-nan", "1e-7"):
        path.write_text(path.read_text().replace('"HERE"', word))
        assert sum(len(block.nodes_N) for block in read_host_blocks(path)) == 1


def test_a_node_can_be_read_as_it_is_in_the_file():
    (block,) = host_blocks(node(2, "x"), node(3, "send", "", (plain(5), plain("a", "String"))))
    raw = block.json_of(1)
    assert argument_values(raw) == [5, "a"]
    assert (attribute(raw, "tid"), attribute(raw, "pg_name")) == (1, None)


DAMAGE = [
    ('"id": 3', '"id": "3"', "misuses field 'id'"),
    ('"id": 3, ', "", "misuses field 'id'"),
    ('"ctrl_deps"', '"other"', "misuses field 'parent' or 'ctrl_deps'"),
    ('"name": "aten::mm"', '"name": 4', "node 3 lacks or misuses field 'name'"),
    ('"inputs"', '"else"', "node 3 lacks or misuses field 'inputs'"),
    ('"types"', '"typos"', "node 3 lacks or misuses field 'types'"),
    ('"attrs"', '"attr"', "node 3 lacks or misuses field 'attrs'"),
    ('"value": 503', '"value": "x"', "node 3 lacks or misuses field 'rf_id'"),
    ("16, 4", '"16", 4', "node 3 lacks or misuses field 'values'"),
    ("[4, 4]", "4", "node 3 lacks or misuses field 'values'"),
    ("[4, 4]", "[4 4]", "no valid JSON from character"),
    ('"id": 3', '"id": 3.5', "misuses field 'id'"),
    ('"ctrl_deps": 4', '"ctrl_deps": 2x', "no valid JSON from character"),
    ('"type": "uint64"', '"type": tru', "no valid JSON from character"),
    ('"type": "uint64"', '"type": "\\q"', "no valid JSON from character"),
    ('"type": "uint64"', '"type": ' + "[" * 200 + "]" * 200, "nested too deeply"),
    ("}]}, {", "}]}, 7, {", "found a value that is no object"),
]


@pytest.mark.parametrize(("sound", "broken", "message"), DAMAGE)
def test_damage_is_told_with_its_place(tmp_path, sound, broken, message):
    path = write_host(tmp_path / "host.json", [node(3, "aten::mm", MM, (tensor(1),)), node(4, "b")])
    text = path.read_text()
    assert sound in text
    path.write_text(text.replace(sound, broken, 1))
    with pytest.raises(TraceError, match=message):
        list(read_host_blocks(path))


def test_a_name_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "host.json"
    sound = json.dumps({"schema": "1.1.1", "nodes": [node(3, "HERE")]})
    path.write_bytes(sound.encode().replace(b"HERE", b"\xff\xfe"))
    with pytest.raises(TraceError, match="a name is no text"):
        list(read_host_blocks(path))
