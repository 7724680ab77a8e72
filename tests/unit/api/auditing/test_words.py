"""Private words in every kind of file that a release may hold."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from raw_graphs import chain
from simulator_traces import comp, workload
from traced_jobs import write_jobs

from layerdag.api.auditing import search_words
from layerdag.datasets.files import write_graphml, write_json
from layerdag.datasets.samples import TableWriter
from layerdag.datasets.schema import GraphSchema
from layerdag.traces import write_workload

SECRET = "acme_flash_v7"


@pytest.mark.parametrize(
    "file",
    ["a.json", "a.graphml", "a.csv", "manifest.json", "card.html", "deep/er/notes.txt", "b.et"],
)
def test_a_private_word_is_found_in_any_file(tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"at": "/home/{SECRET}/x"}}')
    found = search_words(tmp_path, [SECRET])
    assert [(word.file, word.word) for word in found.found] == [(file, SECRET)]
    assert (found.files, found.words) == (1, 1)


def test_a_private_word_is_found_in_graphs_as_they_are_written(tmp_path: Path) -> None:
    graph = chain("g", "ab")
    named = type(graph)(**{**vars(graph), "categories": {"kind": [SECRET, "b"]}})
    write_json(tmp_path / "one.json", named)
    write_graphml(tmp_path / "two.graphml", named)
    found = {word.file for word in search_words(tmp_path, [SECRET]).found}
    assert found == {"one.json", "two.graphml"}


def test_names_of_files_and_folders_count_plain_words_too(tmp_path: Path) -> None:
    (tmp_path / "secretproj").mkdir()
    (tmp_path / "secretproj" / "samples.csv").write_text("name\n")
    (tmp_path / "empty.json").touch()
    found = search_words(tmp_path, ["secretproj", "samples", "empty-handed"])
    assert [(word.file, word.word) for word in found.found] == [
        ("secretproj/samples.csv", "secretproj")
    ]


def test_words_are_read_from_the_folder_of_the_private_traces(tmp_path: Path) -> None:
    traces = write_jobs(tmp_path / "traces", 2)
    made = tmp_path / "made"
    made.mkdir()
    write_workload(workload([comp(0, 1)]), made / "sample-0")
    assert not search_words(made, traces).found
    (made / "manifest.json").write_text(json.dumps({"from": "secretproj-1"}))
    assert [word.word for word in search_words(made, traces).found] == ["secretproj-1"]


def test_a_private_word_is_found_inside_a_compressed_table(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    graphs = [chain("g", "ab"), chain("h", "ba", color=SECRET)]
    named = [
        replace(graph, categories={"kind": [SECRET + str(i), "b"]})
        for i, graph in enumerate(graphs)
    ]
    writer = TableWriter(tmp_path / "part-000000.parquet", GraphSchema.fit("flow", named))
    for i, graph in enumerate(named):
        noted = {"name": f"sample-{i:05d}", "seed": i, "truncated": False}
        writer.add({**noted, "conditions": graph.conditions}, graph)
    writer.close()
    found = search_words(tmp_path, [SECRET + "1", SECRET, "elsewhere_77"])
    assert {(word.file, word.word) for word in found.found} == {
        ("part-000000.parquet", SECRET),
        ("part-000000.parquet", SECRET + "1"),
    }
    assert not found.unread


@pytest.mark.parametrize("name", ["a.zip", "b/c.json.gz", "no-part.parquet", "no-part.tar"])
def test_what_cannot_be_looked_into_is_told(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"PK\x03\x04 not to be read")
    (tmp_path / "read.json").write_text("{}")
    found = search_words(tmp_path, [SECRET])
    assert found.unread == (name,)
    assert found.files == 1
