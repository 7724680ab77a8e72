import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from dgrl_files import write_family
from small_workloads import collective, compute, job

from layerdag.codec import AttributedGraph
from layerdag.datasets import read_dataset
from layerdag.datasets.files import read_graph, write_json
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import DataError, UsageError
from layerdag.graph import DAG
from layerdag.surrogates import hide, labeled, read_manifest, read_samples, stream_samples
from layerdag.traces import write_workload


def _raw(label: float | str) -> AttributedGraph:
    return AttributedGraph(
        name="g",
        categories={"op": ["a", "b"]},
        numbers={"duration": np.array([1.0, 2.0])},
        edge_index_2E=np.array([[0], [1]]),
        edge_type_E=np.zeros(1, dtype=np.int64),
        conditions={"label": label},
    )


@pytest.fixture
def schema() -> GraphSchema:
    return GraphSchema.fit("flow", [_raw(1.0), _raw(2.0)])


def _encoded(schema: GraphSchema, label: float) -> DAG:
    return schema.encode(_raw(label))


def test_a_workload_is_read_as_the_graph_of_its_job(tmp_path: Path) -> None:
    write_workload(job(*[(compute(1), collective(2, 1))] * 2), tmp_path / "run")
    graph = read_graph(tmp_path / "run")
    assert graph.num_nodes == 2
    assert graph.edge_index_2E.tolist() == [[0], [1]]
    assert graph.categories["type"] == ["COMP", "COMM_COLL"]


def test_hidden_attributes_are_absent_everywhere(schema: GraphSchema) -> None:
    dag = _encoded(schema, 1.0)
    assert dag.x_NA[:, 1].min() > 0
    dag = replace(dag, u_NA=torch.full_like(dag.u_NA, 0.25))
    hidden = hide([dag], schema, ["duration"])[0]
    assert hidden.x_NA[:, 1].tolist() == [0, 0]
    assert hidden.x_NA[:, 0].tolist() == dag.x_NA[:, 0].tolist()
    assert hidden.u_NA.tolist() == [[0.25, 0.0]] * 2  # a position in a bin tells the duration too
    with pytest.raises(UsageError, match="no attribute 'color' to exclude"):
        hide([dag], schema, ["color"])


def test_graphs_without_the_target_are_left_out(schema: GraphSchema) -> None:
    known, unknown = _encoded(schema, 3.0), DAG.build(*_parts(_encoded(schema, 1.0)))
    kept = labeled([known, unknown], schema, "label", [])
    assert kept.target_B.tolist() == [3.0]
    with pytest.raises(DataError, match="--target"):
        labeled([unknown], schema, "label", [])


def _parts(dag: DAG):
    return dag.x_NA, dag.edge_index_2E


def test_a_family_of_computational_graphs_is_a_data_set_with_latencies(tmp_path: Path) -> None:
    write_family(tmp_path)
    data = read_dataset(tmp_path)
    assert [len(data.graphs[split]) for split in ("train", "val", "test")] == [24, 3, 3]
    targets = labeled(data.graphs["train"], data.schema, "label", []).target_B
    assert set(targets % 1) == {0.5}


def test_folders_that_hold_nothing_are_one_sentence(tmp_path: Path, schema: GraphSchema) -> None:
    with pytest.raises(UsageError, match="is no data set"):
        read_dataset(tmp_path)
    with pytest.raises(DataError, match="manifest"):
        read_samples(tmp_path, schema)
    (tmp_path / "manifest.json").write_text('{"samples": [{"name": 1}]}')
    with pytest.raises(DataError, match="no manifest of samples"):
        read_samples(tmp_path, schema)


@pytest.mark.parametrize("entry", [{"name": "../a"}, {"name": "/a"}, {"name": "a", "file": "../a"}])
def test_a_sample_outside_of_its_folder_is_refused(
    tmp_path: Path, schema: GraphSchema, entry: dict[str, str]
) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"samples": [{"conditions": {}, **entry}]}))
    with pytest.raises(DataError, match="leads out of the folder"):
        read_samples(tmp_path, schema)


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_a_manifest_that_is_none_is_told_by_its_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DataError) as caught:
        read_manifest(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'manifest.json'}: is no manifest of samples")


@pytest.mark.parametrize("content", [{}, {"samples": 3}, {"samples": [{"name": "a"}]}])
def test_a_manifest_without_samples_is_refused(
    tmp_path: Path, schema: GraphSchema, content: object
) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"is no manifest of samples .*; sample again"):
        read_samples(tmp_path, schema)


def test_samples_carry_the_conditions_of_the_manifest(tmp_path: Path, schema: GraphSchema) -> None:
    write_json(tmp_path / "a.json", _raw(1.0))
    entry = {"name": "a", "file": "a.json", "conditions": {"label": 7.5}}
    (tmp_path / "manifest.json").write_text(json.dumps({"samples": [entry, entry]}))
    first, second = read_samples(tmp_path, schema)
    # What was asked for, not what the file of the sample says.
    assert first.conditions == second.conditions == {"label": 7.5}
    assert first.x_NA.tolist() == _encoded(schema, 1.0).x_NA.tolist()


def test_a_stream_of_samples_knows_their_number_and_can_be_gone_through_again(
    schema: GraphSchema, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        write_json(tmp_path / f"{name}.json", replace(_raw(1.0), name=name))
    entries = [
        {"name": name, "file": f"{name}.json", "conditions": {"label": 7.0}} for name in ("a", "b")
    ]
    (tmp_path / "manifest.json").write_text(json.dumps({"samples": entries}))

    stream = stream_samples(tmp_path, schema)
    assert len(stream) == 2
    for found in (list(stream), list(stream), list(read_samples(tmp_path, schema))):
        assert [dag.conditions["label"] for dag in found] == [7.0, 7.0]
