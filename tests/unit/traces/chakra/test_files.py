"""Chakra files of every generation, and the verbs info, convert and view on small ones."""

import gzip
import json
import lzma
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from trace_examples import (
    coll,
    comp,
    framed,
    message,
    number,
    pair_workload,
    real,
    rich_trace,
    text,
)

from layerdag.cli.main import main
from layerdag.errors import TraceError
from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.builder import NodeSpec, attribute_at, build_trace, tag, varint
from layerdag.traces.chakra import files
from layerdag.traces.chakra.files import (
    FEEDER_WIRES,
    decode_trace,
    detect_schema_version,
    encode_trace,
    normalize,
    read_trace,
    without_nodes,
    write_trace,
)
from layerdag.traces.chakra.json_forms import decode_trace_json, encode_trace_json
from layerdag.traces.chakra.workload import read_workload, write_workload
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire, Workload


@pytest.fixture
def job(tmp_path: Path) -> str:
    write_workload(Workload(pair_workload().traces, {"1": (0, 1)}), tmp_path / "in" / "job")
    return str(tmp_path / "in" / "job")


def test_info_as_text_and_json(job, capsys):
    assert main(["info", job]) == 0
    text = capsys.readouterr().out
    assert "2 ranks, 6 nodes, Chakra 1.0.0" in text
    assert "all ranks (2): ALL_REDUCE 1; 1 KiB per rank" in text
    assert "messages: 1 matched, 64 B" in text
    assert main(["info", job, "--json"]) == 0
    loaded = json.loads(capsys.readouterr().out)
    assert loaded["num_ranks"] == 2
    assert loaded["ranks"][0]["types"] == {"COMP": 1, "COMM_SEND": 1, "COMM_COLL": 1}


def test_info_joins_ranks_with_equal_figures(tmp_path, capsys):
    traces = [build_trace([comp(at, us=us)]) for at, us in enumerate((5, 5, 7, 5))]
    write_workload(Workload(tuple(traces)), tmp_path / "x")
    assert main(["info", str(tmp_path / "x")]) == 0
    assert "rank 0-1,3\n" in capsys.readouterr().out


def test_convert_to_json_and_back_loses_nothing(job, tmp_path):
    middle, out = str(tmp_path / "x.json"), str(tmp_path / "out" / "job")
    assert main(["convert", job, "--to", "json", "--out", middle]) == 0
    assert main(["convert", middle, "--out", out]) == 0
    first, second = read_workload(job), read_workload(out)
    assert list(map(encode_trace, first.traces)) == list(map(encode_trace, second.traces))
    assert first.groups == second.groups


def test_convert_writes_feeder_json_of_every_rank(job, tmp_path):
    assert main(["convert", job, "--to", "feeder-json", "--out", str(tmp_path / "f")]) == 0
    loaded = json.loads((tmp_path / "f.1.json").read_text())
    assert [node["Id"] for node in loaded["workload_graph"]] == [0, 1, 2]


def test_convert_takes_a_prefix_with_the_ending_of_its_files(job, tmp_path, capsys):
    assert main(["convert", job, "--out", str(tmp_path / "mine.et")]) == 0
    assert read_workload(tmp_path / "mine").num_ranks == 2
    assert f"wrote 2 ranks with 6 nodes: {tmp_path}/mine.0.et and 1 more" in capsys.readouterr().err
    feeder = ["convert", job, "--to", "feeder-json", "--out", str(tmp_path / "mine.json")]
    assert main(feeder) == 0
    assert (tmp_path / "mine.1.json").is_file()


def test_convert_drops_dangling_only_when_told(tmp_path, capsys):
    write_trace(build_trace([comp(4, ctrl=(1,))]), tmp_path / "x.et")
    words = ["convert", str(tmp_path / "x.et"), "--out", str(tmp_path / "out")]
    assert main(words) == 1
    assert "--drop-dangling" in capsys.readouterr().err
    assert main([*words, "--drop-dangling"]) == 0
    assert "dropped 1 dependencies" in capsys.readouterr().err
    assert read_trace(tmp_path / "out.0.et").num_nodes == 1


@pytest.fixture
def rank_of_four(tmp_path: Path) -> str:
    """A profile of one rank whose collective joins ranks 0 and 2 of four."""
    told = {"Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float",
            "Process Group Ranks": "[0, 2]"}  # fmt: skip
    events = [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0, "dur": 2,
         "pid": 1, "tid": 7, "args": {"correlation": 1}},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_RING_LL(ncclDevComm*)",
         "ts": 3, "dur": 9, "pid": 1, "tid": 7,
         "args": {"correlation": 1, "device": 0, "stream": 7, **told}},
    ]  # fmt: skip
    profile = {"schemaVersion": 1, "distributedInfo": {"world_size": 4}, "traceEvents": events}
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile))
    return str(path)


