"""``ld.read``: a workload or a graph, told from the content and not from the name."""

import pytest
from raw_graphs import chain
from small_workloads import collective, compute, job
from trace_examples import pair_workload

import layerdag as ld
from layerdag.codec.folding import job_graph, rank_classes
from layerdag.codec.formats import flow_format, read, read_any, read_graph, recognize
from layerdag.errors import DataError, GraphError, TraceError
from layerdag.graph.attributed_graph import AttributedGraph, read_json, write_json
from layerdag.graph.formats.graphml import write_graphml
from layerdag.traces.chakra.files import encode_trace
from layerdag.traces.chakra.json_forms import encode_feeder_json, encode_trace_json
from layerdag.traces.chakra.workload import write_workload
from layerdag.traces.pytorch.ranks import PyTorchFile, pytorch_format
from layerdag.traces.trace import Workload


def test_json_of_a_job_and_json_of_a_graph_are_told_apart(tmp_path):
    path = tmp_path / "same.json"
    path.write_bytes(encode_trace_json(job((compute(1),), (compute(1),))))
    found = ld.read(path)
    assert isinstance(found, ld.Workload)
    assert found.num_ranks == 2
    ld.write(chain("g", "ab"), path)
    assert isinstance(ld.read(str(path)), AttributedGraph)


@pytest.mark.parametrize("content", ['{"a": 1}', "[]", "words", '{"nodes": 3}'])
def test_content_of_no_format_is_refused_with_the_file(tmp_path, content):
    path = tmp_path / "odd.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"odd\.json"):
        ld.read(path)


@pytest.mark.parametrize("name", ["cut.graphml", "cut.dot"])
def test_a_damaged_graph_is_told_as_the_graph_that_it_should_be(tmp_path, name):
    ld.write(chain("g", "abc"), tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GraphError, match="cut"):
        ld.read(tmp_path / name)


def test_what_is_handed_on_says_nothing_of_folders(tmp_path):
    folder = tmp_path / "secret"
    folder.mkdir()
    ld.write(job((compute(1),)), folder / "a.et")
    assert recognize(folder / "a.et").graph().name == "a.et"
    found = ld.diff(folder / "a.et", folder / "a.et").summary()
    assert (found["a"], found["b"]) == ("a.et", "a.et")


def test_flow_graphs_are_told_by_their_content(tmp_path):
    graph = chain("g", "aba", label=2.0)
    write_json(tmp_path / "g.json", graph)
    write_graphml(tmp_path / "g.graphml", graph)
    assert flow_format(tmp_path / "g.json") is not None
    assert flow_format(str(tmp_path / "g.graphml")) is not None
    for name in ("g.json", "g.graphml"):
        found = read_graph(tmp_path / name)
        assert found.categories["kind"] == ["a", "b", "a"]
        assert found.conditions == {"label": 2.0}
    assert read_graph(tmp_path / "g.json").name == read_json(tmp_path / "g.json").name


def test_traces_in_json_are_jobs_as_those_in_et_files(tmp_path):
    workload = job((compute(1), collective(2, 1)), (compute(1), collective(2, 1)))
    write_workload(workload, tmp_path / "w")
    (tmp_path / "w.json").write_bytes(encode_trace_json(workload))
    assert flow_format(tmp_path / "w.json") is None
    expected = job_graph("x", rank_classes(workload), workload.groups, {})
    for path in (tmp_path / "w", tmp_path / "w.json"):
        found = read_graph(path)
        assert found.categories == expected.categories
        assert found.name == path.name


@pytest.mark.parametrize("name", ["gone.json", "gone.graphml", "gone", "gone.0.et"])
def test_what_is_not_there_is_told_by_name(tmp_path, name):
    with pytest.raises(DataError, match="gone"):
        read_graph(tmp_path / name)


