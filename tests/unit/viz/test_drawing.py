"""Bitmap pictures of DAGs: whole files, every edge where it belongs."""

import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag
from trace_examples import coll, comp

from layerdag.dag.dag import DAG
from layerdag.errors import GraphError, UsageError
from layerdag.traces.builder import build_trace
from layerdag.viz import drawing
from layerdag.viz.drawing import (
    draw_figure,
    layered_layout,
    save_picture,
    smooth,
    write_picture,
)
from layerdag.viz.views import view_of_trace

PNG = b"\x89PNG\r\n\x1a\n"


def pixels(path: Path) -> np.ndarray:
    from matplotlib.image import imread

    return imread(path)


@pytest.mark.parametrize("count", [1, 3])
def test_graphs_stand_side_by_side(tmp_path, rng, count):
    dags = [random_dag(rng, [2, 3, 2], [20]) for _ in range(count)]
    path = tmp_path / "x.png"
    write_picture(path, dags, [f"graph {n}" for n in range(count)])
    assert path.read_bytes().startswith(PNG)
    height, width, _ = pixels(path).shape
    assert (width, height) == (462 * count, 770)  # 4.2 by 7 inches each, 110 dots per inch


def test_another_column_gives_other_colors(tmp_path):
    dag = DAG.build(torch.tensor([[0, 5], [1, 5]]), torch.tensor([[0], [1]]))
    for column in (0, 1):
        write_picture(tmp_path / f"{column}.png", [dag], ["g"], column=column)
    first, second = (pixels(tmp_path / f"{column}.png") for column in (0, 1))
    assert first.shape == second.shape
    assert not np.array_equal(first, second)


def test_a_graph_that_cannot_be_drawn_leaves_no_file(tmp_path):
    cyclic = DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(GraphError, match="cycle"):
        write_picture(tmp_path / "x.png", [cyclic], ["g"])
    assert list(tmp_path.iterdir()) == []


def test_kinds_beyond_the_palette_wrap_around(tmp_path):
    for name, kinds in (("few", [0, 1]), ("many", [8, 9])):
        dag = DAG.build(torch.tensor(kinds)[:, None], torch.tensor([[0], [1]]))
        write_picture(tmp_path / f"{name}.png", [dag], ["g"])
    assert np.array_equal(pixels(tmp_path / "few.png"), pixels(tmp_path / "many.png"))


def view(size: int):
    return view_of_trace(
        build_trace(
            [comp(0, name="$x_1$ first"), *(comp(at, at - 1) for at in range(1, size)), coll(size)]
        )
    )


