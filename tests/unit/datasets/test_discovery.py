"""Sorting the files of a folder into jobs."""

import gzip
import json
from pathlib import Path

import pytest
import torch
from host_json import ALL_REDUCE, listed, node, plain, tensor, write_host
from random_jobs import random_job
from torch import nn
from traced_jobs import write_jobs

import layerdag as ld
from layerdag.datasets.discovery import FoundJobs, find_labels, read_folder
from layerdag.datasets.sources import find_sources
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import write_json
from layerdag.graph.formats.graphml import write_graphml
from layerdag.publication.settings import ReleaseSettings, read_jobs
from layerdag.traces.trace import Workload

HOST = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "", "start_ts": 0, "nodes": []}


def names(folder: Path) -> list[str]:
    return [source.name for source in find_sources(folder).found]


def test_ranks_of_a_prefix_are_one_job_and_folders_keep_their_names(tmp_path):
    write_jobs(tmp_path / "a", 2, ranks=2)
    write_jobs(tmp_path / "b", 1)
    (tmp_path / "b" / "secretproj-0.0.et").rename(tmp_path / "b" / "0.et")
    assert names(tmp_path) == ["a/secretproj-0", "a/secretproj-1", "b"]
    job = find_sources(tmp_path).found[0].read()
    assert isinstance(job, Workload)
    assert job.num_ranks == 2


def test_numbered_files_without_a_dot_are_jobs_of_their_own(tmp_path):
    write_jobs(tmp_path, 2)
    for i in (0, 1):
        (tmp_path / f"secretproj-{i}.0.et").rename(tmp_path / f"run{i}.et")
    assert names(tmp_path) == ["run0", "run1"]
    assert all(isinstance(source.read(), Workload) for source in find_sources(tmp_path).found)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["job_r0.et.json.gz", "job_r1.et.json.gz", "other_r0.et.json.gz"], ["job", "other"]),
        (["x/rank0.json", "x/rank1.json", "y/rank0.json"], ["x", "y"]),
        (["gpt.0.json", "gpt.1.json"], ["gpt"]),
        (["gpt_0.json", "gpt_1.json"], ["gpt_0", "gpt_1"]),  # none of them communicates
        (["0000.host.json", "0001.host.json"], ["0000", "0001"]),
        (["gpt.json", "gpt-2.json"], ["gpt", "gpt-2"]),
        (["resnet_50.json"], ["resnet_50"]),
        (["resnet.json", "resn.json"], ["resn", "resnet"]),  # no role but a name that ends so
        (["alone.json"], ["alone"]),
    ],
)
def test_pytorch_files_are_sorted_by_job_and_rank(tmp_path, files, expected):
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        data = json.dumps(HOST).encode()
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert names(tmp_path) == expected


def test_numbers_of_traces_that_communicate_are_ranks(tmp_path):
    for rank in (0, 1):
        reduce = node(4, "c10d::allreduce_", ALL_REDUCE, (listed(tensor(3)), plain("", "")), ())
        write_host(tmp_path / f"gpt_{rank}.json", [reduce])
    assert names(tmp_path) == ["gpt"]


def test_what_stands_twice_under_a_name_is_told(tmp_path):
    graph = random_job(0, 1)
    write_graphml(tmp_path / "a.graphml", graph)
    write_json(tmp_path / "a.json", graph)
    found = find_sources(tmp_path)
    assert [source.name for source in found.found] == ["a"]
    assert found.faulty == (
        "a: is there twice, as GraphML and as JSON of layerdag; give one another name.",
    )


def test_a_missing_rank_is_told_when_the_job_is_read(tmp_path):
    for rank in (0, 2):
        (tmp_path / f"job_rank{rank}.json").write_text(json.dumps(HOST))
    [source] = find_sources(tmp_path).found
    with pytest.raises(DataError, match="none of rank 1"):
        source.read()