TEXT = b"DATA\n1\na -1 10 NONE 0 20 NONE 0 30 ALLREDUCE 1024 4\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (encode_trace(pair_workload().traces[0]), "Chakra .et"),
        (encode_feeder_json(pair_workload().traces[0]), "Chakra JSON of feeder v1"),
        (encode_trace_json(pair_workload()), "JSON of layerdag"),
        (b'{"schema": "1.1.1", "nodes": []}', "PyTorch execution trace"),
        (b'\xef\xbb\xbf {"schemaVersion": 1, "traceEvents": []}', "Kineto profile"),
        (TEXT, "ASTRA-sim text workload"),
        (b"", "Chakra .et"),
    ],
)
def test_format_is_told_from_the_content(tmp_path, data, expected):
    (tmp_path / "x").write_bytes(data)
    assert recognize(tmp_path / "x").format.name == expected


def test_names_do_not_matter(tmp_path):
    path = tmp_path / "workload.et"
    path.write_bytes(TEXT)
    assert read_any(path, num_ranks=4).num_ranks == 4
    path.write_bytes(encode_trace_json(pair_workload()))
    assert read_any(path).num_ranks == 2


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": 1}', "is JSON, but neither"),
        (b"a plain text that is no workload at all", "is a text, but no workload"),
        (b'{"traceEvents": []}', "no operator, runtime call or kernel among its events"),
    ],
)
def test_other_content_is_refused_with_a_reason(tmp_path, data, expected):
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=expected):
        read_any(path)


@pytest.mark.slow
def test_reference_files_of_this_floor_are_read(shared_data):
    for path in (shared_data / "traces" / "astra-sim_text").iterdir():
        assert read_any(path, num_ranks=8).num_ranks == 8
    for path in (shared_data / "traces" / "mlcommons_chakra").glob("json*"):
        assert read_any(path).traces[0].num_nodes > 5


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"no json at all", None),
        (b"[1, 2]", None),
        (b'{"workload_graph": []}', None),
        (b'{"schema": "1.1.1", "nodes": []}', PyTorchFile.HOST),
        (b'\xef\xbb\xbf  {"traceEvents": []}', PyTorchFile.KINETO),
        (b'{"traceEvents": [], "schema": 1, "nodes": []}', PyTorchFile.KINETO),
        (b'{"nodes": []}', None),
    ],
)
def test_files_of_pytorch_are_told_from_their_start(tmp_path, data, expected):
    (tmp_path / "x").write_bytes(data)
    assert pytorch_format(tmp_path / "x") is expected


def test_a_list_that_begins_too_late_is_told_and_not_read_as_something_else(tmp_path):
    late = tmp_path / "late.json"
    late.write_bytes(b'{"head": "' + b"x" * (1 << 20) + b'", "traceEvents": []}')
    with pytest.raises(TraceError, match=r"late\.json: no list 'traceEvents' in the first"):
        read_any(late)


def test_a_place_with_nothing_is_told(tmp_path):
    with pytest.raises(TraceError, match="no file PREFIX"):
        read_any(tmp_path)
    with pytest.raises(TraceError, match="there is no such file or folder"):
        read_any(tmp_path / "nothing")
    with pytest.raises(TraceError, match="there is no folder"):
        read_any(tmp_path / "no" / "folder")


ALONE = job((compute(1), collective(2, 1)))
PAIR = job(*[(compute(1), collective(2, 1, group="7"))] * 2, groups={"7": (0, 1)})


@pytest.mark.parametrize(
    "encode",
    [
        lambda: encode_trace(ALONE.traces[0]),
        lambda: encode_feeder_json(ALONE.traces[0]),
        lambda: encode_trace_json(ALONE),
    ],
    ids=["chakra", "feeder", "json"],
)
def test_one_rank_reads_the_same_from_each_format(tmp_path, encode):
    path = tmp_path / "file"
    path.write_bytes(encode())
    (found,) = read_any(path).traces
    assert found.id_N.tolist() == [1, 2]
    assert found.type_N.tolist() == ALONE.traces[0].type_N.tolist()
    assert found.integers("comm_size")[0].tolist() == [0, 1024]


