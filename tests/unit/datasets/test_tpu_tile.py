"""TPU Tile as files of PyTorch."""

import json
from pathlib import Path

import pytest
import torch

from layerdag.datasets.settings import TpuTileConfig
from layerdag.datasets.tpu_tile import load_tpu_tile
from layerdag.errors import DataError


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
    data = load_tpu_tile(TpuTileConfig(folder=tmp_path))
    assert [len(data.graphs[split]) for split in ("train", "val", "test")] == [3, 2, 1]
    dag = data.graphs["train"][2]
    assert dag.conditions == {"label": 2.0, "num_nodes": 3.0, "num_layers": 3.0}
    assert dag.edge_index_2E.tolist() == [[0, 1], [1, 2]]  # an edge that is listed twice is one


def test_one_file_is_split_by_split_json(tmp_path):
    write(tmp_path / "val.pth")
    (tmp_path / "split.json").write_text(json.dumps({"train": [0, 3], "val": [1], "test": [2]}))
    data = load_tpu_tile(TpuTileConfig(folder=tmp_path))
    assert data.names["train"] == ("val/0", "val/3")


def test_one_file_without_a_split_is_refused(tmp_path):
    write(tmp_path / "val.pth")
    with pytest.raises(DataError, match=r"no split\.json"):
        load_tpu_tile(TpuTileConfig(folder=tmp_path))


def test_an_empty_folder_and_a_damaged_file_are_refused(tmp_path):
    with pytest.raises(DataError, match="holds none of"):
        load_tpu_tile(TpuTileConfig(folder=tmp_path))
    (tmp_path / "train.pth").write_bytes(b"not a file of torch")
    with pytest.raises(DataError, match="cannot be read"):
        load_tpu_tile(TpuTileConfig(folder=tmp_path))


@pytest.mark.slow
def test_the_reference_split_has_504_training_graphs(shared_data):
    data = load_tpu_tile(TpuTileConfig(folder=shared_data / "flowgraphs" / "tpu_tile"))
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
    [dag] = load_tpu_tile(TpuTileConfig(folder=tmp_path)).graphs["train"]
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
        load_tpu_tile(TpuTileConfig(folder=one_file(tmp_path, **changes)))


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"train": [0]}', '{"train": [9], "val": [], "test": []}']
)
def test_a_split_file_that_splits_nothing_is_refused(tmp_path, text):
    one_file(tmp_path)
    (tmp_path / "train.pth").rename(tmp_path / "val.pth")
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(DataError, match=r"split\.json: must hold lists of numbers of graphs under"):
        load_tpu_tile(TpuTileConfig(folder=tmp_path))
