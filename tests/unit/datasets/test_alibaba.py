"""Batch jobs of Alibaba's cluster trace of 2018."""

import gzip
from pathlib import Path

import numpy as np
import pytest

import layerdag as ld
from layerdag.datasets.alibaba import _graph, _jobs, load_alibaba
from layerdag.datasets.settings import AlibabaConfig
from layerdag.errors import DataError
from layerdag.runtime.notes import NoteCollector


def row(task: str, job: str, start: float = 10, end: float = 20, cpu: str = "100.0") -> str:
    return f"{task},3,{job},1,Terminated,{start},{end},{cpu},0.5"


def job(name: str, end: int = 40) -> list[str]:
    """The job of the trace's own page: task 5 waits for 3 and 4."""
    return [
        row("M1", name), row("M2_1", name, 20, 25), row("M3_1", name, 20, 30),
        row("R4_2", name, 25, 28), row("M5_3_4", name, 30, end, cpu=""),
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path) -> Path:
    lines = [line for b in range(12) for line in job(f"j_{b}", 40 + b)]
    lines += [row("task_abc", "j_alone"), row("M1", "j_flat"), row("M2", "j_flat")]
    text = "\n".join(lines) + "\n"
    (tmp_path / "batch_task.csv.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def test_names_of_tasks_are_the_graph(folder):
    name, tasks = next(_jobs(folder / "batch_task.csv.gz", NoteCollector("")))
    graph = _graph(name, tasks)
    assert graph is not None
    assert graph.categories == {"kind": ["M", "M", "M", "R", "M"]}
    assert graph.edge_index_2E.T.tolist() == [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]]
    np.testing.assert_array_equal(graph.numbers["duration_s"], [10, 5, 10, 3, 10])
    np.testing.assert_array_equal(graph.numbers["cpu"], [100, 100, 100, 100, np.nan])
    assert graph.conditions == {"label": 30.0, "num_nodes": 5.0, "num_layers": 4.0}


def test_a_folder_is_a_data_set_of_its_jobs_with_a_graph(folder):
    data = ld.load_dataset(folder)
    assert data.name == "alibaba"
    assert sum(map(len, data.graphs.values())) == 12
    assert (
        sum(map(len, load_alibaba(AlibabaConfig(folder=folder, num_graphs=11)).graphs.values()))
        == 11
    )
    with pytest.raises(DataError, match="no job of 6 to"):
        load_alibaba(AlibabaConfig(folder=folder, min_nodes=6))


@pytest.mark.parametrize(
    ("rows", "fine"),
    [
        ([row("M1", "j"), row("R2_1", "j")], True),
        ([row("M1", "j"), row("R2_1_", "j")], True),
        ([row("M1_Stg1", "j"), row("R2_1_Stg1", "j")], True),
        ([row("M1", "j"), row("R2_7", "j")], False),
        ([row("M1", "j"), row("R1_1", "j")], False),
        ([row("M1_2", "j"), row("R2_1", "j")], False),
        ([row("M1_1", "j"), row("R2_1", "j")], False),
    ],
)
def test_jobs_that_contradict_themselves_are_left_out(tmp_path, rows, fine):
    path = tmp_path / "batch_task.csv"
    path.write_text("\n".join(rows))
    assert (_graph(*next(_jobs(path, NoteCollector("")))) is not None) == fine


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n", "line 1 has 2 cells"),
        (row("M1", "j", cpu="x"), "line 1: could not convert"),
        ("", "holds no job"),
        ("x" * ((1 << 20) + 2), "line of more than"),
    ],
)
def test_a_damaged_table_is_told_with_its_line(tmp_path, text, told):
    (tmp_path / "batch_task.csv").write_text(text)
    with pytest.raises(DataError, match=told):
        load_alibaba(AlibabaConfig(folder=tmp_path))


def test_a_folder_without_the_table_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no batch_task\.csv"):
        load_alibaba(AlibabaConfig(folder=tmp_path))
    with pytest.raises(DataError, match="at least 1"):
        load_alibaba(AlibabaConfig(folder=tmp_path, num_graphs=0))


def test_jobs_with_a_task_that_did_not_end_have_no_label(tmp_path):
    fine = [row("M1", f"j{i}") + "\n" + row("R2_1", f"j{i}", end=30 + i) for i in range(3)]
    stopped = [row("M1", "late"), row("R2_1", "late").replace("Terminated", "Running")]
    for order in (stopped, stopped[::-1]):
        (tmp_path / "batch_task.csv").write_text("\n".join([*fine, *order]))
        data = load_alibaba(AlibabaConfig(folder=tmp_path))
        labels = {
            name: dag.conditions.get("label")
            for split, dags in data.graphs.items()
            for name, dag in zip(data.names[split], dags, strict=True)
        }
        assert labels.pop("late") is None
        assert None not in labels.values()
        assert [(note.word, note.count) for note in data.notes] == [("Running", 1)]