def test_one_rank_of_a_larger_job_is_imported_alone_or_for_every_rank(
    rank_of_four, tmp_path, capsys
):
    out = str(tmp_path / "out" / "job")
    assert main(["convert", rank_of_four, "--out", out]) == 1
    error = capsys.readouterr().err
    assert (
        "rank 0: 2 nodes from the profile; the operator of 0.0 % of its kernels is known" in error
    )
    assert f"{rank_of_four}: is one rank of a job of 4" in error
    assert "--only-rank" in error
    assert "--replicate" in error
    assert main(["convert", rank_of_four, "--only-rank", "--out", out]) == 0
    said = capsys.readouterr().err
    assert "one rank of 4, taken alone: 1 collectives and 0 messages of 400 bytes became" in said
    assert "wrote 1 rank with 2 nodes" in said
    assert read_workload(out).num_ranks == 1
    assert main(["convert", rank_of_four, "--replicate", "--out", out + "4"]) == 0
    assert "every one of 4 ranks runs this trace" in capsys.readouterr().err
    assert read_workload(out + "4").groups == {"1": (0, 2), "2": (1, 3)}


def test_flags_for_one_rank_exclude_each_other_and_other_formats(rank_of_four, job, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["convert", rank_of_four, "--only-rank", "--replicate", "--out", "x"])
    assert "not allowed with" in capsys.readouterr().err
    assert main(["convert", job, "--only-rank", "--out", "x"]) == 2
    assert "are for PyTorch's traces" in capsys.readouterr().err


def test_convert_scrubs_and_says_what_it_removed(tmp_path, capsys):
    write_trace(build_trace([comp(4, name="MySecret")]), tmp_path / "x.et")
    words = ["convert", str(tmp_path / "x.et"), "--scrub", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert "scrubbed: 1 names replaced" in capsys.readouterr().err
    assert b"MySecret" not in (tmp_path / "out.0.et").read_bytes()


@pytest.mark.parametrize("suffix", ["svg", "html", "graphml", "dot", "json"])
def test_view_writes_what_the_suffix_says(job, tmp_path, suffix):
    out = tmp_path / f"x.{suffix}"
    assert main(["view", job, "--rank", "1", "--out", str(out)]) == 0
    assert out.stat().st_size > 100


def test_a_page_has_simulated_times_where_they_are_asked_for(job, tmp_path):
    page = tmp_path / "x.html"
    assert main(["view", job, "--simulate", "small", "--rank", "1", "--out", str(page)]) == 0
    assert (
        "simulated, cluster \u201csmall\u201d, rank 1"
        in json.loads(page.read_text().partition('id="data">')[2].partition("</script>")[0])[
            "timing"
        ]["source"]
    )


def test_view_json_is_lossless_and_chrome_is_a_timeline(job, tmp_path):
    assert main(["view", job, "--out", str(tmp_path / "x.json")]) == 0
    again = decode_trace_json((tmp_path / "x.json").read_bytes())
    assert again.num_ranks == 2
    assert main(["view", job, "--to", "chrome", "--out", str(tmp_path / "t.json")]) == 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["view", "JOB", "--out", "x.foo"], "the suffix must be one of .svg"),
        (["view", "JOB", "--out", "x"], "the suffix must be one of .svg"),
        (["view", "JOB", "--to", "picture", "--out", "x.json"], "needs the suffix .svg"),
        (["view", "JOB", "--rank", "2", "--out", "x.svg"], "ranks 0 to 1"),
        (["view", "JOB", "--simulate", "small", "--out", "x.svg"], "--simulate needs a page"),
        (["view", "JOB", "--compute", "h100", "--out", "x.html"], "--compute says how fast"),
        (["convert", "JOB", "--out", "x.json"], "a prefix is needed"),
        (["convert", "JOB", "--to", "feeder-json", "--out", "x.et"], "a prefix is needed"),
    ],
)
def test_wrong_use_is_code_two(job, words, expected, capsys):
    assert main([job if word == "JOB" else word for word in words]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["info", "convert", "view"])
def test_damaged_trace_is_one_line_and_no_file(tmp_path, verb, capsys):
    bad = tmp_path / "bad.et"
    bad.write_bytes(encode_trace(rich_trace())[:-4])
    out = tmp_path / "out.svg" if verb == "view" else tmp_path / "out"
    flags = [] if verb == "info" else ["--out", str(out)]
    assert main([verb, str(bad), *flags]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "bad.et" in message
    assert sorted(tmp_path.iterdir()) == [bad]


def test_flow_graphs_are_drawn_too(job, tmp_path):
    graph = tmp_path / "g.graphml"
    assert main(["view", job, "--out", str(graph)]) == 0
    assert main(["view", str(graph), "--out", str(tmp_path / "g.json")]) == 0
    assert main(["view", str(tmp_path / "g.json"), "--out", str(tmp_path / "g.html")]) == 0
    assert "COMM_COLL" in (tmp_path / "g.html").read_text()
    assert main(["view", str(graph), "--to", "chrome", "--out", str(tmp_path / "t")]) == 2


def test_a_job_of_too_many_ranks_is_not_written(tmp_path, job, capsys):
    out = str(tmp_path / "out" / "x")
    assert main(["convert", job, "--max-ranks", "1", "--out", out]) == 2
    assert "2 ranks are more than max_ranks, 1" in capsys.readouterr().err
    assert main(["convert", job, "--max-bytes", "100", "--out", out]) == 2
    assert "more than max_bytes" in capsys.readouterr().err
    text = tmp_path / "x.txt"
    text.write_text("DATA\n1\nconv -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 8 1\n")
    assert main(["convert", str(text), "--ranks", "40000000", "--out", out]) == 2
    assert "40,000,000 ranks are more than max_ranks" in capsys.readouterr().err
    shared = json.loads(encode_trace_json(Workload((build_trace([comp(0)]),))))
    shared["ranks"] = [0] * 5000
    (tmp_path / "shared.json").write_text(json.dumps(shared))
    assert main(["convert", str(tmp_path / "shared.json"), "--out", out]) == 2
    assert "5,000 ranks are more than max_ranks" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["et", "feeder-json"])
