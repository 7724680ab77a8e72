"""Three folders as the sets of an audit."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from raw_graphs import chain
from sample_parts import TEN, written
from simulator_traces import comp, workload
from tiny_checkpoints import chain_checkpoint
from traced_jobs import write_jobs

from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import AttributedGraph, write_json
from layerdag.graph.formats.graphml import write_graphml
from layerdag.privacy.audit_inputs import read_sets, search_words
from layerdag.samples.table import TableWriter
from layerdag.schema.schema import GraphSchema
from layerdag.traces.chakra.workload import write_workload


def write_flows(folder: Path, *graphs: AttributedGraph, graphml: bool = False) -> Path:
    folder.mkdir(parents=True)
    for graph in graphs:
        if graphml:
            write_graphml(folder / f"{graph.name}.graphml", graph)
        else:
            write_json(folder / f"{graph.name}.json", graph)
    return folder


def test_flow_graphs_of_any_format_are_read_with_one_schema(tmp_path):
    train = write_flows(tmp_path / "train", chain("t0", "abc"), chain("t1", "abd"))
    holdout = write_flows(tmp_path / "holdout", chain("h0", "abe"), graphml=True)
    made = write_flows(tmp_path / "made", chain("s0", "abz"), chain("s1", "ab"))
    found = read_sets(train, str(holdout), made)
    assert [len(found.data.graphs[part]) for part in ("train", "val", "test")] == [2, 0, 1]
    assert [dag.num_nodes for dag in found.made] == [3, 2]
    # A word of one set alone leaves no graph out.
    decoded = [found.data.schema.decode(dag).categories["kind"] for dag in found.made]
    assert decoded == [list("abz"), list("ab")]
    assert [graph.name for graph in found.train] == ["t0", "t1"]


def test_words_are_renamed_as_for_training_unless_samples_have_them(tmp_path):
    secret = [chain(f"g{i}", "ab") for i in range(2)]
    secret = [replace(g, categories={"kind": ["acme_kernel_9", "zeta_op_7"]}) for g in secret]
    renamed = replace(secret[0], name="s", categories={"kind": ["kind-0", "kind-1"]})
    train = write_flows(tmp_path / "train", secret[0])
    holdout = write_flows(tmp_path / "holdout", secret[1])
    found = read_sets(train, holdout, write_flows(tmp_path / "made", renamed))
    [sample], [real] = found.made, found.data.graphs["train"]
    assert sample.x_NA.tolist() == real.x_NA.tolist()
    assert {"acme_kernel_9", "zeta_op_7"} <= found.private
    leaky = replace(secret[0], name="s")
    found = read_sets(train, holdout, write_flows(tmp_path / "leaky", leaky))
    assert found.made[0].x_NA.tolist() == found.data.graphs["train"][0].x_NA.tolist()


def test_conditions_of_samples_come_from_their_manifest(tmp_path):
    train = write_flows(tmp_path / "train", chain("t0", "abc", label=1.0))
    holdout = write_flows(tmp_path / "holdout", chain("h0", "abd", label=2.0))
    made = write_flows(tmp_path / "made", chain("s0", "abc"))
    entry = {"name": "s0", "file": "s0.json", "conditions": {"family": "gpt", "label": 3.0}}
    (made / "manifest.json").write_text(json.dumps({"samples": [entry]}))
    [sample] = read_sets(train, holdout, made).made
    assert sample.conditions == {"family": "gpt", "label": 3.0}


def test_graphs_in_memory_are_sets_too():
    found = read_sets([chain("t", "ab")], [chain("h", "ac")], [chain("s", "ad")])
    assert [dag.num_nodes for dag in (*found.data.graphs["train"], *found.made)] == [2, 2]
    assert found.private == frozenset()


def test_traces_are_not_compared_with_flow_graphs_and_no_set_is_empty(tmp_path):
    traces = write_jobs(tmp_path / "jobs", 2)
    flows = write_flows(tmp_path / "flows", chain("a", "ab"))
    with pytest.raises(UsageError, match="there are both"):
        read_sets(traces, flows, flows)
    with pytest.raises(UsageError, match="no such folder"):
        read_sets(traces, tmp_path / "nowhere", traces)
    with pytest.raises(UsageError, match="needs held-out graphs"):
        read_sets([chain("t", "ab")], [], [chain("s", "ab")])


def test_samples_in_parts_are_read_with_their_conditions(tmp_path):
    checkpoint = chain_checkpoint(tmp_path)
    made = written(checkpoint, tmp_path / "many")
    train = write_flows(tmp_path / "train", chain("t0", "abc", label=1.0), chain("t1", "ab"))
    holdout = write_flows(tmp_path / "holdout", chain("h0", "ba", label=2.0))
    found = read_sets(train, holdout, made)
    assert len(found.made) == TEN.num
    assert all("label" in dag.conditions for dag in found.made)


SECRET = "acme_flash_v7"


@pytest.mark.parametrize(
    "file",
    ["a.json", "a.graphml", "a.csv", "manifest.json", "card.html", "deep/er/notes.txt", "b.et"],
)
def test_a_private_word_is_found_in_any_file(tmp_path, file):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"at": "/home/{SECRET}/x"}}')
    found = search_words(tmp_path, [SECRET])
    assert [(word.file, word.word) for word in found.found] == [(file, SECRET)]
    assert (found.files, found.words) == (1, 1)


def test_a_private_word_is_found_in_graphs_as_they_are_written(tmp_path):
    graph = chain("g", "ab")
    named = type(graph)(**{**vars(graph), "categories": {"kind": [SECRET, "b"]}})
    write_json(tmp_path / "one.json", named)
    write_graphml(tmp_path / "two.graphml", named)
    found = {word.file for word in search_words(tmp_path, [SECRET]).found}
    assert found == {"one.json", "two.graphml"}


def test_names_of_files_and_folders_count_plain_words_too(tmp_path):
    (tmp_path / "secretproj").mkdir()
    (tmp_path / "secretproj" / "samples.csv").write_text("name\n")
    (tmp_path / "empty.json").touch()
    found = search_words(tmp_path, ["secretproj", "samples", "empty-handed"])
    assert [(word.file, word.word) for word in found.found] == [
        ("secretproj/samples.csv", "secretproj")
    ]


def test_words_are_read_from_the_folder_of_the_private_traces(tmp_path):
    traces = write_jobs(tmp_path / "traces", 2)
    made = tmp_path / "made"
    made.mkdir()
    write_workload(workload([comp(0, 1)]), made / "sample-0")
    assert not search_words(made, traces).found
    (made / "manifest.json").write_text(json.dumps({"from": "secretproj-1"}))
    assert [word.word for word in search_words(made, traces).found] == ["secretproj-1"]


def test_a_private_word_is_found_inside_a_compressed_table(tmp_path):
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
def test_what_cannot_be_looked_into_is_told(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"PK\x03\x04 not to be read")
    (tmp_path / "read.json").write_text("{}")
    found = search_words(tmp_path, [SECRET])
    assert found.unread == (name,)
    assert found.files == 1