def test_other_files_are_counted_and_damaged_ones_named(tmp_path):
    write_graphml(tmp_path / "flow.graphml", random_job(0, 1))
    (tmp_path / "notes.md").write_text("x")
    (tmp_path / "a.dur.json").write_text("[[1, 2]]")
    (tmp_path / "torn.json.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
    found = find_sources(tmp_path)
    assert [source.format for source in found.found] == ["GraphML"]
    assert found.others == {".md": 1, ".dur.json": 1}
    assert len(found.faulty) == 1
    assert found.faulty[0].startswith("torn.json.gz: ")


def read(folder: Path, **settings: object) -> FoundJobs:
    return read_jobs(ReleaseSettings(folder, folder.parent / "out", **settings))


def test_broken_files_are_left_out_with_the_reason_and_the_rest_is_read(tmp_path):
    folder = write_jobs(tmp_path / "traces", 5)
    (folder / "secretproj-1.0.et").write_bytes(b"\x00\x01 no trace at all")
    (folder / "secretproj-2.0.et").write_bytes(b"")
    found = read(folder)
    assert [graph.name for graph in found.graphs] == [
        "secretproj-0",
        "secretproj-3",
        "secretproj-4",
    ]
    assert len(found.left_out) == 2
    assert found.left_out[0].startswith("secretproj-1: ")
    assert found.labeled == 3
    told = "\n".join(found.sentences())
    assert "3 jobs" in told
    assert "2 left out:" in told
    assert "from labels.csv" in told


def test_copies_of_a_job_are_one_run(tmp_path):
    folder = write_jobs(tmp_path / "traces", 3)
    data = (folder / "secretproj-1.0.et").read_bytes()
    (folder / "again-1.0.et").write_bytes(data)
    found = read(folder)
    assert len(found.graphs) == 4
    assert found.num_runs == 3
    assert any("3 distinct runs" in line for line in found.sentences())


def test_names_and_the_folder_are_private_words(tmp_path):
    found = read(write_jobs(tmp_path / "traces", 2))
    assert {"secretproj-0", "secretproj-1", str(tmp_path / "traces")} <= found.private


def test_names_that_samples_have_anyway_are_not_private(tmp_path):
    folder = write_jobs(tmp_path / "traces", 1)
    (folder / "secretproj-0.0.et").rename(folder / "sample-00000.0.et")
    assert "sample-00000" not in read(folder).private


def test_larger_jobs_are_left_out(tmp_path):
    folder = write_jobs(tmp_path / "traces", 4)
    sizes = sorted(graph.num_nodes for graph in read(folder).graphs)
    found = read(folder, max_nodes=sizes[0])
    assert {graph.num_nodes for graph in found.graphs} == {sizes[0]}
    assert "more than --max-nodes" in found.left_out[0]


def test_a_folder_without_traces_says_what_is_wrong(tmp_path):
    (tmp_path / "traces").mkdir()
    with pytest.raises(DataError, match="holds no job or graph that can be used"):
        read(tmp_path / "traces")
    (tmp_path / "traces" / "x.0.et").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="the first reason: x: "):
        read(tmp_path / "traces")


def test_further_columns_of_a_label_file_stay_with_the_owner(tmp_path):
    folder = write_jobs(tmp_path / "traces", 2)
    (folder / "labels.csv").write_text("name,label,customer\nsecretproj-0,1,acme\n")
    graph = read(folder).graphs[0]
    assert graph.conditions["label"] == 1.0
    assert "customer" not in graph.conditions


def test_lists_of_runs_measured_times_and_tables_are_found(tmp_path):
    (tmp_path / "sub").mkdir()
    lines = [
        {"uid": "a", "step_time_s_min": 0.5, "family": "gpt", "other": "x"},
        {"uid": "b", "step_time_s_min": -1},
        {"nothing": 1},
    ]
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\nno json\n")
    (tmp_path / "sub" / "c.steps.json").write_text('{"step_time_s": {"min": 0.25}}')
    (tmp_path / "sub" / "labels.csv").write_text("name,label\nd,3\n")
    found = find_labels(tmp_path)
    assert found.conditions == {
        "a": {"label": 0.5, "family": "gpt"},
        "sub/c": {"label": 0.25},
        "sub/d": {"label": 3.0},
    }
    assert found.sources == ("sub/c.steps.json", "metadata.jsonl", "sub/labels.csv")


def test_a_damaged_file_is_named_and_the_others_count(tmp_path):
    (tmp_path / "c.steps.json").write_text("{}")
    (tmp_path / "labels.json").write_text('{"a": 1}')
    found = find_labels(tmp_path)
    assert found.conditions == {"a": {"label": 1.0}}
    assert "holds no measured step time" in found.faulty[0]


def test_the_file_that_is_given_must_be_readable(tmp_path):
    with pytest.raises(DataError, match=r"times\.csv"):
        find_labels(tmp_path, tmp_path / "times.csv")


def test_tables_count_more_than_lists_and_lists_more_than_measured_times(tmp_path):
    (tmp_path / "a.steps.json").write_text('{"step_time_s": {"min": 1}}')
    (tmp_path / "runs.jsonl").write_text('{"uid": "a", "step_time_s_min": 2, "family": "gpt"}')
    assert find_labels(tmp_path).conditions == {"a": {"label": 2.0, "family": "gpt"}}
    (tmp_path / "labels.csv").write_text("name,label\na,3\n")
    assert find_labels(tmp_path).conditions == {"a": {"label": 3.0, "family": "gpt"}}