def test_convert_replaces_a_workload_only_when_told(job, tmp_path, kind, capsys):
    out = str(tmp_path / "out" / "job")
    command = ["convert", job, "--to", kind, "--out", out]
    assert main(command) == 0
    assert main(command) == 2
    assert "lies there already" in capsys.readouterr().err.splitlines()[-1]
    assert main([*command, "--overwrite"]) == 0


def test_convert_in_place_does_not_lose_the_original(job):
    folder = Path(job).parent
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["convert", job, "--scrub", "--out", job]) == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_file_of_another_rank_is_not_mixed_into_feeder_files(job, tmp_path, capsys):
    (tmp_path / "job.5.json").write_text("precious")
    command = ["convert", job, "--to", "feeder-json", "--out", str(tmp_path / "job")]
    assert main([*command, "--overwrite"]) == 2
    assert "would mix the two" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "job.5.json").read_text() == "precious"


def test_no_file_replaces_a_folder(job, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").touch()
    assert main(["convert", job, "--to", "json", "--out", str(tmp_path / "thesis")]) == 2
    assert (tmp_path / "thesis" / "chapter").is_file()


def everything(trace: Trace) -> list[object]:
    table = trace.attributes
    rows = range(table.wire_A.size)
    io = [[i if i < 0 else trace.strings[i] for i in row] for row in trace.io_N6.tolist()]
    return [
        trace.id_N.tolist(),
        trace.names(),
        trace.type_N.tolist(),
        trace.start_us_N.tolist(),
        trace.duration_us_N.tolist(),
        [trace.data_deps.of(row).tolist() for row in range(trace.num_nodes)],
        [trace.ctrl_deps.of(row).tolist() for row in range(trace.num_nodes)],
        io,
        table.ptr_N1.tolist(),
        [attribute_at(table, row, trace.strings) for row in rows],
        trace.version,
        trace.metadata,
    ]


def test_writing_what_was_read_gives_the_same_bytes():
    data = encode_trace(rich_trace())
    assert encode_trace(decode_trace(data)) == data


def test_bytes_are_those_of_the_schema():
    # Node {id: 1, name: "a", type: COMP, data_deps: [0], duration_micros: 5, attr: is_cpu_op false}
    trace = build_trace([comp(1, 0, name="a")], version="")
    node = b"\x08\x01\x12\x01a\x18\x04\x2a\x01\x00\x38\x05\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00"
    assert encode_trace(trace) == b"\x00" + bytes([len(node)]) + node


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_packing_is_told_from_the_content(tmp_path, pack):
    path = tmp_path / "trace.bin"
    path.write_bytes(pack(encode_trace(rich_trace())))
    assert everything(read_trace(path)) == everything(rich_trace())


def test_unpacked_dependencies_are_read_too():
    node = number(1, 4) + number(5, 1) + number(5, 2) + number(4, 3)
    trace = decode_trace(framed(b"", node))
    assert trace.data_deps.of(0).tolist() == [1, 2]
    assert trace.ctrl_deps.of(0).tolist() == [3]


def test_last_value_of_a_repeated_scalar_wins():
    trace = decode_trace(framed(b"", number(1, 4) + number(1, 5) + text(2, "a") + text(2, "b")))
    assert trace.id_N.tolist() == [5]
    assert trace.names() == ["b"]


def test_a_varint_may_have_ten_bytes():
    trace = decode_trace(framed(b"", b"\x08" + b"\xff" * 9 + b"\x01"))
    assert trace.id_N.tolist() == [2**64 - 1]
    # Bits beyond the 64th are cut off, as protobuf does.
    trace = decode_trace(framed(b"", b"\x08" + b"\xff" * 9 + b"\x7f"))
    assert trace.id_N.tolist() == [2**64 - 1]


@pytest.mark.parametrize("word", ["é", "\u0800", "矩阵", "\ud7ff", "𐀀", "🔥 gemm", "\U0010ffff"])
def test_names_are_any_text_that_utf8_can_hold(word):
    assert decode_trace(framed(b"", number(1, 7) + text(2, word))).names() == [word]
    listed = framed(b"", number(1, 7) + text(10, text(1, "list") + text(30, text(1, word))))
    assert word.encode() in encode_trace(decode_trace(listed))


@pytest.mark.parametrize(
    "written",
    [b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80"],
)
def test_overlong_forms_and_what_lies_beyond_unicode_are_refused(written):
    with pytest.raises(TraceError, match="not UTF-8"):
        decode_trace(framed(b"", number(1, 7) + text(2, written)))
    with pytest.raises(TraceError, match="not UTF-8"):
        decode_trace(framed(b"", number(1, 7) + text(10, text(30, text(1, written)))))


def test_the_length_of_a_message_takes_five_bytes_at_most():
    node = number(1, 7)
    five = bytes([0x80 | len(node), 0x80, 0x80, 0x80, 0])
    assert decode_trace(framed(b"") + five + node).id_N.tolist() == [7]
    six = bytes([0x80 | len(node), 0x80, 0x80, 0x80, 0x80, 0])
    with pytest.raises(TraceError, match="too long"):
        decode_trace(framed(b"") + six + node)


def test_no_empty_node_is_written():
    # Python tools take a message of length 0 for the end of the file.
    trace = decode_trace(framed(b"", b"", number(1, 1)))
    assert trace.id_N.tolist() == [0, 1]
    assert encode_trace(trace) == framed(b"", number(1, 0), number(1, 1))


def test_metadata_attributes_of_the_first_0_0_4_files_are_read():
    attribute = text(1, "schema") + text(29, "x")
    trace = decode_trace(framed(text(1, attribute), number(1, 4)))
    assert [(a.name, a.value) for a in trace.metadata] == [("schema", "x")]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (framed(b"", number(1, 7) + text(2, "abc"))[:-1], "is cut off"),
        (framed(b"") + b"\xff\xff\xff\xff\xff\xff\x01", "too long"),
        (framed(b"", b"\x08" + b"\x80" * 10 + b"\x01"), "too long"),
        (
            framed(b"", number(1, 7) + text(10, text(8, text(1, b"\x80" * 10 + b"\x01")))),
            "too long",
        ),
        (framed(b"", number(1, 7) + number(3, 11)), "node number 0 (id 7).*type 11"),
        (framed(b"", number(1, 7) + number(1 << 29, 8)), "node number 0 (id 7).*field 536870912"),
        (framed(b"", number(1, 7) + number(11, 8)), "node number 0 (id 7).*field 11"),
        (framed(b"", number(1, 7) + text(11, number(10, 1))), "node number 0 (id 7).*field 11"),
        (framed(b"", number(1, 7) + text(2, b"\xff\xfe")), "not UTF-8"),
        (framed(b"", number(1, 7) + text(10, text(30, number(1, 1)))), "(id 7).*field 1"),
        (framed(b"", number(1, 7) + text(10, text(28, text(1, b"\x80")))), "(id 7).*cut off"),
        (framed(b"", number(1, 7) + text(10, text(30, text(1, b"\xed\xa0\x80")))), "not UTF-8"),
        (framed(text(2, text(30, number(1, 1))), number(1, 7)), "string_list holds an element"),
        (framed(text(1, "9.9.9"), number(1, 7)), "version '9.9.9'; known are 0.0.4, 1.0.0"),
        (framed(number(1, 7) + text(10, text(1, "a"))), "empty GlobalMetadata"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "no Chakra trace"),
        (b"", "does not begin with Chakra metadata"),
        (b' {"traceEvents": []}', "is JSON, no Chakra trace .*layerdag convert"),
        (framed(number(1, 7) + text(5, b"\x01")), "begins with a node"),
    ],
)
def test_bad_bytes_are_one_sentence(data, expected):
    pattern = expected.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(TraceError, match=pattern) as caught:
        decode_trace(data, "some.et")
    assert "some.et" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_length_of_four_gigabytes_allocates_nothing():
    import tracemalloc

    tracemalloc.start()
    with pytest.raises(TraceError, match="cut off"):
        decode_trace(framed(b"") + b"\xff\xff\xff\xff\x0f" + b"\x08\x01")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize("cut", range(1, 60))
