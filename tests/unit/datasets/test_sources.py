"""Every format of single files also makes a folder a data set."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest
from host_json import MM, node, tensor, write_host
from profile_json import event, kernel, launch, write_profile
from raw_graphs import chain
from small_workloads import compute, job as job_of

import layerdag as ld
from layerdag.cli.main import main
from layerdag.codec.folding import job_graph, rank_classes
from layerdag.codec.formats import FORMATS, read_graph
from layerdag.datasets.splits import content_hash
from layerdag.errors import UsageError
from layerdag.graph.formats.program_json import program_graph, write_program_json
from layerdag.traces.chakra.files import encode_trace
from layerdag.traces.chakra.json_forms import encode_feeder_json, encode_trace_json

TEXT = "DATA\n2\na -1 10 NONE 0 20 NONE 0 30 ALLREDUCE 1024 4\nb -1 5 NONE 0 6 NONE 0 7 NONE 0 4\n"
EXAMPLES = Path(__file__).parents[3] / "data/examples/programs"
PROGRAM = {
    "format": "layerdag-program/1",
    "name": "it",
    "sizes": {"B0": 4},
    "outputs": [1],
    "nodes": [
        {"operator": "input", "arguments": [{"input": ["B0"], "dtype": "float32"}]},
        {"operator": "aten.relu.default", "arguments": [{"edge": "#"}], "inputs": [0]},
    ],
}
WORKLOAD = job_of((compute(1), compute(2, 1)))
PROFILE = [event("cpu_op", "aten::mm", 0, 9), launch(1, 2), kernel(1, 8, 20)]

Write = Callable[[Path], object]
FILES: dict[str, tuple[str, Write]] = {
    "GraphML": ("g.graphml", lambda path: ld.write(chain("g", "abab"), path)),
    "DOT": ("g.dot", lambda path: ld.write(chain("g", "abab"), path)),
    "JSON of layerdag, a flow graph": ("g.json", lambda path: ld.write(chain("g", "abab"), path)),
    "WfFormat": ("g.wf.json", lambda path: ld.write(chain("g", "abab"), path)),
    "forward program": (
        "g.program.json",
        lambda path: write_program_json(path, program_graph(PROGRAM, "g")),
    ),
    "node-link JSON": (
        "g.json",
        lambda path: path.write_text(
            json.dumps(nx.node_link_data(nx.path_graph(4, create_using=nx.DiGraph), edges="links"))
        ),
    ),
    "StableHLO or HLO text": ("mlp.mlir", lambda path: shutil.copy(EXAMPLES / "mlp.mlir", path)),
    "JSON of layerdag, traces": (
        "w.json",
        lambda path: path.write_bytes(encode_trace_json(WORKLOAD)),
    ),
    "Chakra JSON of feeder v1": (
        "w.json",
        lambda path: path.write_bytes(encode_feeder_json(WORKLOAD.traces[0])),
    ),
    "Kineto profile": ("w.json", lambda path: write_profile(path, PROFILE)),
    "PyTorch execution trace": (
        "w.json",
        lambda path: write_host(
            path, [node(4, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(3),))]
        ),
    ),
    "ASTRA-sim text workload": ("w.txt", lambda path: path.write_text(TEXT)),
    "Chakra .et": (
        "w.et",
        lambda path: path.write_bytes(encode_trace(WORKLOAD.traces[0])),
    ),
}


def test_each_format_of_files_has_an_example():
    words = [
        f"{each.name}, {each.content.value}" if each.name == "JSON of layerdag" else each.name
        for each in FORMATS
        if each.endings
    ]
    assert words == list(FILES)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_alone_and_in_a_folder_is_the_same_graph(tmp_path, name, packed):
    file, write = FILES[name]
    path = tmp_path / "folder" / file
    path.parent.mkdir()
    write(path)
    if packed:
        whole = path.with_name(f"{path.name}.gz")
        whole.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        path = whole
    alone = read_graph(path)
    (path.parent / "README.txt").write_text("About this folder.")
    data = ld.load_dataset(path.parent)
    assert data.left_out == ()
    if isinstance(read := ld.read(path), ld.Workload):
        classes = rank_classes(read)
        job = job_graph("job", classes, read.groups, {}, public_words="all")
        assert data.contents["train"] == (content_hash(job),)
    else:
        assert data.contents["train"] == ld.load_dataset([path]).contents["train"]
    [found] = data.train.attributed()
    assert found.num_nodes == alone.num_nodes > 0
    assert found.edge_index_2E.shape == alone.edge_index_2E.shape
    assert found.name == file.rpartition(".")[0].removesuffix(".program")


def test_folders_of_text_and_of_compiled_programs_are_data_sets(tmp_path, capsys):
    (tmp_path / "txt").mkdir()
    for at in range(12):
        rows = [f"l{k} -1 {at} NONE 0 {k} NONE 0 9 ALLREDUCE {k + 64} 4" for k in range(at + 1)]
        text = "\n".join(["DATA", str(len(rows)), *rows, ""])
        (tmp_path / "txt" / f"w{at}.txt").write_text(text)
    data = ld.load_dataset(str(tmp_path / "txt"))
    assert [len(data[split]) for split in ("train", "val", "test")] == [8, 2, 2]
    assert sum(map(len, ld.load_dataset(EXAMPLES).graphs.values())) == 2
    small = ["--max-steps", "1", "--width", "32", "--depth", "1", "--threads", "1"]
    run = [
        "--out",
        f"{tmp_path / 'run'}",
        "logger.sample_graphs=0",
        "data.public_words=all",
        *small,
    ]
    assert main(["train", "--folder", f"{tmp_path / 'txt'}", *run]) == 0
    assert "4 graphs are held out (validation and test) beside 8" in capsys.readouterr().err


def test_a_folder_of_other_texts_is_no_data_set(tmp_path):
    (tmp_path / "README.txt").write_text("About this folder.")
    with pytest.raises(UsageError, match="is no data set"):
        ld.load_dataset(tmp_path)