@pytest.mark.parametrize(
    ("line", "conditions"),
    [
        ({"step_time_s_min": 2, "step_time_s": 5}, {"label": 2.0}),  # the minimum is the label
        ({"label": 7, "step_time_s_min": 2}, {"label": 7.0}),
        ({"step_time": 4}, {"label": 4.0}),
        ({"step_time_s_min": 0, "step_time_s": 5}, {"label": 5.0}),  # no time takes nothing
        ({"step_time": True, "family": "mlp"}, {"family": "mlp"}),
        ({"step_time": "4", "strategy": "ddp"}, {"strategy": "ddp"}),
        ({"step_time": 1, "family": 3, "phase": None}, {"label": 1.0}),
    ],
)
def test_times_and_kinds_of_jobs_that_a_line_tells(tmp_path, line, conditions):
    (tmp_path / "runs.jsonl").write_text(json.dumps({"job": "a", **line}))
    assert find_labels(tmp_path).conditions == {"a": conditions}


@pytest.mark.parametrize(
    "line",
    [
        '{"job": "a", "step_time": Infinity}',
        '{"job": "a", "step_time": NaN}',
        '{"job": "a", "step_time": -4}',
        '{"job": 7, "step_time": 1}',
        '["a", 1]',
        "[" * 100_000,
    ],
    ids=["infinite", "no number", "negative", "no name", "no row", "too deep"],
)
def test_a_line_that_tells_nothing_is_passed_over(tmp_path, line):
    (tmp_path / "runs.jsonl").write_text(f'{line}\n{{"job": "b", "step_time": 1}}\n')
    found = find_labels(tmp_path)
    assert found.conditions == {"b": {"label": 1.0}}
    assert found.faulty == ()


def test_a_given_file_inside_the_traces_names_jobs_beside_it(tmp_path):
    for folder in ("traces/sub", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "times.csv").write_text("name,label\na,3\n")
    inside = find_labels(tmp_path / "traces", tmp_path / "traces/sub/times.csv")
    outside = find_labels(tmp_path / "traces", tmp_path / "elsewhere/times.csv")
    assert inside.conditions == {"sub/a": {"label": 3.0}}
    assert outside.conditions == {"a": {"label": 3.0}}
    assert inside.sources == outside.sources == ("times.csv",)


def test_a_folder_without_labels_is_no_error(tmp_path):
    (tmp_path / "readme.txt").write_text("label 3")
    (tmp_path / "labels.csv").mkdir()
    found = find_labels(tmp_path)
    assert (found.conditions, found.sources, found.faulty) == ({}, (), ())


def test_graphs_of_every_format_are_found(tmp_path):
    (tmp_path / "a.dot").write_text("digraph { x [op=mm]; y [op=add]; x -> y }")
    (tmp_path / "b.json").write_text(
        '{"nodes": [{"id": 0, "op": "mm"}], "links": [{"source": 0, "target": 0}]}'
    )
    found = read_folder(tmp_path)
    assert found.formats == {"DOT": 1, "node-link JSON": 1}
    assert [note.word for note in found.notes] == ["0 -> 0"]


def test_a_program_beside_its_trace_is_no_job_of_its_own(tmp_path):
    write_jobs(tmp_path, 1)
    program = json.dumps(ld.program(nn.Linear(4, 4), [torch.zeros(2, 4)]).to_json())
    for name in ("secretproj-0", "other"):
        (tmp_path / f"{name}.program.json").write_text(program)
    found = find_sources(tmp_path).found
    assert [(source.name, source.is_trace) for source in found] == [
        ("other", False),
        ("secretproj-0", True),
    ]
    assert all(source.program is not None for source in found)


def test_calls_of_public_operators_are_no_private_words_of_programs(tmp_path):
    program = ld.program(nn.Linear(4, 4), [torch.zeros(2, 4)], loss=torch.sum)
    program.save(tmp_path / "secretproj.program.json")
    private = read_folder(tmp_path).private
    assert "secretproj" in private
    assert not [word for word in private if "aten." in word or word.startswith("w0")]


def test_words_of_others_in_the_calls_of_programs_are_private(tmp_path):
    data = ld.program(nn.GELU("tanh"), [torch.zeros(2, 4)], loss=torch.sum).to_json()
    text = json.dumps(data).replace('"tanh"', '"acmetanh"').replace("aten.gelu", "aten.acmegelu")
    (tmp_path / "a.program.json").write_text(text)
    private = read_folder(tmp_path).private
    assert {"acmetanh", "aten.acmegelu.default"} <= private