def test_every_truncation_is_refused_or_a_whole_prefix(cut):
    whole = encode_trace(rich_trace())
    try:
        trace = decode_trace(whole[:-cut])
    except TraceError:
        return
    assert trace.num_nodes < rich_trace().num_nodes


def test_missing_empty_and_folder_are_named(tmp_path):
    (tmp_path / "empty.et").touch()
    for name, expected in [("no.et", "no such file"), ("empty.et", "empty"), ("", "folder")]:
        with pytest.raises(TraceError, match=expected):
            read_trace(tmp_path / name)


@pytest.mark.slow
def test_every_reference_trace_is_written_byte_for_byte(shared_data):
    from layerdag.runtime.reading import read_whole

    paths = [p for pattern in ("*.et", "*.et.gz", "*.et.xz") for p in shared_data.rglob(pattern)]
    assert len(paths) > 1000
    for path in paths:
        data = read_whole(path)
        assert encode_trace(decode_trace(data, str(path))) == data, path


@pytest.mark.parametrize(
    "head", [b"\x80\x00", b"\x80\x80\x80\x00", b"\x87\x80\x00" + text(1, "1.0.0")]
)
def test_a_length_may_have_more_bytes_than_it_needs(head):
    """Protocol Buffers allow it; the first node begins behind all of them."""
    node = number(1, 5) + text(2, "a") + number(3, 4)
    assert decode_trace(head + framed(node)).id_N.tolist() == [5]