def test_groups_that_are_given_replace_those_of_the_file(tmp_path):
    path, groups = tmp_path / "job.json", tmp_path / "groups.json"
    path.write_bytes(encode_trace_json(PAIR))
    assert read_any(path).groups == {"7": (0, 1)}
    groups.write_text('{"9": [1]}')
    found = read_any(path, groups)
    assert (found.groups, found.source) == ({"9": (1,)}, str(path))


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_text_workload_is_for_as_many_ranks_as_are_asked_for(tmp_path, ranks):
    path = tmp_path / "layers.txt"
    path.write_bytes(TEXT)
    found = read_any(str(path), num_ranks=ranks)
    assert isinstance(found, Workload)
    assert found.num_ranks == ranks
    assert len({trace.num_nodes for trace in found.traces}) == 1


def test_a_compiled_program_is_read_with_the_times_of_a_device(repository):
    path = repository / "data" / "examples" / "programs" / "mlp.mlir"
    found = ld.read(path)
    assert isinstance(found, Workload)
    assert found.num_ranks >= 1
    with pytest.raises(TraceError, match="is a compiled program, whose operations have no times"):
        read_any(path)


def test_a_flow_graph_is_told_where_traces_are_needed(tmp_path):
    write_json(tmp_path / "g.json", chain("g", "ab"))
    with pytest.raises(TraceError, match=r"is a flow graph .JSON of layerdag., where traces"):
        read_any(tmp_path / "g.json")


def test_samples_in_parts_are_told(tmp_path):
    (tmp_path / "samples.json").write_text("{}")
    with pytest.raises(TraceError, match=r"holds samples in parts.*iter_samples"):
        ld.read(tmp_path)


FOREIGN = [
    ("a.zst", b"\x28\xb5\x2f\xfd" + bytes(30), "zstd"),
    ("a.bz2", b"BZh91AY&SY" + bytes(30), "bzip2"),
    ("a.zip", b"PK\x03\x04" + bytes(40), "zip archive"),
    ("a.pt", b"PK\x03\x04" + bytes(40) + b"m/data.pkl", "torch.save"),
    ("a.pkl", b"\x80\x04\x95" + bytes(20), "pickle"),
    ("a.sqlite", b"SQLite format 3\x00" + bytes(90), "SQLite"),
    ("a.onnx", b"\x08\x07\x12\x07pytorch\x1a\x03", "ONNX"),
    ("a.pftrace", b"\x0a\x04\x50\x01\x08\x01\x0a\x02\x50\x01", "Perfetto"),
    ("a.xplane.pb", b"\x0a\x20\x08\x01\x12\x0d/device:GPU:0" + bytes(20), "XPlane"),
    ("a.mlirbc", b"ML\xefR\x01" + bytes(20), "MLIR bytecode"),
    ("a.h5", b"\x89HDF\r\n\x1a\n" + bytes(20), "HDF5"),
    ("a.parquet", b"PAR1" + bytes(20), "Parquet"),
    ("a.json", '{"nodes": []}'.encode("utf-16"), "UTF-16"),
    ("a.dot", "digraph { a -> b }".encode("utf-16"), "UTF-16"),
    ("a.graphml", b"\x28\xb5\x2f\xfd" + bytes(30), "zstd"),
    ("a.gml", b'Creator "x"\ngraph [ directed 1 ]', "GML"),
    ("a.gexf", b"<?xml version='1.0'?>\n<gexf></gexf>", "GEXF"),
    ("a.mmd", "flowchart TB\n \u00e9 --> b".encode(), "Mermaid"),
    ("a.txt", b"strict digraph { a -> b }", "ending .dot"),
    ("a.xml", b"<graphml><graph/></graphml>", "ending .graphml"),
    ("a.txt", b"DATA\n-1\n", "no workload of ASTRA-sim"),
]


@pytest.mark.parametrize(("name", "content", "told"), FOREIGN)
def test_a_file_of_another_tool_is_named(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=told) as error:
        read(tmp_path / name)
    assert str(error.value).startswith(f"{tmp_path / name}: ")
