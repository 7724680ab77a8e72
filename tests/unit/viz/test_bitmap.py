"""Bitmap pictures of DAGs: whole files, every edge where it belongs."""

from pathlib import Path

import numpy as np
import pytest
import torch

from layerdag.errors import GraphError
from layerdag.graph import DAG, random_dag
from layerdag.viz import write_picture
from layerdag.viz._bitmap import _polylines
from layerdag.viz._layout import layered_layout

PNG = b"\x89PNG\r\n\x1a\n"


def pixels(path: Path) -> np.ndarray:
    from matplotlib.image import imread

    return imread(path)


@pytest.mark.parametrize("count", [1, 3])
def test_graphs_stand_side_by_side(tmp_path: Path, rng: np.random.Generator, count: int) -> None:
    dags = [random_dag(rng, [2, 3, 2], [20]) for _ in range(count)]
    path = tmp_path / "x.png"
    write_picture(path, dags, [f"graph {n}" for n in range(count)])
    assert path.read_bytes().startswith(PNG)
    height, width, _ = pixels(path).shape
    assert (width, height) == (462 * count, 770)  # 4.2 by 7 inches each, 110 dots per inch


def test_another_column_gives_other_colors(tmp_path: Path) -> None:
    dag = DAG.build(torch.tensor([[0, 5], [1, 5]]), torch.tensor([[0], [1]]))
    for column in (0, 1):
        write_picture(tmp_path / f"{column}.png", [dag], ["g"], column=column)
    first, second = (pixels(tmp_path / f"{column}.png") for column in (0, 1))
    assert first.shape == second.shape
    assert not np.array_equal(first, second)


def test_a_graph_that_cannot_be_drawn_leaves_no_file(tmp_path: Path) -> None:
    cyclic = DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(GraphError, match="cycle"):
        write_picture(tmp_path / "x.png", [cyclic], ["g"])
    assert list(tmp_path.iterdir()) == []


def test_lines_lead_from_source_to_target_through_the_layers_between() -> None:
    edges = np.array([[0, 1, 2, 0], [1, 2, 3, 3]])
    layout = layered_layout(4, edges)
    lines = _polylines(layout, edges)
    assert [line[:, 1].tolist() for line in lines] == [[0, 1], [1, 2], [2, 3], [0, 1, 2, 3]]
    for line, (source, target) in zip(lines, edges.T, strict=True):
        assert (line[0, 0], line[-1, 0]) == (layout.x_N[source], layout.x_N[target])


def test_kinds_beyond_the_palette_wrap_around(tmp_path: Path) -> None:
    for name, kinds in (("few", [0, 1]), ("many", [8, 9])):
        dag = DAG.build(torch.tensor(kinds)[:, None], torch.tensor([[0], [1]]))
        write_picture(tmp_path / f"{name}.png", [dag], ["g"])
    assert np.array_equal(pixels(tmp_path / "few.png"), pixels(tmp_path / "many.png"))
