import gzip
import json
import lzma

import pytest

from layerdag.errors import TraceError
from layerdag.traces.pytorch.host import read_host_blocks
from layerdag.traces.pytorch.host._files import FLAT
from layerdag.traces.pytorch.host._scan import OpSchema
from layerdag.traces.pytorch.operators import WHOLE, BlockTensors, TensorView
from tests.unit.traces.host_json import MM, node, tensor, write_host

NODES = [
    node(3, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(3),)),
    node(5, "my scope"),
]


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


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_compressed_files_are_recognized_by_content(tmp_path, compress):
    plain = write_host(tmp_path / "host.json", NODES)
    packed = tmp_path / "whatever.bin"
    packed.write_bytes(compress(plain.read_bytes()))
    assert read_host_nodes(packed) == read_host_nodes(plain)


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


def test_a_cut_gzip_file_is_refused(tmp_path):
    data = gzip.compress(write_host(tmp_path / "host.json", NODES).read_bytes())
    (tmp_path / "cut.json.gz").write_bytes(data[:-20])
    with pytest.raises(TraceError, match=r"cut\.json\.gz"):
        read_host_nodes(tmp_path / "cut.json.gz")


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
