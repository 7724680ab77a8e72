"""Words of rolled graphs."""

from dataclasses import replace

import numpy as np
import pytest

from layerdag.codec import AttributedGraph
from layerdag.codec.blocks import BLOCK, in_copy, is_rolled
from layerdag.codec.blocks._edge_labels import EdgeLabel, Extent, block_word, joined, own_edges

KINDS = ("data", "control")


@pytest.mark.parametrize("extent", list(Extent))
@pytest.mark.parametrize("turned", [False, True])
def test_a_word_is_read_as_it_was_written(extent: Extent, turned: bool) -> None:
    word = EdgeLabel("data", extent, turned)
    assert EdgeLabel.all_in(str(word), KINDS) == [word]


def test_an_edge_between_all_copies_keeps_the_name_of_its_type() -> None:
    assert str(EdgeLabel("control")) == "control"


def test_several_words_of_one_edge_are_told_apart() -> None:
    words = {EdgeLabel("data"), EdgeLabel("control", Extent.DEEPER), EdgeLabel("data", Extent.LAST)}
    assert set(EdgeLabel.all_in(joined(words), KINDS)) == words


def test_words_of_other_graphs_are_left_out() -> None:
    assert EdgeLabel.all_in("weight", KINDS) == []
    assert EdgeLabel.all_in("data sideways + control", KINDS) == [EdgeLabel("control")]


def test_nodes_outside_blocks_have_no_other_copies() -> None:
    assert own_edges("outside", KINDS) is None
    assert own_edges(block_word([]), KINDS) == []
    words = [EdgeLabel("data", Extent.DEEPER)]
    assert own_edges(block_word(words), KINDS) == words


@pytest.mark.parametrize(
    ("extent", "depths"),
    [
        (Extent.ALL, [0, 1, 2]),
        (Extent.FIRST, [0]),
        (Extent.LAST, [2]),
        (Extent.NOT_FIRST, [1, 2]),
        (Extent.NOT_LAST, [0, 1]),
        (Extent.DEEPER, [1, 2]),
        (Extent.SHALLOWER, [0, 1]),
    ],
)
def test_extents_name_copies_by_depth(extent: Extent, depths: list[int]) -> None:
    assert list(extent.depths(3)) == depths


def test_one_copy_is_first_and_last_and_has_no_neighbor() -> None:
    assert [len(extent.depths(1)) for extent in Extent] == [1, 1, 1, 0, 0, 0, 0]


def test_edges_inside_a_copy_are_told_from_those_to_other_copies() -> None:
    assert in_copy("data", "data")
    assert in_copy("data first", "data")
    assert in_copy("control deeper + data", "data")
    assert not in_copy("data deeper reversed", "data")
    assert not in_copy("control", "data")


@pytest.mark.parametrize(
    ("edges", "blocks", "expected"),
    [
        (("data", "control"), ["outside", "outside"], True),
        (("data", "data deeper reversed + data first"), ["inside + data deeper", "inside"], True),
        (("data", "data secret"), ["outside", "inside"], False),
        (("data", "secret"), ["outside", "inside"], False),
        (("data",), ["outside", "secret"], False),
        (("data",), ["outside", "inside + secret"], False),
    ],
)
def test_a_rolled_graph_has_words_of_rolled_graphs_alone(
    edges: tuple[str, ...], blocks: list[str], expected: bool
) -> None:
    graph = AttributedGraph(
        name="job",
        categories={"op": ["a", "b"], BLOCK: blocks},
        numbers={},
        edge_index_2E=np.array([[0], [1]]),
        edge_type_E=np.array([0]),
        edge_type_names=edges,
    )
    assert is_rolled(graph, ("data", "control")) is expected
    assert not is_rolled(replace(graph, categories={"op": ["a", "b"]}), ("data", "control"))
