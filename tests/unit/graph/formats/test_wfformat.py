"""WfFormat of WfCommons, read and written."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

import layerdag as ld
from layerdag.codec.formats import flow_format, read_graph
from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.wfformat import read_wfformat, write_wfformat

INSTANCES = Path(__file__).resolve().parents[5] / "shared" / "data" / "wfinstances"


def instance() -> dict[str, Any]:
    """Two tasks in a row; a file goes from one to the other."""
    tasks = [
        {"name": "split_ID000001", "id": "a", "parents": [], "children": ["b"],
         "inputFiles": ["in"], "outputFiles": ["mid"]},
        {"name": "NF.JOIN", "id": "b", "parents": ["a"], "children": [], "inputFiles": ["mid"],
         "outputFiles": []},
    ]  # fmt: skip
    files = [{"id": "in", "sizeInBytes": 5}, {"id": "mid", "sizeInBytes": 7}]
    rows = [
        {"id": "a", "runtimeInSeconds": 1.5, "coreCount": 2, "command": {"program": "bin/split"}},
        {"id": "b", "runtimeInSeconds": 0.5, "command": {"program": "join a b > c"}},
    ]
    execution = {"makespanInSeconds": 2.5, "executedAt": "now", "tasks": rows}
    specification = {"tasks": tasks, "files": files}
    return {
        "name": "w",
        "schemaVersion": "1.5",
        "workflow": {"specification": specification, "execution": execution},
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[[object], Path]:
    def written(document: object) -> Path:
        path = tmp_path / "w.json"
        path.write_text(json.dumps(document))
        return path

    return written


def test_tasks_become_nodes_with_kind_runtime_bytes_and_makespan(write):
    path = write(instance())
    assert ld.read(path).conditions == {"label": 2.5}  # sniffed
    graph = read_wfformat(path)
    assert graph.name == "w"
    assert graph.categories == {"kind": ["split", "NF.JOIN"]}
    assert graph.edge_index_2E.tolist() == [[0], [1]]
    assert graph.edge_type_names[graph.edge_type_E[0]] == "data"
    assert graph.numbers["runtime_s"].tolist() == [1.5, 0.5]
    assert graph.numbers["input_bytes"].tolist() == [5.0, 7.0]
    assert graph.numbers["output_bytes"].tolist() == [7.0, 0.0]
    np.testing.assert_array_equal(graph.numbers["cores"], [2.0, np.nan])
    assert "avg_cpu" not in graph.numbers


def test_an_edge_without_a_file_is_control_and_one_side_may_name_it(write):
    document = instance()
    tasks = document["workflow"]["specification"]["tasks"]
    tasks[0]["children"], tasks[1]["inputFiles"] = [], ["in"]
    graph = read_wfformat(write(document))
    assert graph.edge_index_2E.tolist() == [[0], [1]]
    assert graph.edge_type_names[graph.edge_type_E[0]] == "control"


def test_version_1_4_has_all_of_a_task_in_one_place(write):
    tasks = [
        {"name": "a_ID01", "parents": [], "children": ["b_ID02"], "runtimeInSeconds": 3,
         "cores": 4, "files": [{"link": "output", "name": "f", "sizeInBytes": 9}]},
        {"name": "b_ID02", "parents": ["a_ID01"], "children": [], "runtimeInSeconds": 1,
         "files": [{"link": "input", "name": "f", "sizeInBytes": 9}]},
    ]  # fmt: skip
    workflow = {"makespanInSeconds": 4, "executedAt": "x", "tasks": tasks}
    graph = read_wfformat(write({"name": "w", "schemaVersion": "1.4", "workflow": workflow}))
    assert graph.categories["kind"] == ["a", "b"]
    assert graph.numbers["cores"][0] == 4.0
    assert graph.numbers["input_bytes"].tolist() == [0.0, 9.0]
    assert graph.edge_type_E.tolist() == [graph.edge_type_names.index("data")]
    assert graph.conditions == {"label": 4.0}


def broken(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    document = instance()
    change(document)
    return document


def specification(document: dict[str, Any]) -> dict[str, Any]:
    return document["workflow"]["specification"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.update(schemaVersion="1.3"), "is WfFormat '1.3'.*migrate"),
        (lambda d: specification(d)["tasks"][1].update(id="a"), "execution names task 'b'"),
        (lambda d: specification(d)["tasks"][1].update(parents=["z"]), "parent 'z'.*not exist"),
        (lambda d: specification(d)["tasks"][0].pop("name"), "name' is missing"),
        (lambda d: specification(d)["files"][0].update(sizeInBytes=-1), "'in' has -1 bytes"),
        (lambda d: d["workflow"]["execution"]["tasks"][0].update(runtimeInSeconds=-1),
         "'runtimeInSeconds' of a task is -1; write a finite number of at least 0"),
        (lambda d: d["workflow"]["execution"]["tasks"][0].update(runtimeInSeconds="x"),
         "'runtimeInSeconds' of a task is 'x'"),
        (lambda d: d["workflow"]["execution"]["tasks"].append({"id": "z"}), "names task 'z'"),
        (lambda d: specification(d).update(tasks=[]), "no sound WfFormat|names task|no node"),
        (lambda d: specification(d).update(tasks=7), "no sound WfFormat"),
    ],
)  # fmt: skip
def test_faults_are_told_with_file_and_place(write, change, told):
    path = write(broken(change))
    with pytest.raises(GraphError, match=told) as error:
        read_wfformat(path)
    assert str(error.value).startswith(str(path))


BYTES = st.integers(0, 1 << 40)
TASK = st.tuples(st.sampled_from(["conv2", "a.b", "x::y z"]), st.floats(0, 1e6), BYTES, BYTES)


@tried(30)
@given(
    st.lists(TASK, min_size=1, max_size=7),
    st.dictionaries(st.tuples(st.integers(0, 6), st.integers(0, 6)), st.integers(0, 1)),
    st.floats(0, 1e6),
)
def test_what_is_written_is_read_again(tmp_path_factory, tasks, pairs, makespan):
    kinds, *columns = zip(*tasks, strict=True)
    edges = {(i, j): kind for (i, j), kind in sorted(pairs.items()) if i < j < len(tasks)}
    names = ("runtime_s", "input_bytes", "output_bytes")
    graph = AttributedGraph(
        name="w",
        categories={"kind": list(kinds)},
        numbers={n: np.array(v, dtype=np.float64) for n, v in zip(names, columns, strict=True)},
        edge_index_2E=np.array(list(edges), dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array(list(edges.values()), dtype=np.int64),
        edge_type_names=("data", "control"),
        conditions={"label": makespan},
    )
    path = tmp_path_factory.mktemp("w") / "w.json"
    write_wfformat(path, graph)
    again = read_graph(path)
    assert again.categories == graph.categories
    assert again.conditions == graph.conditions
    assert again.edge_index_2E.tolist() == graph.edge_index_2E.tolist()
    assert again.edge_type_E.tolist() == graph.edge_type_E.tolist()
    for name, value_N in graph.numbers.items():
        np.testing.assert_array_equal(again.numbers[name], value_N)


@pytest.mark.skipif(not INSTANCES.is_dir(), reason="the instances of WfCommons are not here")
def test_real_instances_are_read_and_written_without_loss(tmp_path):
    files = sorted(INSTANCES.glob("*.json.xz"))[::6]
    assert files
    for path in files:
        graph = ld.read(path)
        assert isinstance(graph, AttributedGraph)
        assert flow_format(path) is not None
        write_wfformat(tmp_path / "w.json", graph)
        assert ld.diff(graph, tmp_path / "w.json").equal, path


NAN = float("nan")
DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]


def diamond(**numbers: list[float]) -> AttributedGraph:
    """Return four tasks: one, two after it, and one after both."""
    return AttributedGraph(
        name="diamond",
        categories={"kind": ["split", "a b", "a b", "join"]},
        numbers={name: np.array(values) for name, values in numbers.items()},
        edge_index_2E=np.array(DIAMOND).T,
        edge_type_E=np.zeros(4, dtype=np.int64),
    )


def written(path: Path, graph: AttributedGraph) -> dict[str, Any]:
    write_wfformat(path, graph)
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_tasks_have_parents_children_and_identifiers_without_blanks(tmp_path):
    document = written(tmp_path / "w.json", diamond())
    assert (document["name"], document["schemaVersion"]) == ("diamond", "1.5")
    tasks = document["workflow"]["specification"]["tasks"]
    assert [task["id"] for task in tasks] == [
        "split_ID000001", "a_b_ID000002", "a_b_ID000003", "join_ID000004"
    ]  # fmt: skip
    assert tasks[1]["name"] == "a b_ID000002"
    assert tasks[0]["children"] == tasks[3]["parents"] == ["a_b_ID000002", "a_b_ID000003"]
    assert tasks[0]["parents"] == tasks[3]["children"] == []


def test_bytes_are_shared_among_the_edges_by_hand(tmp_path):
    """The first writes 100, half for each of two; these want 30 and 80, so 30 and 70 go over.

    The first takes 30 of its share of 50, so 70 are left for the second, which reads 10 more from
    outside. Both write 40; the last one reads 60, half from each, and they write 10 outside.
    """
    graph = diamond(input_bytes=[5, 30, 80, 60], output_bytes=[100, 40, 40, 0])
    files = written(tmp_path / "w.json", graph)["workflow"]["specification"]["files"]
    assert {file["id"]: file["sizeInBytes"] for file in files} == {
        "file_1_2": 30, "file_1_3": 70, "file_2_4": 30, "file_3_4": 30,
        "input_1": 5, "input_3": 10, "output_2": 10, "output_3": 10,
    }  # fmt: skip


def test_bytes_that_are_not_known_leave_empty_files_between_tasks(tmp_path):
    graph = diamond(input_bytes=[NAN] * 4, output_bytes=[NAN] * 4)
    specification = written(tmp_path / "w.json", graph)["workflow"]["specification"]
    assert {file["sizeInBytes"] for file in specification["files"]} == {0}
    assert "inputFiles" not in specification["tasks"][0]
    assert specification["tasks"][0]["outputFiles"] == ["file_1_2", "file_1_3"]


def test_only_data_goes_through_files(tmp_path):
    graph = replace(
        diamond(), edge_type_E=np.array([0, 1, 1, 1]), edge_type_names=("data", "control")
    )
    files = written(tmp_path / "w.json", graph)["workflow"]["specification"]["files"]
    assert [file["id"] for file in files] == ["file_1_2"]


def test_tasks_without_a_runtime_were_not_executed(tmp_path):
    graph = diamond(runtime_s=[1.0, NAN, 5.0, NAN], cores=[2.0, 4.0, NAN, NAN])
    execution = written(tmp_path / "w.json", graph)["workflow"]["execution"]
    assert execution["makespanInSeconds"] == 6.0  # the longest path, as there is no label
    assert execution["tasks"] == [
        {"id": "split_ID000001", "runtimeInSeconds": 1.0, "coreCount": 2.0},
        {"id": "a_b_ID000003", "runtimeInSeconds": 5.0},
    ]


@pytest.mark.parametrize("numbers", [{}, {"cores": [1.0] * 4}, {"runtime_s": [NAN] * 4}])
def test_nothing_is_told_of_an_execution_without_runtimes(tmp_path, numbers):
    assert "execution" not in written(tmp_path / "w.json", diamond(**numbers))["workflow"]


def test_a_graph_that_contradicts_itself_is_not_written(tmp_path):
    broken = diamond(runtime_s=[1.0])
    with pytest.raises(GraphError):
        write_wfformat(tmp_path / "w.json", broken)
    assert not list(tmp_path.iterdir())
