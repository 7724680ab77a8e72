from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import GraphError
from layerdag.graph import random_dag
from layerdag.viz import _layout as drawing
from layerdag.viz._layout import layered_layout


def test_a_chain_is_drawn_as_a_straight_line() -> None:
    layout = layered_layout(4, np.array([[0, 1, 2], [1, 2, 3]]))
    assert layout.layer_N.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(layout.x_N, 0, atol=1e-6)
    assert layout.height == 4


def test_nodes_of_a_layer_keep_their_distance(rng: np.random.Generator) -> None:
    dag = random_dag(rng, [4, 9, 3, 7, 5], [2])
    layout = layered_layout(dag.num_nodes, dag.edge_index_2E.numpy())
    for layer in range(layout.height):
        gaps = np.diff(np.sort(layout.x_N[layout.layer_N == layer]))
        assert (gaps > 1 - 1e-4).all()


def test_a_long_edge_passes_one_way_point_on_each_layer_between() -> None:
    layout = layered_layout(4, np.array([[0, 1, 2, 0], [1, 2, 3, 3]]))
    assert layout.route(3)[:, 1].tolist() == [1, 2]
    # The way points stand beside the nodes that the edge would otherwise cross.
    assert (np.abs(layout.route(3)[:, 0] - layout.x_N[[1, 2]]) > 0.5).all()
    assert layout.route(0).shape == (0, 2)


def test_two_parallel_chains_do_not_cross() -> None:
    # Node ids are interleaved so that the order by id would cross at every layer.
    layout = layered_layout(6, np.array([[0, 1, 3, 2], [3, 2, 4, 5]]))
    left_first = layout.x_N[0] < layout.x_N[1]
    assert (layout.x_N[3] < layout.x_N[2]) == left_first
    assert (layout.x_N[4] < layout.x_N[5]) == left_first


def test_an_empty_graph_has_an_empty_drawing() -> None:
    layout = layered_layout(0, np.zeros((2, 0), dtype=np.int64))
    assert (layout.width, layout.height) == (0.0, 0)


def test_a_cycle_is_refused() -> None:
    with pytest.raises(GraphError, match="cycle"):
        layered_layout(2, np.array([[0, 1], [1, 0]]))


@tried(25)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_routes_pass_every_layer_and_nothing_stands_too_close(sizes, seed) -> None:
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


def test_a_tree_is_drawn_without_crossings() -> None:
    """Two parents with two children each, numbered so that the order by id crosses."""
    edges = np.array([[0, 1, 0, 1], [2, 3, 4, 5]])
    layout = layered_layout(6, edges)
    of_first, of_second = layout.x_N[[2, 4]], layout.x_N[[3, 5]]
    assert (of_first.max() < of_second.min()) == (layout.x_N[0] < layout.x_N[1])
    assert of_first.max() < of_second.min() or of_second.max() < of_first.min()
    # A parent stands over the middle of its children.
    assert layout.x_N[0] == pytest.approx(of_first.mean(), abs=1e-3)


def test_too_many_way_points_leave_the_longest_edges_straight(monkeypatch) -> None:
    """A chain of 12 nodes, with edges over it that pass 1, 2 and 10 layers."""
    steps = np.arange(11)
    longer = np.array([[0, 0, 0], [2, 3, 11]])
    edges = np.concatenate([np.stack([steps, steps + 1]), longer], axis=1)
    monkeypatch.setattr(drawing, "_MAX_WAY_POINTS", 3)
    layout = layered_layout(12, edges)
    assert [len(layout.route(edge)) for edge in range(11, 14)] == [1, 2, 0]
    assert layout.layer_N.tolist() == list(range(12))
