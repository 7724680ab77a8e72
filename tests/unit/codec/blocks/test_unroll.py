"""Copies of rolled blocks."""

from dataclasses import replace

import numpy as np
import pytest
from layered_jobs import layered_job

from layerdag.codec import AttributedGraph
from layerdag.codec.blocks import BLOCK, MOST_NODES, REPEATS, copies_of, rolled, unrolled
from layerdag.errors import DataError
from layerdag.graph import longest_path_layers

KINDS = ("data", "control")


def pair(types: tuple[str, ...], blocks: list[str], repeats: float) -> AttributedGraph:
    """Return two nodes with an edge of the first type."""
    return AttributedGraph(
        "pair",
        categories={"op": ["a", "b"], BLOCK: blocks},
        numbers={"flops": np.array([1.0, 2.0])},
        edge_index_2E=np.array([[0], [1]]),
        edge_type_E=np.array([0]),
        edge_type_names=types,
        conditions={REPEATS: float(repeats)},
    )


def edges(graph: AttributedGraph) -> list[str]:
    """Return edges as names of nodes with the numbers of their copies."""
    names: list[str] = []
    for word in graph.categories["op"]:
        names.append(f"{word}{sum(name[0] == word for name in names)}")
    return sorted(f"{names[s]}{names[t]}" for s, t in graph.edge_index_2E.T.tolist())


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("data", ["a0b0", "a1b1", "a2b2"]),
        ("data first", ["a0b0"]),
        ("data last", ["a2b2"]),
        ("data not first", ["a1b1", "a2b2"]),
        ("data not last", ["a0b0", "a1b1"]),
        ("data deeper", ["a0b1", "a1b2"]),
        ("data shallower", ["a1b0", "a2b1"]),
        ("data deeper reversed", ["b0a1", "b1a2"]),
        ("data shallower reversed", ["b1a0", "b2a1"]),
    ],
)
def test_edges_inside_blocks(word: str, found: list[str]) -> None:
    assert edges(unrolled(pair((word,), ["inside"] * 2, 3), KINDS)) == found


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("data", ["a0b0", "a0b1", "a0b2"]),
        ("data first", ["a0b0"]),
        ("data last", ["a0b2"]),
        ("data not first", ["a0b1", "a0b2"]),
        ("data not last", ["a0b0", "a0b1"]),
        ("data deeper reversed", ["a0b0", "a0b1", "a0b2"]),
    ],
)
def test_edges_into_blocks(word: str, found: list[str]) -> None:
    assert edges(unrolled(pair((word,), ["outside", "inside"], 3), KINDS)) == found


def test_edges_out_of_blocks() -> None:
    assert edges(unrolled(pair(("data last",), ["inside", "outside"], 3), KINDS)) == ["a2b0"]


@pytest.mark.parametrize("word", ["data", "data first", "data deeper reversed"])
def test_edges_outside_blocks_are_plain(word: str) -> None:
    graph = unrolled(pair((word,), ["outside"] * 2, 3), KINDS)
    assert edges(graph) == ["a0b0"]
    assert graph.num_nodes == 2


def test_own_copies_of_a_node_are_a_chain() -> None:
    graph = unrolled(pair(("control",), ["inside + data deeper", "outside"], 3), KINDS)
    assert edges(graph) == ["a0a1", "a0b0", "a1a2", "a1b0", "a2b0"]


def test_data_wins_over_control_between_the_same_nodes() -> None:
    graph = unrolled(pair(("control + data first",), ["inside"] * 2, 2), KINDS)
    assert [KINDS[code] for code in graph.edge_type_E] == ["data", "control"]


def test_edges_to_other_copies_that_close_a_cycle_are_left_out() -> None:
    graph = unrolled(
        pair(("data deeper + data shallower",), ["inside + data deeper"] * 2, 4), KINDS
    )
    assert edges(graph)
    longest_path_layers(graph.num_nodes, graph.edge_index_2E)
    knot = pair(("data + data shallower reversed",), ["inside + data deeper"] * 2, 4)
    graph = unrolled(knot, KINDS)
    longest_path_layers(graph.num_nodes, graph.edge_index_2E)
    assert {"a0b0", "a1b1", "a2b2", "a3b3"} <= set(edges(graph))


def test_attributes_are_those_of_the_block() -> None:
    graph = unrolled(pair(("data",), ["inside", "outside"], 2), KINDS)
    assert graph.categories == {"op": ["a", "a", "b"]}
    assert graph.numbers["flops"].tolist() == [1.0, 1.0, 2.0]
    assert graph.edge_type_names == KINDS


@pytest.mark.parametrize("repeats", [0.0, -3.0, 0.4])
def test_there_is_at_least_one_copy(repeats: float) -> None:
    assert unrolled(pair(("data",), ["inside"] * 2, repeats), KINDS).num_nodes == 2


def test_a_whole_graph_has_one_node_for_each() -> None:
    assert copies_of(layered_job(3)).tolist() == [1] * layered_job(3).num_nodes
    assert copies_of(rolled(layered_job(3))).sum() == layered_job(3).num_nodes


def test_too_many_copies_are_refused() -> None:
    small = rolled(layered_job(3))
    huge = replace(small, conditions={REPEATS: float(MOST_NODES)})
    with pytest.raises(DataError, match="ask for fewer repeats"):
        unrolled(huge, KINDS)
