"""The verbs info, convert and view on small files."""

import json
from pathlib import Path

import pytest
from trace_examples import comp, pair_workload, rich_trace

from layerdag.cli import main
from layerdag.traces import Workload, read_workload, write_workload
from layerdag.traces.chakra import (
    build_trace,
    decode_trace_json,
    encode_trace,
    encode_trace_json,
    read_trace,
    write_trace,
)


@pytest.fixture
def job(tmp_path: Path) -> str:
    write_workload(Workload(pair_workload().traces, {"1": (0, 1)}), tmp_path / "in" / "job")
    return str(tmp_path / "in" / "job")


def test_info_as_text_and_json(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", job]) == 0
    text = capsys.readouterr().out
    assert "2 ranks, 6 nodes, Chakra 1.0.0" in text
    assert "all ranks (2): ALL_REDUCE 1; 1 KiB per rank" in text
    assert "messages: 1 matched, 64 B" in text
    assert main(["info", job, "--json"]) == 0
    loaded = json.loads(capsys.readouterr().out)
    assert loaded["num_ranks"] == 2
    assert loaded["ranks"][0]["types"] == {"COMP": 1, "COMM_SEND": 1, "COMM_COLL": 1}


def test_info_joins_ranks_with_equal_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = [build_trace([comp(at, us=us)]) for at, us in enumerate((5, 5, 7, 5))]
    write_workload(Workload(tuple(traces)), tmp_path / "x")
    assert main(["info", str(tmp_path / "x")]) == 0
    assert "rank 0-1, 3\n" in capsys.readouterr().out


def test_convert_to_json_and_back_loses_nothing(job: str, tmp_path: Path) -> None:
    middle, out = str(tmp_path / "x.json"), str(tmp_path / "out" / "job")
    assert main(["convert", job, "--to", "json", "--out", middle]) == 0
    assert main(["convert", middle, "--out", out]) == 0
    first, second = read_workload(job), read_workload(out)
    assert list(map(encode_trace, first.traces)) == list(map(encode_trace, second.traces))
    assert first.groups == second.groups


def test_convert_writes_feeder_json_of_every_rank(job: str, tmp_path: Path) -> None:
    assert main(["convert", job, "--to", "feeder-json", "--out", str(tmp_path / "f")]) == 0
    loaded = json.loads((tmp_path / "f.1.json").read_text())
    assert [node["Id"] for node in loaded["workload_graph"]] == [0, 1, 2]


def test_convert_takes_a_prefix_with_the_ending_of_its_files(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", job, "--out", str(tmp_path / "mine.et")]) == 0
    assert read_workload(tmp_path / "mine").num_ranks == 2
    assert f"wrote 2 ranks with 6 nodes: {tmp_path}/mine.0.et and 1 more" in capsys.readouterr().err
    feeder = ["convert", job, "--to", "feeder-json", "--out", str(tmp_path / "mine.json")]
    assert main(feeder) == 0
    assert (tmp_path / "mine.1.json").is_file()


def test_convert_drops_dangling_only_when_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    rank_of_four: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_flags_for_one_rank_exclude_each_other_and_other_formats(
    rank_of_four: str, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["convert", rank_of_four, "--only-rank", "--replicate", "--out", "x"])
    assert "not allowed with" in capsys.readouterr().err
    assert main(["convert", job, "--only-rank", "--out", "x"]) == 2
    assert "are for PyTorch's traces" in capsys.readouterr().err


def test_convert_scrubs_and_says_what_it_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace(build_trace([comp(4, name="MySecret")]), tmp_path / "x.et")
    words = ["convert", str(tmp_path / "x.et"), "--scrub", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert "scrubbed: 1 names replaced" in capsys.readouterr().err
    assert b"MySecret" not in (tmp_path / "out.0.et").read_bytes()


@pytest.mark.parametrize("suffix", ["svg", "html", "graphml", "dot", "json"])
def test_view_writes_what_the_suffix_says(job: str, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"x.{suffix}"
    assert main(["view", job, "--rank", "1", "--out", str(out)]) == 0
    assert out.stat().st_size > 100


def test_a_page_has_simulated_times_where_they_are_asked_for(job: str, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    assert main(["view", job, "--simulate", "small", "--rank", "1", "--out", str(page)]) == 0
    assert (
        "simulated, cluster \u201csmall\u201d, rank 1"
        in json.loads(page.read_text().partition('id="data">')[2].partition("</script>")[0])[
            "timing"
        ]["source"]
    )


def test_view_json_is_lossless_and_chrome_is_a_timeline(job: str, tmp_path: Path) -> None:
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
def test_wrong_use_is_code_two(
    job: str, words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([job if word == "JOB" else word for word in words]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["info", "convert", "view"])
def test_damaged_trace_is_one_line_and_no_file(
    tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.et"
    bad.write_bytes(encode_trace(rich_trace())[:-4])
    out = tmp_path / "out.svg" if verb == "view" else tmp_path / "out"
    flags = [] if verb == "info" else ["--out", str(out)]
    assert main([verb, str(bad), *flags]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "bad.et" in message
    assert sorted(tmp_path.iterdir()) == [bad]


def test_flow_graphs_are_drawn_too(job: str, tmp_path: Path) -> None:
    graph = tmp_path / "g.graphml"
    assert main(["view", job, "--out", str(graph)]) == 0
    assert main(["view", str(graph), "--out", str(tmp_path / "g.json")]) == 0
    assert main(["view", str(tmp_path / "g.json"), "--out", str(tmp_path / "g.html")]) == 0
    assert "COMM_COLL" in (tmp_path / "g.html").read_text()
    assert main(["view", str(graph), "--to", "chrome", "--out", str(tmp_path / "t")]) == 2


def test_a_job_of_too_many_ranks_is_not_written(
    tmp_path: Path, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
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
def test_convert_replaces_a_workload_only_when_told(
    job: str, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out" / "job")
    command = ["convert", job, "--to", kind, "--out", out]
    assert main(command) == 0
    assert main(command) == 2
    assert "lies there already" in capsys.readouterr().err.splitlines()[-1]
    assert main([*command, "--overwrite"]) == 0


def test_convert_in_place_does_not_lose_the_original(job: str) -> None:
    folder = Path(job).parent
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["convert", job, "--scrub", "--out", job]) == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_file_of_another_rank_is_not_mixed_into_feeder_files(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.5.json").write_text("precious")
    command = ["convert", job, "--to", "feeder-json", "--out", str(tmp_path / "job")]
    assert main([*command, "--overwrite"]) == 2
    assert "would mix the two" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "job.5.json").read_text() == "precious"


def test_no_file_replaces_a_folder(job: str, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").touch()
    assert main(["convert", job, "--to", "json", "--out", str(tmp_path / "thesis")]) == 2
    assert (tmp_path / "thesis" / "chapter").is_file()
