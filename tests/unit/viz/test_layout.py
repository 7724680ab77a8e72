import numpy as np
import pytest

from layerdag.errors import GraphError
from layerdag.graph import random_dag
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