def attributes(trace: Trace, row: int) -> dict[str, object]:
    table = trace.attributes
    found = [
        attribute_at(table, at, trace.strings)
        for at in range(table.ptr_N1[row], table.ptr_N1[row + 1])
    ]
    return {a.name: a.value for a in found}


def test_0_0_1():
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


def test_drafts_before_0_0_1_number_node_types_differently():
    comp = number(1, 0) + text(2, "mm") + number(3, 4) + number(7, 12)
    load = number(1, 1) + text(2, "w") + number(3, 1) + number(6, 77)
    coll = number(1, 2) + text(2, "ar") + number(3, 7) + number(13, 1) + number(18, 8)
    trace = decode_trace(framed(comp, load, coll))
    assert trace.type_N.tolist() == [NodeType.COMP, NodeType.MEM_LOAD, NodeType.COMM_COLL]


def node_002(*attributes: bytes) -> bytes:
    texts = b"".join(text(field, f"[{field}]") for field in range(5, 11))
    body = number(1, 4) + text(2, "op") + number(3, 7) + number(4, 1) + number(4, 2) + texts
    return body + b"".join(text(11, attribute) for attribute in attributes)


def test_0_0_2_has_no_metadata_and_no_unsigned_attributes():
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


def test_0_0_3_has_metadata_and_unsigned_attributes():
    head = text(1, text(1, "schema") + number(2, 4) + text(8, "1.0.1"))
    trace = decode_trace(
        framed(
            head,
            node_002(
                text(1, "comm_size") + number(2, 2) + number(6, 2**63),
                text(1, "offset") + number(2, 3) + number(7, -4),
                text(1, "scale") + number(2, 1) + text(3, "why") + real(5, 0.5),
                text(1, "names") + number(2, 9) + text(13, "a") + text(13, "b"),
            ),
        )
    )
    assert trace.version == "1.0.0"
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
    assert attribute_at(trace.attributes, 2, trace.strings).doc == "why"
    wires = trace.attributes.wire_A.tolist()
    assert wires == [Wire.UINT64, Wire.INT64, Wire.FLOAT, Wire.STRING + 1]


def test_old_trace_that_is_cut_off_is_refused_with_its_generation():
    whole = framed(number(1, 0) + text(2, "a") + number(3, 3) + number(7, 1) + number(12, 1))
    with pytest.raises(TraceError, match=r"message 1 .*cut off"):
        decode_trace(whole + whole[:-1], "old.et")
    with pytest.raises(TraceError, match=r"schema version 0\.0\.1 .collective type 9"):
        decode_trace(framed(number(1, 0) + text(2, "a") + number(3, 6) + number(13, 9)), "old.et")


def attributes_003(*fields: bytes) -> dict[str, object]:
    """Return the attributes of one node of 0.0.3 that holds AttributeProto messages."""
    node = number(1, 4) + text(2, "op") + number(3, 4) + b"".join(text(11, f) for f in fields)
    return attributes(decode_trace(framed(b"", node)), 0)


