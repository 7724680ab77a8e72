import json

import pytest

from layerdag.errors import TraceError
from layerdag.traces.pytorch.host import _scan as host_scan, read_host_blocks
from layerdag.traces.pytorch.host._files import argument_values, attribute
from layerdag.traces.pytorch.operators import WHOLE, BlockTensors, TensorView
from tests.unit.traces.host_json import MM, host_blocks, listed, node, plain, tensor, write_host


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
    ('"ctrl_deps": 2', '"ctrl_deps": 2x', "no valid JSON from character"),
    ('"ctrl_deps": 2', '"ctrl_deps": tru', "no valid JSON from character"),
    ('"ctrl_deps": 2', '"ctrl_deps": "\\q"', "no valid JSON from character"),
    ('"ctrl_deps": 2', '"ctrl_deps": ' + "[" * 200 + "]" * 200, "nested too deeply"),
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
