"""WfFormat written: files whose sizes add up, what was measured, the makespan."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.codec import AttributedGraph
from layerdag.datasets.files import read_wfformat, write_wfformat
from layerdag.errors import GraphError

NAN = float("nan")
DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]


def diamond(conditions: dict[str, float] | None = None, **numbers: list[float]) -> AttributedGraph:
    """Return four tasks: one, two after it, and one after both."""
    return AttributedGraph(
        name="diamond",
        categories={"kind": ["split", "a b", "a b", "join"]},
        numbers={name: np.array(values) for name, values in numbers.items()},
        edge_index_2E=np.array(DIAMOND).T,
        edge_type_E=np.zeros(4, dtype=np.int64),
        conditions=conditions or {},
    )


def written(path: Path, graph: AttributedGraph) -> dict[str, Any]:
    write_wfformat(path, graph)
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_tasks_have_parents_children_and_identifiers_without_blanks(tmp_path: Path) -> None:
    document = written(tmp_path / "w.json", diamond())
    assert (document["name"], document["schemaVersion"]) == ("diamond", "1.5")
    tasks = document["workflow"]["specification"]["tasks"]
    assert [task["id"] for task in tasks] == [
        "split_ID000001", "a_b_ID000002", "a_b_ID000003", "join_ID000004"
    ]  # fmt: skip
    assert tasks[1]["name"] == "a b_ID000002"
    assert tasks[0]["children"] == tasks[3]["parents"] == ["a_b_ID000002", "a_b_ID000003"]
    assert tasks[0]["parents"] == tasks[3]["children"] == []


def test_bytes_are_shared_among_the_edges_by_hand(tmp_path: Path) -> None:
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


def test_bytes_that_are_not_known_leave_empty_files_between_tasks(tmp_path: Path) -> None:
    graph = diamond(input_bytes=[NAN] * 4, output_bytes=[NAN] * 4)
    specification = written(tmp_path / "w.json", graph)["workflow"]["specification"]
    assert {file["sizeInBytes"] for file in specification["files"]} == {0}
    assert "inputFiles" not in specification["tasks"][0]
    assert specification["tasks"][0]["outputFiles"] == ["file_1_2", "file_1_3"]


def test_only_data_goes_through_files(tmp_path: Path) -> None:
    graph = replace(
        diamond(), edge_type_E=np.array([0, 1, 1, 1]), edge_type_names=("data", "control")
    )
    files = written(tmp_path / "w.json", graph)["workflow"]["specification"]["files"]
    assert [file["id"] for file in files] == ["file_1_2"]


@pytest.mark.parametrize(
    ("conditions", "makespan"),
    [
        ({}, 1.0 + 5.0 + 2.0),  # the longest path, by the slower branch
        ({"label": 9.5}, 9.5),
    ],
)
def test_the_makespan_is_the_label_or_the_longest_path(
    tmp_path: Path, conditions: dict[str, float], makespan: float
) -> None:
    graph = diamond(conditions, runtime_s=[1.0, 3.0, 5.0, 2.0])
    assert (
        written(tmp_path / "w.json", graph)["workflow"]["execution"]["makespanInSeconds"]
        == makespan
    )


def test_tasks_without_a_runtime_were_not_executed(tmp_path: Path) -> None:
    graph = diamond(runtime_s=[1.0, NAN, 5.0, NAN], cores=[2.0, 4.0, NAN, NAN])
    rows = written(tmp_path / "w.json", graph)["workflow"]["execution"]["tasks"]
    assert rows == [
        {"id": "split_ID000001", "runtimeInSeconds": 1.0, "coreCount": 2.0},
        {"id": "a_b_ID000003", "runtimeInSeconds": 5.0},
    ]


@pytest.mark.parametrize("numbers", [{}, {"cores": [1.0] * 4}, {"runtime_s": [NAN] * 4}])
def test_nothing_is_told_of_an_execution_without_runtimes(
    tmp_path: Path, numbers: dict[str, list[float]]
) -> None:
    assert "execution" not in written(tmp_path / "w.json", diamond(**numbers))["workflow"]


def test_a_graph_that_contradicts_itself_is_not_written(tmp_path: Path) -> None:
    broken = diamond(runtime_s=[1.0])
    with pytest.raises(GraphError):
        write_wfformat(tmp_path / "w.json", broken)
    assert not list(tmp_path.iterdir())


SIZES = st.lists(st.integers(0, 10**12), min_size=4, max_size=4)


@tried(25)
@given(SIZES, SIZES)
def test_sums_of_bytes_come_back(
    tmp_path_factory: pytest.TempPathFactory, read: list[int], wrote: list[int]
) -> None:
    path = tmp_path_factory.mktemp("wf") / "w.json"
    graph = diamond(input_bytes=list(map(float, read)), output_bytes=list(map(float, wrote)))
    write_wfformat(path, graph)
    again = read_wfformat(path)
    assert again.numbers["input_bytes"].tolist() == read
    assert again.numbers["output_bytes"].tolist() == wrote
    assert again.edge_index_2E.T.tolist() == [list(edge) for edge in DIAMOND]
