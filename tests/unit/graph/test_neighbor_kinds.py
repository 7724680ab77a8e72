"""Neighbors are listed as multisets of kinds, if enough graphs show them."""

import json

import pytest
import torch

from layerdag.graph import (
    DAG,
    MANY,
    GraphSizes,
    GraphStatistics,
    neighbor_kinds,
    shared_statistics,
)


def graph(kinds: list[int], edges: list[tuple[int, int]]) -> DAG:
    return DAG.build(torch.tensor(kinds)[:, None], torch.tensor(edges).reshape(-1, 2).T)


FORK = graph([0, 1, 2], [(0, 1), (0, 2)])
CHAIN = graph([0, 1, 2], [(0, 1), (1, 2)])


def test_what_too_few_graphs_show_is_left_out():
    parents, children = neighbor_kinds([FORK, FORK, CHAIN], 3, needed=2)
    assert parents.multisets == (((),), ((0,),), ((0,),))
    assert children.multisets == (((1, 2),), ((),), ((),))
    _, children = neighbor_kinds([FORK, FORK, CHAIN], 3, needed=1)
    assert children.multisets == (
        ((1,), (1, 2)),
        ((), (2,)),
        ((),),
    )


def test_more_than_many_equal_neighbors_count_as_many():
    def star(leaves: int) -> DAG:
        return graph([0] + [1] * leaves, [(0, i + 1) for i in range(leaves)])

    _, children = neighbor_kinds([star(MANY), star(MANY + 4)], 2, needed=2)
    assert children.multisets[0] == ((1,) * MANY,)


def test_the_order_of_nodes_and_edges_does_not_matter():
    turned = graph([2, 1, 0], [(2, 0), (2, 1)])
    assert neighbor_kinds([turned], 3, 1) == neighbor_kinds([FORK], 3, 1)


def test_a_kind_with_too_many_kinds_of_neighbors_at_once_has_no_list():
    hub = graph(list(range(15)), [(0, i) for i in range(1, 15)])
    parents, children = neighbor_kinds([hub], 15, 1)
    assert children.multisets[0] == ()
    assert parents.multisets[1] == ((0,),)


def test_a_checkpoint_lists_what_five_graphs_share():
    sizes = GraphSizes((3,), edge_types=1)
    shared = shared_statistics([FORK] * 5 + [CHAIN] * 4, sizes)
    assert shared.children.multisets == (((1, 2),), ((),), ((),))
    assert GraphStatistics.from_dict(json.loads(json.dumps(shared.to_dict()))) == shared


@pytest.mark.parametrize(
    "listed",
    [
        [[[0]]],  # of one kind only
        [[[3]], [], []],  # no such kind
        [[[1, 0]], [], []],  # not ascending
        [[[-1]], [], []],
        [[[0.5]], [], []],
        [[list(range(3)) * 10_000], [], []],
    ],
)
def test_lists_that_are_none_are_refused(listed: list) -> None:
    data = GraphStatistics.measure([FORK], GraphSizes((3,), edge_types=1)).to_dict()
    children = {"multisets": listed, "unlisted": [0.0] * len(listed)}
    with pytest.raises((TypeError, ValueError)):
        GraphStatistics.from_dict({**data, "children": children})


@pytest.mark.parametrize("unlisted", [[0.0], [0.0, 0.0, 1.0], [-0.1, 0.0, 0.0], [0.0, "x", 0.0]])
def test_shares_of_unlisted_neighbors_that_are_none_are_refused(unlisted: list) -> None:
    data = GraphStatistics.measure([FORK], GraphSizes((3,), edge_types=1)).to_dict()
    children = {"multisets": [[[1]], [], []], "unlisted": unlisted}
    with pytest.raises((TypeError, ValueError)):
        GraphStatistics.from_dict({**data, "children": children})


def test_the_share_of_unlisted_neighbors_is_that_of_nodes():
    _, children = neighbor_kinds([FORK] * 6 + [CHAIN] * 3, 3, needed=4)
    assert children.multisets == (((1, 2),), ((),), ((),))
    assert children.unlisted == (0.35, 0.35, 0.05)  # half a node more of each


def test_statistics_that_are_only_measured_say_nothing():
    data = GraphStatistics.measure([FORK], GraphSizes((3,), edge_types=1)).to_dict()
    assert GraphStatistics.from_dict(data).children.multisets == ((), (), ())
    del data["children"]
    with pytest.raises(KeyError):
        GraphStatistics.from_dict(data)
