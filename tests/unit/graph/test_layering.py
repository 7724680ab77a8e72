import numpy as np
import pytest

from layerdag.errors import GraphError
from layerdag.graph import expand_ranges, group_by, longest_path_layers


def test_layer_is_the_longest_path_from_a_source() -> None:
    # 0 -> 1 -> 3 and 0 -> 3: node 3 lies behind the longer way; 2 stands alone.
    edges = np.array([[0, 1, 0], [1, 3, 3]])
    assert longest_path_layers(4, edges).tolist() == [0, 1, 0, 2]


def test_graph_without_edges_has_one_layer() -> None:
    assert longest_path_layers(3, np.zeros((2, 0), np.int64)).tolist() == [0, 0, 0]


def test_empty_graph_has_no_layers() -> None:
    assert longest_path_layers(0, np.zeros((2, 0), np.int64)).size == 0


def test_cycle_is_refused_and_named() -> None:
    edges = np.array([[0, 1, 2, 3], [1, 2, 3, 1]])
    with pytest.raises(GraphError, match=r"cycle through 3 nodes: .*1 -> 2 -> 3|2 -> 3 -> 1"):
        longest_path_layers(4, edges)


def test_self_edge_is_a_cycle_of_one() -> None:
    with pytest.raises(GraphError, match="cycle through 1 nodes: 1 -> 1"):
        longest_path_layers(2, np.array([[1], [1]]))


def test_endpoint_out_of_range_is_refused() -> None:
    with pytest.raises(GraphError, match="names node 5 but the graph has 3 nodes"):
        longest_path_layers(3, np.array([[0], [5]]))


def test_negative_endpoint_is_refused_and_named() -> None:
    with pytest.raises(GraphError, match="names node -1"):
        longest_path_layers(3, np.array([[-1], [1]]))


def test_group_by_lists_positions_of_each_key_in_order() -> None:
    ptr, order = group_by(np.array([2, 0, 2, 1]), 4)
    assert ptr.tolist() == [0, 1, 2, 4, 4]
    assert order.tolist() == [1, 3, 0, 2]


def test_expand_ranges_concatenates_and_skips_empty_ones() -> None:
    assert expand_ranges(np.array([3, 5, 0]), np.array([5, 5, 2])).tolist() == [3, 4, 0, 1]