def packed(*values: int) -> bytes:
    return b"".join(varint(value & 2**64 - 1) for value in values)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (number(4, 1), True),
        (real(5, 0.25), 0.25),
        (number(6, 2**64 - 1), 2**64 - 1),
        (number(7, -3), -3),
        (text(8, "Größe"), "Größe"),
        (number(9, 1) + number(9, 0), (True, False)),
        (text(9, packed(1, 0)), (True, False)),
        (real(10, 0.5) + real(10, -1), (0.5, -1.0)),
        (text(10, struct.pack("<3f", 1, 2, 4)), (1.0, 2.0, 4.0)),
        (number(11, 7) + text(11, packed(8, 2**64 - 1)), (7, 8, 2**64 - 1)),
        (text(12, packed(-1, 5)), (-1, 5)),
        (text(13, "a") + text(13, ""), ("a", "")),
        (b"", None),
        (number(2, 5), None),
    ],
)
def test_values_of_0_0_3(payload, expected):
    assert attributes_003(text(1, "own") + payload) == {"own": expected}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (0, CollectiveType.ALL_REDUCE),
        (1, CollectiveType.ALL_TO_ALL),
        (2, CollectiveType.ALL_GATHER),
        (3, CollectiveType.REDUCE_SCATTER),
        (4, CollectiveType.BROADCAST),
    ],
)
@pytest.mark.parametrize("field", [6, 7])
def test_collectives_are_numbered_as_in_1_0_0(field, kind, expected):
    found = attributes_003(text(1, "comm_type") + number(field, kind))
    assert found == {"comm_type": expected}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (1, CollectiveType.ALL_REDUCE),
        (2, CollectiveType.ALL_TO_ALL),
        (3, CollectiveType.ALL_GATHER),
        (4, CollectiveType.REDUCE_SCATTER),
    ],
)
def test_collectives_of_0_0_1_are_numbered_otherwise(kind, expected):
    node = number(1, 1) + text(2, "c") + number(3, 6) + number(13, kind) + number(18, 8)
    assert attributes(decode_trace(framed(node)), 0)["comm_type"] == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("runtime", number(7, 31), 31),
        ("simulated_run_time", number(6, 8), 8),
        ("runtime", real(5, 2.5), 2),
        ("runtime", real(5, 3.5), 4),
        ("runtime", number(4, 1), 1),
    ],
)
def test_run_times_become_the_duration(name, value, expected):
    node = number(1, 4) + number(3, 4) + text(11, text(1, name) + value)
    trace = decode_trace(framed(b"", node))
    assert trace.duration_us_N.tolist() == [expected]
    assert attributes(trace, 0) == {}


METADATA = text(1, text(1, "host") + text(8, "x"))
SOUND = number(1, 1) + text(2, "a") + number(3, 4) + text(11, text(1, "n") + number(7, 1))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (number(1, 4) + text(3, "x"), "a number is expected where bytes stand"),
        (number(1, 4) + number(2, 5) + number(3, 4), "bytes are expected where a number stands"),
        (number(1, 4) + number(3, 8), "node type 8 does not exist in this schema version"),
        (number(3, 4) + number(11, 5), "bytes are expected where a number stands"),
        (number(3, 4) + text(11, text(1, "n") + number(5, 1)), "bytes are expected where"),
        (number(3, 4) + text(11, text(1, "n") + text(5, "abcde")), "a float does not have 4 bytes"),
        (number(3, 4) + text(11, text(1, "n") + text(7, "x")), "a number is expected where bytes"),
        (
            number(3, 4) + text(11, text(1, "comm_type") + number(7, 9)),
            "collective type 9 does not",
        ),
        (number(3, 4) + text(11, text(1, "runtime") + text(8, "long")), "the run time is 'long'"),
        (number(3, 4) + text(11, text(1, "runtime") + number(7, -1)), "the run time is -1, not"),
        (
            number(3, 4) + text(11, text(1, "runtime") + real(5, float("nan"))),
            "the run time is nan",
        ),
        (number(3, 4) + text(11, text(1, b"\xff") + number(7, 1)), "a string is not UTF-8"),
        (number(3, 4) + text(11, text(1, "n") + text(12, b"\x80")), "a field of 1 bytes stands 0"),
        (number(3, 4) + tag(12, 3), "wire type 3 is not part of this format"),
        (number(3, 4) + tag(12, 7) + b"x" * 8, "wire type 7 is not part of this format"),
    ],
)
def test_damage_in_a_later_node_is_told(node, expected):
    """The schema version is told from the first messages, so damage must come behind them."""
    data = framed(METADATA, *[SOUND] * 64, node)
    with pytest.raises(TraceError, match=f"x.et: is no sound Chakra .* 0.0.3 .*{expected}.*again"):
        decode_trace(data, "x.et")


def test_a_message_without_length_or_end_is_named_by_its_number():
    data = framed(METADATA, *[SOUND] * 64)
    with pytest.raises(TraceError, match=r"x\.et: message 65 at byte \d+ is cut off"):
        decode_trace(data + b"\x7f" + SOUND, "x.et")
    with pytest.raises(TraceError, match=r"x\.et: message 65 has no length"):
        decode_trace(data + b"\xff" * 12, "x.et")


def test_fixed_numbers_of_fields_that_nobody_knows_are_skipped():
    node = SOUND + tag(20, 5) + b"abcd" + tag(21, 1) + b"abcdefgh"
    assert attributes(decode_trace(framed(METADATA, node)), 0) == {"n": 1}


def test_integers_of_0_0_1_are_signed_where_the_field_is():
    node = (
        number(1, 7) + text(2, "s") + number(3, 4) + number(16, -1) + number(18, 2**40)
        + number(19, -(2**31)) + number(6, 2**64 - 1) + number(22, 1)
    )  # fmt: skip
    assert attributes(decode_trace(framed(node)), 0) == {
        "comm_src": -1,
        "comm_size": 2**40,
        "comm_tag": -(2**31),
        "tensor_size": 2**64 - 1,
        "local_mem_access_completed": True,
    }


