"""Three folders as the sets of an audit."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from raw_graphs import chain
from sample_parts import TEN, written
from tiny_checkpoints import chain_checkpoint
from traced_jobs import write_jobs

from layerdag.api.auditing import read_sets
from layerdag.codec import AttributedGraph
from layerdag.datasets.files import write_graphml, write_json
from layerdag.errors import UsageError


def write_flows(folder: Path, *graphs: AttributedGraph, graphml: bool = False) -> Path:
    folder.mkdir(parents=True)
    for graph in graphs:
        if graphml:
            write_graphml(folder / f"{graph.name}.graphml", graph)
        else:
            write_json(folder / f"{graph.name}.json", graph)
    return folder


def test_flow_graphs_of_any_format_are_read_with_one_schema(tmp_path: Path) -> None:
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


def test_words_are_renamed_as_for_training_unless_samples_have_them(tmp_path: Path) -> None:
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


def test_conditions_of_samples_come_from_their_manifest(tmp_path: Path) -> None:
    train = write_flows(tmp_path / "train", chain("t0", "abc", label=1.0))
    holdout = write_flows(tmp_path / "holdout", chain("h0", "abd", label=2.0))
    made = write_flows(tmp_path / "made", chain("s0", "abc"))
    entry = {"name": "s0", "file": "s0.json", "conditions": {"family": "gpt", "label": 3.0}}
    (made / "manifest.json").write_text(json.dumps({"samples": [entry]}))
    [sample] = read_sets(train, holdout, made).made
    assert sample.conditions == {"family": "gpt", "label": 3.0}


def test_graphs_in_memory_are_sets_too() -> None:
    found = read_sets([chain("t", "ab")], [chain("h", "ac")], [chain("s", "ad")])
    assert [dag.num_nodes for dag in (*found.data.graphs["train"], *found.made)] == [2, 2]
    assert found.private == frozenset()


def test_traces_are_not_compared_with_flow_graphs_and_no_set_is_empty(tmp_path: Path) -> None:
    traces = write_jobs(tmp_path / "jobs", 2)
    flows = write_flows(tmp_path / "flows", chain("a", "ab"))
    with pytest.raises(UsageError, match="there are both"):
        read_sets(traces, flows, flows)
    with pytest.raises(UsageError, match="no such folder"):
        read_sets(traces, tmp_path / "nowhere", traces)
    with pytest.raises(UsageError, match="needs held-out graphs"):
        read_sets([chain("t", "ab")], [], [chain("s", "ab")])


def test_samples_in_parts_are_read_with_their_conditions(tmp_path: Path) -> None:
    checkpoint = chain_checkpoint(tmp_path)
    made = written(checkpoint, tmp_path / "many")
    train = write_flows(tmp_path / "train", chain("t0", "abc", label=1.0), chain("t1", "ab"))
    holdout = write_flows(tmp_path / "holdout", chain("h0", "ba", label=2.0))
    found = read_sets(train, holdout, made)
    assert len(found.made) == TEN.num
    assert all("label" in dag.conditions for dag in found.made)
