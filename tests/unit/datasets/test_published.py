"""Batch jobs of Alibaba's cluster trace of 2018."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import layerdag as ld
from layerdag.dag.dag import DAG
from layerdag.datasets.published import (
    _LONGEST_LINE,
    LatentPreferentialSettings,
    _graph,
    _jobs,
    is_valid,
    load_alibaba,
    load_latent_preferential,
    load_tpu_tile,
)
from layerdag.errors import DataError, UsageError
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
    assert sum(map(len, load_alibaba(folder, num_graphs=11).graphs.values())) == 11
    with pytest.raises(DataError, match="no job of 6 to"):
        load_alibaba(folder, min_nodes=6)


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
        ("x" * (_LONGEST_LINE + 2), "line of more than"),
    ],
)
def test_a_damaged_table_is_told_with_its_line(tmp_path, text, told):
    (tmp_path / "batch_task.csv").write_text(text)
    with pytest.raises(DataError, match=told):
        load_alibaba(tmp_path)


def test_a_folder_without_the_table_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no batch_task\.csv"):
        load_alibaba(tmp_path)
    with pytest.raises(DataError, match="at least 1"):
        load_alibaba(tmp_path, num_graphs=0)


def star(values: list[int]) -> DAG:
    """Return a node with one predecessor a value."""
    count = len(values)
    edges = torch.tensor([list(range(count)), [count] * count], dtype=torch.int64)
    return DAG.build(torch.tensor([*values, 0])[:, None], edges)


@pytest.mark.parametrize(
    ("values", "rho", "valid"),
    [
        ([0, 1], 0.0, True),
        ([0, 1, 1], 0.0, False),
        ([0, 1, 1], 0.5, False),
        ([0, 1, 1], 1.0, True),
        ([0, 0, 1, 1, 1], 0.5, True),
        ([1], 1.0, False),
        ([], 0.0, True),
    ],
)
def test_the_commoner_value_may_exceed_the_rarer_by_the_share_rho(values, rho, valid):
    assert is_valid(star(values), rho) is valid


@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
def test_every_generated_graph_keeps_the_rule_and_its_layers(rho):
    data = load_latent_preferential(rho=rho, num_train=40, num_val=5, num_test=5)
    graphs = [dag for split in data.graphs.values() for dag in split]
    assert all(is_valid(dag, rho) for dag in graphs)
    assert all(3 <= int(dag.layers().max()) + 1 <= 8 for dag in graphs)
    assert len(graphs) == 50


def test_a_larger_tolerance_is_used():
    data = load_latent_preferential(rho=1.0, num_train=40, num_val=1, num_test=1)
    assert not all(is_valid(dag, 0.0) for dag in data.graphs["train"])


def test_a_graph_depends_on_its_number_not_on_how_many_there_are():
    small = load_latent_preferential(num_train=3, num_val=1, num_test=1).graphs["train"]
    large = load_latent_preferential(num_train=9, num_val=2, num_test=2).graphs["train"]
    for first, second in zip(small, large[:3], strict=True):
        assert torch.equal(first.edge_index_2E, second.edge_index_2E)


def test_hubs_attract_children():
    data = load_latent_preferential(num_train=100, num_val=1, num_test=1)
    degrees = [np.bincount(dag.edge_index_2E[0], minlength=1) for dag in data.graphs["train"]]
    degree = np.concatenate(degrees)
    assert degree.var() > 1.5 * degree.mean()  # a Poisson distribution has equal ones


def test_settings_out_of_bounds_are_refused():
    with pytest.raises(UsageError, match="rho >= 0"):
        LatentPreferentialSettings(rho=-1.0)


def write(path, count: int = 4) -> None:
    torch.save(
        {
            "src_list": [torch.tensor([0, 1, 1])] * count,
            "dst_list": [torch.tensor([1, 2, 2])] * count,
            "x_n_list": [torch.tensor([7, 3, 7])] * count,
            "y_list": [float(i) for i in range(count)],
        },
        path,
    )


def test_the_three_files_are_the_three_parts(tmp_path):
    for split, count in (("train", 3), ("val", 2), ("test", 1)):
        write(tmp_path / f"{split}.pth", count)
    data = load_tpu_tile(tmp_path)
    assert [len(data.graphs[split]) for split in ("train", "val", "test")] == [3, 2, 1]
    dag = data.graphs["train"][2]
    assert dag.conditions == {"label": 2.0, "num_nodes": 3.0, "num_layers": 3.0}
    assert dag.edge_index_2E.tolist() == [[0, 1], [1, 2]]  # an edge that is listed twice is one


def test_one_file_is_split_by_split_json(tmp_path):
    write(tmp_path / "val.pth")
    (tmp_path / "split.json").write_text(json.dumps({"train": [0, 3], "val": [1], "test": [2]}))
    data = load_tpu_tile(tmp_path)
    assert data.names["train"] == ("val/0", "val/3")


def test_one_file_without_a_split_is_refused(tmp_path):
    write(tmp_path / "val.pth")
    with pytest.raises(DataError, match=r"no split\.json"):
        load_tpu_tile(tmp_path)


def test_an_empty_folder_and_a_damaged_file_are_refused(tmp_path):
    with pytest.raises(DataError, match="holds none of"):
        load_tpu_tile(tmp_path)
    (tmp_path / "train.pth").write_bytes(b"not a file of torch")
    with pytest.raises(DataError, match="cannot be read"):
        load_tpu_tile(tmp_path)


@pytest.mark.slow
def test_the_reference_split_has_504_training_graphs(shared_data):
    data = load_tpu_tile(shared_data / "flowgraphs" / "tpu_tile")
    assert [len(data.graphs[s]) for s in ("train", "val", "test")] == [504, 63, 63]
    assert data.left_out == ()


def one_file(folder: Path, **changes: object) -> Path:
    """Write a train.pth of one graph of two nodes, with some columns exchanged."""
    columns = {
        "src_list": [torch.tensor([0])],
        "dst_list": [torch.tensor([1])],
        "x_n_list": [torch.tensor([3, 5])],
        "y_list": [1.5],
    }
    torch.save({**columns, **changes}, folder / "train.pth")
    return folder


def test_columns_may_be_lists_and_repeated_edges_count_once(tmp_path):
    one_file(tmp_path, src_list=[[0, 0]], dst_list=[[1, 1]], x_n_list=[[3, 5]])
    [dag] = load_tpu_tile(tmp_path).graphs["train"]
    assert dag.edge_index_2E.tolist() == [[0], [1]]
    assert dag.conditions["label"] == 1.5


@pytest.mark.parametrize(
    "changes",
    [
        {"x_n_list": [torch.zeros(1).expand(10**9)]},
        {"src_list": [["a"]]},
        {"y_list": ["fast"]},
        {"y_list": []},
        {"src_list": 3},
    ],
)
def test_columns_of_another_kind_are_refused_with_the_keys(tmp_path, changes):
    with pytest.raises(DataError, match=r"train\.pth: (is not a TPU Tile file|cannot be read)"):
        load_tpu_tile(one_file(tmp_path, **changes))


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"train": [0]}', '{"train": [9], "val": [], "test": []}']
)
def test_a_split_file_that_splits_nothing_is_refused(tmp_path, text):
    one_file(tmp_path)
    (tmp_path / "train.pth").rename(tmp_path / "val.pth")
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(DataError, match=r"split\.json: must hold lists of numbers of graphs under"):
        load_tpu_tile(tmp_path)


def test_jobs_with_a_task_that_did_not_end_have_no_label(tmp_path):
    fine = [row("M1", f"j{i}") + "\n" + row("R2_1", f"j{i}", end=30 + i) for i in range(3)]
    stopped = [row("M1", "late"), row("R2_1", "late").replace("Terminated", "Running")]
    for order in (stopped, stopped[::-1]):
        (tmp_path / "batch_task.csv").write_text("\n".join([*fine, *order]))
        data = load_alibaba(tmp_path)
        labels = {
            name: dag.conditions.get("label")
            for split, dags in data.graphs.items()
            for name, dag in zip(data.names[split], dags, strict=True)
        }
        assert labels.pop("late") is None
        assert None not in labels.values()
        assert [(note.word, note.count) for note in data.notes] == [("Running", 1)]