def test_memory_is_looked_at_while_a_long_old_file_is_read(monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr(files, "_LOOK", 10)
    monkeypatch.setattr(files, "require_memory", lambda source, error: asked.append(source))
    list(files.length_prefixed_messages(framed(*[b"x"] * 35), "x.et"))
    assert asked == ["x.et"] * 3


def spec(kind: NodeType, *attributes: Attribute) -> Trace:
    return build_trace([NodeSpec(4, "x", kind, attributes=attributes)], source="x.et")


def found(trace: Trace) -> dict[str, tuple[int, object]]:
    rows = range(trace.attributes.wire_A.size)
    each = [attribute_at(trace.attributes, row, trace.strings) for row in rows]
    return {a.name: (a.wire, a.value) for a in each}


def test_attributes_get_the_type_that_feeder_v1_reads():
    trace = spec(
        NodeType.COMM_COLL,
        Attribute("is_cpu_op", Wire.INT32, 0),
        Attribute("comm_type", Wire.UINT32, 6),
        Attribute("comm_size", Wire.UINT64, 2**40),
        Attribute("other", Wire.UINT64, 5),
    )
    assert found(normalize(trace)) == {
        "is_cpu_op": (Wire.BOOL, False),
        "comm_type": (Wire.INT64, 6),
        "comm_size": (Wire.INT64, 2**40),
        "other": (Wire.UINT64, 5),
    }


def test_communication_leaves_the_cpu_and_computation_stays():
    cpu = Attribute("is_cpu_op", Wire.BOOL, True)
    trace = build_trace(
        [
            NodeSpec(0, "a", NodeType.COMP, attributes=(cpu,)),
            NodeSpec(1, "b", NodeType.COMM_COLL, attributes=(cpu, *coll(1).attributes[1:])),
        ]
    )
    assert normalize(trace).integers("is_cpu_op")[0].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (
            spec(NodeType.COMM_COLL, Attribute("comm_type", Wire.INT64, 0)),
            "no attribute 'comm_size",
        ),
        (spec(NodeType.COMM_SEND, Attribute("comm_dst", Wire.INT32, 1)), "no attribute 'comm_tag'"),
        (spec(NodeType.MEM_LOAD), "no attribute 'tensor_size'"),
        (build_trace([coll(4, group="default_pg")], source="x.et"), "group 'default_pg'"),
        (build_trace([comp(4, 9)], source="x.et"), "depends on node 9"),
        (build_trace([comp(4, 5), comp(5, 4)], source="x.et"), "wait for each other"),
    ],
)
def test_what_astra_sim_cannot_run_is_refused(trace, expected):
    with pytest.raises(TraceError, match=expected) as caught:
        normalize(trace)
    assert str(caught.value).startswith("x.et: ")
    assert "4" in str(caught.value)


def test_sound_trace_is_left_alone():
    trace = build_trace([comp(0), coll(1, 0), message(2, NodeType.COMM_SEND, 1, 1)])
    assert normalize(trace) is trace
    assert without_nodes(trace, trace.type_N > 7) is trace


@pytest.mark.parametrize(
    ("name", "wire", "value", "shown"),
    [
        ("tensor_size", Wire.INT64, -5, "'tensor_size' = -5, which does not fit into uint64_val"),
        ("comm_tag", Wire.INT64, -(2**31) - 1, "= -2147483649, which does not fit into int32_val"),
        ("comm_tag", Wire.UINT64, 2**31, "= 2147483648, which does not fit into int32_val"),
        ("comm_size", Wire.UINT64, 2**63, "= 9223372036854775808, which does not fit into int64"),
        ("is_cpu_op", Wire.INT32, 2, "'is_cpu_op' = 2, which does not fit into bool_val"),
    ],
)
def test_a_value_that_the_feeders_type_cannot_hold_is_shown_as_it_is(name, wire, value, shown):
    sound = NodeSpec(3, "a", NodeType.COMP, attributes=(Attribute(name, wire, 1),))
    wrong = NodeSpec(4, "a", NodeType.COMP, attributes=(Attribute(name, wire, value),))
    with pytest.raises(TraceError, match=f"node 4 carries .*{re.escape(shown)}"):
        normalize(build_trace([sound, wrong]))


@pytest.mark.parametrize(
    ("name", "wire", "value"),
    [
        ("tensor_size", Wire.UINT64, 2**64 - 1),
        ("tensor_size", Wire.INT64, 2**63 - 1),
        ("comm_tag", Wire.INT64, -(2**31)),
        ("comm_tag", Wire.SINT64, 2**31 - 1),
        ("comm_size", Wire.FIXED64, 2**63 - 1),
        ("num_ops", Wire.UINT32, 2**32 - 1),
        ("is_cpu_op", Wire.INT64, 1),
    ],
)
def test_the_largest_values_change_their_type_and_nothing_else(name, wire, value):
    before = build_trace(
        [NodeSpec(3, "a", NodeType.COMP, attributes=(Attribute(name, wire, value),))]
    )
    table = normalize(before).attributes
    assert table.wire_A.tolist() == [FEEDER_WIRES[name]]
    assert table.word_A.tolist() == before.attributes.word_A.tolist() == [value % 2**64]


