"""Graphs with names and numbers: their checks name the first fault."""

from dataclasses import replace

import numpy as np
import pytest

from layerdag.codec import AttributedGraph, size_conditions
from layerdag.errors import GraphError


def sound() -> AttributedGraph:
    return AttributedGraph(
        name="g",
        categories={"op": ["a", "b", "c"]},
        numbers={"cost": np.array([1.0, 2.0, np.nan])},
        edge_index_2E=np.array([[0, 1], [1, 2]]),
        edge_type_E=np.zeros(2, dtype=np.int64),
    )


NO_EDGES = {"edge_index_2E": np.zeros((2, 0), np.int64), "edge_type_E": np.zeros(0, np.int64)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"categories": {}, "numbers": {}}, "g: there is no node, or no node attribute"),
        ({"categories": {"op": []}}, "g: there is no node"),
        ({"numbers": {"cost": np.zeros(2)}}, "g: attribute 'cost' has 2 values for 3 nodes"),
        (
            {"categories": {"op": ["a", "b", "c"], "kind": ["x"]}},
            "g: attribute 'kind' has 1 values for 3 nodes",
        ),
        ({"edge_type_E": np.zeros(3, np.int64)}, "g: there are 3 edge types for 2 edges"),
        ({"edge_index_2E": np.array([[0, 1], [1, 3]])}, "g: an edge names node 3, but nodes are 0"),
        ({"edge_index_2E": np.array([[0, -1], [1, 2]])}, "g: an edge names node -1, but nodes are"),
        ({"edge_index_2E": np.array([[0, 0], [1, 1]])}, "g: an edge occurs twice; keep one"),
    ],
)
def test_the_first_fault_is_named(changes: dict, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        replace(sound(), **changes).checked()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        NO_EDGES,
        {"categories": {}},
        {"numbers": {}},
        {"edge_index_2E": np.array([[0, 1], [1, 0]])},  # a cycle is found when encoding
    ],
)
def test_a_sound_graph_is_returned_as_it_is(changes: dict) -> None:
    graph = replace(sound(), **changes)
    assert graph.checked() is graph
    assert graph.num_nodes == 3


def test_sizes_are_conditions() -> None:
    assert size_conditions(np.array([0, 1, 1, 4])) == {"num_nodes": 4.0, "num_layers": 5.0}
    assert size_conditions(np.zeros(0, np.int64)) == {"num_nodes": 0.0, "num_layers": 0.0}