@pytest.mark.parametrize(
    ("suffix", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")]
)
def test_suffix_chooses_the_format(tmp_path, suffix, magic):
    path = tmp_path / f"x.{suffix}"
    save_picture(view(3), path)
    assert path.read_bytes().startswith(magic)


def test_small_graphs_carry_names_and_large_ones_dots(tmp_path):
    save_picture(view(3), tmp_path / "small.svg")
    save_picture(view(90), tmp_path / "large.svg")
    small, large = ((tmp_path / name).read_text() for name in ("small.svg", "large.svg"))
    assert "$x_1$ first" in small
    assert "COMM_COLL" in small
    # In the legend only.
    assert large.count("aten::mm</text>") == 1


def test_same_graph_gives_the_same_svg(tmp_path):
    for name in ("a.svg", "b.svg"):
        save_picture(view(4), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


SVG = "{http://www.w3.org/2000/svg}"


def places(path: Path, tag: str) -> list[tuple[str, float, float]]:
    """Return the text and place of the elements of an SVG file."""
    found = ET.parse(path).getroot().iter(f"{SVG}{tag}")
    return sorted((one.text or "", float(one.get("x", 0)), float(one.get("y", 0))) for one in found)


def test_a_name_is_text_in_the_svg_whatever_it_holds(tmp_path):
    save_picture(view_of_trace(build_trace([comp(0, name="</text>\x01\n<b>")])), tmp_path / "x.svg")
    assert "</text>  <b>" in [text for text, *_ in places(tmp_path / "x.svg", "text")]


def test_too_large_graph_is_wrong_use_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("layerdag.viz.drawing.MOST_NODES", 2)
    with pytest.raises(UsageError, match="zoomable page"):
        save_picture(view(2), tmp_path / "x.svg")
    assert not list(tmp_path.iterdir())


def test_curves_leave_and_enter_vertically():
    vertices, codes = smooth([(0.0, 0.0), (2.0, 4.0), (2.0, 6.0)])
    assert codes.tolist() == [1, 4, 4, 4, 4, 4, 4]
    assert vertices.tolist() == [[0, 0], [0, 2], [2, 2], [2, 4], [2, 5], [2, 5], [2, 6]]


def axes_of(found):
    from matplotlib.figure import Figure

    axes = Figure(figsize=(8, 4)).add_axes((0, 0, 1, 1))
    draw_figure(axes, found)
    return axes


def test_the_legend_names_every_kind_and_control_where_there_is_any():
    plain = axes_of(view(3)).get_legend()
    assert [text.get_text() for text in plain.get_texts()] == ["COMP", "COMM_COLL"]
    control = view_of_trace(build_trace([comp(0), comp(1, ctrl=(0,))]))
    dashed = axes_of(control).get_legend()
    assert [text.get_text() for text in dashed.get_texts()] == ["COMP", "control"]


def test_boxes_stand_on_the_layers_and_long_names_are_cut_in_the_middle():
    name = "a_very_long_operator_name_indeed"
    axes = axes_of(view_of_trace(build_trace([comp(0, name=name), comp(7, 0, name="")])))
    texts = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert texts == {name[:10] + "…" + name[-11:]: 0, "7": 1}


def test_edges_are_drawn_solid_or_dashed():
    trace = build_trace([comp(0), comp(1, 0), comp(2, 1, ctrl=(0,))])
    solid, dashed = axes_of(view_of_trace(trace)).collections
    assert (len(solid.get_paths()), len(dashed.get_paths())) == (2, 1)


def test_a_chain_is_drawn_as_a_straight_line():
    layout = layered_layout(4, np.array([[0, 1, 2], [1, 2, 3]]))
    assert layout.layer_N.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(layout.x_N, 0, atol=1e-6)
    assert layout.height == 4


def test_a_long_edge_passes_one_way_point_on_each_layer_between():
    layout = layered_layout(4, np.array([[0, 1, 2, 0], [1, 2, 3, 3]]))
    assert layout.route(3)[:, 1].tolist() == [1, 2]
    # The way points stand beside the nodes that the edge would otherwise cross.
    assert (np.abs(layout.route(3)[:, 0] - layout.x_N[[1, 2]]) > 0.5).all()
    assert layout.route(0).shape == (0, 2)


def test_two_parallel_chains_do_not_cross():
    # Node ids are interleaved so that the order by id would cross at every layer.
    layout = layered_layout(6, np.array([[0, 1, 3, 2], [3, 2, 4, 5]]))
    left_first = layout.x_N[0] < layout.x_N[1]
    assert (layout.x_N[3] < layout.x_N[2]) == left_first
    assert (layout.x_N[4] < layout.x_N[5]) == left_first


def test_an_empty_graph_has_an_empty_drawing():
    layout = layered_layout(0, np.zeros((2, 0), dtype=np.int64))
    assert (layout.width, layout.height) == (0.0, 0)


def test_a_cycle_is_refused():
    with pytest.raises(GraphError, match="cycle"):
        layered_layout(2, np.array([[0, 1], [1, 0]]))


@tried(25)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_routes_pass_every_layer_and_nothing_stands_too_close(sizes, seed):
    dag = random_dag(np.random.default_rng(seed), sizes, [2], extra_edges=0.8)
    edges = dag.edge_index_2E.numpy()
    layout = layered_layout(dag.num_nodes, edges)
    layer_N = dag.layer_N.numpy()
    assert layout.layer_N.tolist() == layer_N.tolist()
    assert layout.height == len(sizes)
    points = list(zip(layout.x_N.tolist(), layer_N.tolist(), [1.0] * dag.num_nodes, strict=True))
    for edge, (source, target) in enumerate(edges.T.tolist()):
        route = layout.route(edge)
        assert route[:, 1].tolist() == list(range(layer_N[source] + 1, layer_N[target]))
        points += [(x, y, 0.35) for x, y in route.tolist()]
    for layer in range(len(sizes)):
        here = sorted((x, gap) for x, y, gap in points if y == layer)
        for (x0, gap0), (x1, gap1) in pairwise(here):
            assert x1 - x0 >= (gap0 + gap1) / 2 - 1e-4
    assert min(x for x, _, _ in points) == 0
    assert layout.width == max(x for x, _, _ in points)


def test_a_tree_is_drawn_without_crossings():
    """Two parents with two children each, numbered so that the order by id crosses."""
    edges = np.array([[0, 1, 0, 1], [2, 3, 4, 5]])
    layout = layered_layout(6, edges)
    of_first, of_second = layout.x_N[[2, 4]], layout.x_N[[3, 5]]
    assert (of_first.max() < of_second.min()) == (layout.x_N[0] < layout.x_N[1])
    assert of_first.max() < of_second.min() or of_second.max() < of_first.min()
    # A parent stands over the middle of its children.
    assert layout.x_N[0] == pytest.approx(of_first.mean(), abs=1e-3)


def test_too_many_way_points_leave_the_longest_edges_straight(monkeypatch):
    """A chain of 12 nodes, with edges over it that pass 1, 2 and 10 layers."""
    steps = np.arange(11)
    longer = np.array([[0, 0, 0], [2, 3, 11]])
    edges = np.concatenate([np.stack([steps, steps + 1]), longer], axis=1)
    monkeypatch.setattr(drawing, "_MAX_WAY_POINTS", 3)
    layout = layered_layout(12, edges)
    assert [len(layout.route(edge)) for edge in range(11, 14)] == [1, 2, 0]
    assert layout.layer_N.tolist() == list(range(12))