@pytest.mark.parametrize("value", ["7", (1, 2), 1.0, b"1"])
def test_a_well_known_attribute_of_no_integer_type_is_refused_by_name(value):
    wire = {str: Wire.STRING, tuple: Wire.INT64 + 1, float: Wire.DOUBLE, bytes: Wire.BYTES}
    node = NodeSpec(
        4, "a", NodeType.COMP, attributes=(Attribute("num_ops", wire[type(value)], value),)
    )
    with pytest.raises(TraceError, match="node 4 carries attribute 'num_ops' as"):
        normalize(build_trace([node]))


@pytest.mark.parametrize("gone", [NodeType.METADATA, NodeType.INVALID])
def test_inheritance_goes_through_chains_of_removed_nodes(gone):
    """1 and 2 go: 3 waited for 2, which waited for 1 and 9; 1 waited for 0."""
    nodes = [
        comp(0),
        NodeSpec(1, "", gone, (0,)),
        NodeSpec(2, "", gone, (1,), (9,)),
        comp(3, 2, 0, ctrl=(1,)),
        comp(9),
    ]
    trace = normalize(build_trace(nodes))
    assert trace.id_N.tolist() == [0, 3, 9]
    assert trace.names() == ["aten::mm"] * 3
    assert trace.data_deps.of(1).tolist() == [0, 9]  # each once
    assert trace.ctrl_deps.of(1).tolist() == [0]


def test_removed_nodes_take_their_attributes_with_them():
    marked = [
        NodeSpec(n, "", kind, attributes=(Attribute(f"of {n}", Wire.BYTES, bytes([n])),) * count)
        for n, kind, count in ((0, 4, 2), (1, 1, 3), (2, 4, 0), (3, 4, 1))
    ]
    trace = normalize(build_trace(marked))
    table = trace.attributes
    assert table.ptr_N1.tolist() == [0, 2, 2, 3]
    found = [attribute_at(table, row, trace.strings) for row in range(3)]
    assert [(a.name, a.value) for a in found] == [("of 0", b"\0"), ("of 0", b"\0"), ("of 3", b"\3")]


def test_removed_nodes_on_a_cycle_are_told_instead_of_bridged():
    nodes = [NodeSpec(1, "", NodeType.METADATA, (2,)), NodeSpec(2, "", NodeType.METADATA, (1,))]
    with pytest.raises(TraceError, match="2 nodes wait for each other in a cycle"):
        without_nodes(build_trace(nodes), np.array([True, True]))


@pytest.mark.parametrize(
    ("group", "sound"), [("0", True), ("17", True), ("", True), ("tp", False), ("-1", False),
                         ("1.0", False), ("\u0661", False), (" 1", False)]
)  # fmt: skip
def test_groups_are_integers_in_ascii_digits(group, sound):
    trace = build_trace([coll(5, group=group)])
    if sound:
        assert normalize(trace) is trace
        return
    with pytest.raises(
        TraceError, match=f"node 5 communicates in group '{group}'; ASTRA-sim needs"
    ):
        normalize(trace)


@tried(40)
@given(st.integers(0, 2**32 - 1))
def test_taking_nodes_out_keeps_who_waits_for_whom(seed):
    """The ancestors of a kept node are its ancestors before, without those that went."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 10))
    nodes = [
        comp(
            n,
            *(d for d in range(n) if rng.random() < 0.3),
            ctrl=tuple(d for d in range(n) if rng.random() < 0.2),
        )
        for n in range(size)
    ]
    gone_N = rng.random(size) < 0.4
    before, after = build_trace(nodes), without_nodes(build_trace(nodes), gone_N)

    def ancestors(trace) -> dict[int, set[int]]:
        parents = {
            int(number): {*trace.data_deps.of(row).tolist(), *trace.ctrl_deps.of(row).tolist()}
            for row, number in enumerate(trace.id_N)
        }
        known: dict[int, set[int]] = {}
        for node in sorted(parents):
            known[node] = set().union(*(known[p] | {p} for p in parents[node]))
        return known

    kept = [n for n in range(size) if not gone_N[n]]
    assert after.id_N.tolist() == kept
    assert ancestors(after) == {n: ancestors(before)[n] & set(kept) for n in kept}


STRINGS = b"".join(text(field, "[]") for field in range(5, 11))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (framed(number(1, 0) + text(2, "a") + number(3, 3) + number(7, 9)), "0.0.1"),
        (framed(number(1, 0) + text(2, "a") + number(3, 4) + STRINGS), "0.0.2"),
        (framed(b"", number(1, 0) + text(2, "a") + number(3, 4) + STRINGS), "0.0.3"),
        (framed(b"", number(1, 0) + text(2, "a") + text(5, b"\x01\x02")), "1.0.0"),
        (encode_trace(rich_trace()), "1.0.0"),
        (b"", "1.0.0"),
        (b"\xff" * 40, "1.0.0"),
    ],
)
def test_generation_is_told_from_the_fields(data, expected):
    assert detect_schema_version(data, "x") == expected
