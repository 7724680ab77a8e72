"""Neighbors are listed as multisets of kinds, if enough graphs show them."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.neighbors import MANY, neighbor_kinds
from layerdag.dag.program_numbers import SHARED_BY
from layerdag.dag.shared_statistics import allowed_codes, shared_statistics
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import GraphError


def graph(kinds: list[int], edges: list[tuple[int, int]]) -> DAG:
    return DAG.build(torch.tensor(kinds)[:, None], torch.tensor(edges).reshape(-1, 2).T)


FORK = graph([0, 1, 2], [(0, 1), (0, 2)])
CHAIN = graph([0, 1, 2], [(0, 1), (1, 2)])


def test_what_too_few_graphs_show_is_left_out():
    parents, children = neighbor_kinds([FORK, FORK, CHAIN], 3, needed=2)
    assert parents.multisets == (((),), ((0,),), ((0,),))
    assert children.multisets == (((1, 2),), ((),), ((),))
    _, children = neighbor_kinds([FORK, FORK, CHAIN], 3, needed=1)
    assert children.multisets == (((1,), (1, 2)), ((), (2,)), ((),))


def test_neighbors_count_up_to_many_and_too_many_kinds_at_once_have_no_list():
    def star(leaves: int) -> DAG:
        return graph([0] + [1] * leaves, [(0, i + 1) for i in range(leaves)])

    _, children = neighbor_kinds([star(MANY), star(MANY + 4)], 2, needed=2)
    assert children.multisets[0] == ((1,) * MANY,)
    hub = graph(list(range(15)), [(0, i) for i in range(1, 15)])
    parents, children = neighbor_kinds([hub], 15, 1)
    assert children.multisets[0] == ()
    assert parents.multisets[1] == ((0,),)


def test_the_order_of_nodes_and_edges_does_not_matter():
    turned = graph([2, 1, 0], [(2, 0), (2, 1)])
    assert neighbor_kinds([turned], 3, 1) == neighbor_kinds([FORK], 3, 1)


def test_a_checkpoint_lists_what_five_graphs_share():
    sizes = GraphSizes((3,), edge_types=1)
    shared = shared_statistics([FORK] * 5 + [CHAIN] * 4, sizes)
    assert shared.children.multisets == (((1, 2),), ((),), ((),))
    assert GraphStatistics.from_dict(json.loads(json.dumps(shared.to_dict()))) == shared


@pytest.mark.parametrize(
    ("listed", "unlisted"),
    [
        ([[[0]]], [0.0]),  # of one kind only
        ([[[3]], [], []], [0.0] * 3),  # no such kind
        ([[[1, 0]], [], []], [0.0] * 3),  # not ascending
        ([[[-1]], [], []], [0.0] * 3),
        ([[[0.5]], [], []], [0.0] * 3),
        ([[list(range(3)) * 10_000], [], []], [0.0] * 3),
        ([[[1]], [], []], [0.0]),
        ([[[1]], [], []], [0.0, 0.0, 1.0]),
        ([[[1]], [], []], [-0.1, 0.0, 0.0]),
        ([[[1]], [], []], [0.0, "x", 0.0]),
    ],
)
def test_lists_and_shares_of_the_unlisted_that_are_none_are_refused(listed, unlisted):
    data = GraphStatistics.measure([FORK], GraphSizes((3,), edge_types=1)).to_dict()
    children = {"multisets": listed, "unlisted": unlisted}
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


SIZES = GraphSizes(attributes=(3,))


def fan(width: int, kind: int = 1) -> DAG:
    """A root of kind 0, ``width`` nodes of a kind below it, and a sink of kind 2."""
    middle = torch.arange(1, width + 1)
    edges = torch.cat(
        [
            torch.stack([torch.zeros_like(middle), middle]),
            torch.stack([middle, torch.full_like(middle, width + 1)]),
        ],
        dim=1,
    )
    return DAG.build(torch.tensor([[0], *[[kind]] * width, [2]]), edges)


def test_rare_degrees_and_layer_sizes_are_moved_to_what_five_graphs_reach():
    graphs = [fan(2)] * 10 + [fan(7), fan(8), fan(9), fan(9), fan(40)]
    exact, shared = GraphStatistics.measure(graphs, SIZES), shared_statistics(graphs, SIZES)
    assert exact.max_in_degree == 40
    assert shared.in_degrees[2] == ((2, 10), (7, 5))
    assert shared.out_degrees[0] == ((2, 10), (7, 5))
    assert (shared.max_in_degree, shared.max_layer_size) == (7, 7)
    assert shared.layer_counts == ()


def test_every_count_is_a_multiple_of_five_and_none_vanishes():
    graphs = [fan(2)] * 6 + [fan(3)] * 6
    shared = shared_statistics(graphs, SIZES)
    counts = [*shared.attributes[0], *shared.edge_types, shared.graphs]
    counts += [n for pairs in (*shared.in_degrees, shared.layer_sizes) for _, n in pairs]
    assert all(count % SHARED_BY == 0 and count > 0 for count in counts)


def test_a_kind_in_too_few_graphs_gets_the_degrees_of_the_others():
    graphs = [fan(2)] * 9 + [fan(3, kind=0)]
    kinds = shared_statistics([*graphs, DAG.build(torch.tensor([[0], [0], [1]]), torch.tensor(
        [[0, 0], [1, 2]]))], GraphSizes(attributes=(4,))).in_degrees  # fmt: skip
    assert kinds[3] == ()
    rare = [*graphs, DAG.build(torch.tensor([[0], [3]]), torch.tensor([[0], [1]]))]
    found = shared_statistics(rare, GraphSizes(attributes=(4,))).in_degrees[3]
    assert [degree for degree, _ in found] == [0, 1, 2]


def test_no_parents_stays_apart_from_few_parents():
    lone = DAG.build(torch.tensor([[1], [0], [2]]), torch.tensor([[1], [2]]))
    graphs = [fan(2)] * 6 + [lone] * 4
    assert [degree for degree, _ in shared_statistics(graphs, SIZES).in_degrees[1]] == [1]
    graphs += [lone]
    assert [degree for degree, _ in shared_statistics(graphs, SIZES).in_degrees[1]] == [0, 1]


def test_caps_keep_the_shapes_of_trained_weights():
    graphs = [fan(2)] * 10 + [fan(40)]
    shared = shared_statistics(graphs, SIZES, layer_cap=30, in_degree_cap=30)
    assert (shared.max_layer_size, shared.max_in_degree) == (30, 30)


def test_a_few_graphs_keep_what_most_of_them_share():
    shared = shared_statistics([fan(2), fan(2), fan(5)], SIZES)
    assert [degree for degree, _ in shared.in_degrees[2]] == [2]
    alone = shared_statistics([fan(5)], SIZES)
    assert [degree for degree, _ in alone.in_degrees[2]] == [5]


@tried(25)
@given(st.lists(st.integers(1, 9), min_size=5, max_size=20), st.integers(5, 9))
def test_what_is_kept_is_shown_by_five_graphs_and_no_node_is_lost(widths, common):
    """Fans of random widths; five of one width, so that there is something to share."""
    graphs = [fan(width) for width in (*widths, *[common] * SHARED_BY)]
    exact, shared = GraphStatistics.measure(graphs, SIZES), shared_statistics(graphs, SIZES)
    reached = [degree for degree, _ in shared.in_degrees[2]]
    all_widths = sorted([*widths, *[common] * SHARED_BY])
    for low, high in zip(reached, [*reached[1:], 10**9], strict=True):
        standing = [w for w in all_widths if low <= w < high or (low == reached[0] and w < high)]
        assert len(standing) >= SHARED_BY
    for kind in range(3):
        nodes = sum(count for _, count in exact.in_degrees[kind])
        kept = sum(count for _, count in shared.in_degrees[kind])
        assert nodes <= kept <= nodes + SHARED_BY * len(shared.in_degrees[kind])
    assert shared.max_in_degree <= exact.max_in_degree


def test_the_order_of_the_graphs_does_not_matter():
    graphs = [fan(width) for width in (2, 9, 3, 3, 7, 2, 5, 5, 5, 1, 8)]
    assert shared_statistics(graphs, SIZES) == shared_statistics(graphs[::-1], SIZES)


def jobs(count: int, rows: list[list[int]]) -> list[DAG]:
    """Graphs without edges whose nodes have these codes."""
    return [DAG.build(torch.tensor(rows), torch.zeros((2, 0), dtype=torch.int64))] * count


def test_codes_are_restricted_to_what_five_graphs_show():
    sizes = GraphSizes(attributes=(3, 20))
    found = allowed_codes(jobs(5, [[0, 7], [1, 7], [1, 8]]), sizes)
    assert found == ((((7,), (), ()),), ())
    assert allowed_codes(jobs(9, [[0, 7]]) + jobs(1, [[0, 8]]), sizes) == (((),), ())
    sizes = GraphSizes(attributes=(2, 20))
    others = jobs(6, [[1, 3], [1, 4]])
    assert allowed_codes(others + jobs(4, [[0, 7]]), sizes) == (((),), ())
    assert allowed_codes(others + jobs(5, [[0, 7]]), sizes) == ((((7,), ()),), ())
    sizes = GraphSizes(attributes=(1, 4))
    rows = [[0, 0], [0, 2]]
    assert allowed_codes(jobs(5, rows), sizes) == ((((0, 2),),), ())
    # A third code in one graph alone: nothing is ruled out, and nothing is told of that graph.
    assert allowed_codes(jobs(5, rows) + jobs(1, [[0, 3]]), sizes) == (((),), ())


def test_allowed_codes_are_read_back_and_damaged_ones_refused():
    sizes = GraphSizes(attributes=(3, 4))
    statistics = shared_statistics(jobs(5, [[0, 1], [1, 0], [1, 2]]), sizes)
    assert statistics.allowed_codes
    data = json.loads(json.dumps(statistics.to_dict()))
    assert GraphStatistics.from_dict(data) == statistics
    for damaged in ([[[[9], [], []]], []], [[[[0]]], []], [[[[0], [], []]]]):
        with pytest.raises(ValueError, match=r"code|attribute"):
            GraphStatistics.from_dict({**data, "allowed_codes": damaged})
    del data["allowed_codes"]
    with pytest.raises(KeyError):
        GraphStatistics.from_dict(data)


FORK_SIZES = GraphSizes(attributes=(3, 2), edge_types=2)


def fork() -> DAG:
    """0 -> 1, 0 -> 2; kinds 0, 1, 1."""
    return DAG.build(
        torch.tensor([[0, 1], [1, 0], [1, 1]]),
        torch.tensor([[0, 0], [1, 2]]),
        edge_type_E=torch.tensor([0, 1]),
    )


def test_counts_of_a_fork():
    found = GraphStatistics.measure([fork(), fork()], FORK_SIZES)
    assert found.graphs == 2
    assert found.attributes == ((2, 4, 0), (2, 4))
    assert found.edge_types == (2, 2)
    assert found.in_degrees == (((0, 2),), ((1, 4),), ())
    assert found.out_degrees == (((2, 2),), ((0, 4),), ())
    assert found.layer_sizes == ((1, 2), (2, 2))
    assert found.layer_counts == ((2, 2),)
    assert (found.max_in_degree, found.max_out_degree, found.max_layer_size) == (1, 2, 2)


def test_what_the_sizes_do_not_allow_is_refused():
    with pytest.raises(GraphError, match="attribute 1"):
        GraphStatistics.measure([fork()], GraphSizes(attributes=(3, 1), edge_types=2))
    with pytest.raises(GraphError, match="empty"):
        GraphStatistics.measure([], FORK_SIZES)
    with pytest.raises(GraphError, match=r"code of an edge type is 0 to 1, but .* allow 0 to 0"):
        GraphStatistics.measure([fork()], GraphSizes(attributes=(3, 2), edge_types=1))
    cyclic = DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(GraphError, match="cycle"):
        GraphStatistics.measure([cyclic], GraphSizes(attributes=(1,)))


def sound() -> dict:
    return json.loads(json.dumps(GraphStatistics.measure([fork()], FORK_SIZES).to_dict()))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"graphs": 1.5}, TypeError, None),
        ({"graphs": True}, TypeError, "whole numbers"),
        ({"graphs": -1}, ValueError, "counts must be from 0"),
        ({"graphs": 2**53 + 1}, ValueError, "counts must be from 0"),
        ({"attributes": [[1, -1, 3], [0, 3]]}, ValueError, "counts must be from 0"),
        ({"attributes": []}, ValueError, "there must be a node and a layer"),
        ({"attributes": [[0, 0, 0], [0, 0]]}, ValueError, "there must be a node and a layer"),
        ({"layer_sizes": []}, ValueError, "there must be a node and a layer"),
        ({"edge_types": ["1"]}, TypeError, None),
        ({"layer_sizes": [[2, 1], [1, 1]]}, ValueError, "must ascend"),
        ({"layer_sizes": [[1, 1], [1, 1]]}, ValueError, "must ascend"),
        ({"layer_counts": [[10**9 + 1, 1]]}, ValueError, "must ascend to at most"),
        ({"in_degrees": [[[0, 1]], [[1, 2]]]}, ValueError, "every kind needs its degrees"),
        ({"out_degrees": [[], [], [], []]}, ValueError, "every kind needs its degrees"),
        ({"in_degrees": [[[0]], [], []]}, ValueError, "not enough values"),
        ({"in_degrees": [[[0, 0.5]], [], []]}, TypeError, None),
    ],
)  # fmt: skip
def test_counts_from_outside_that_are_none_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        GraphStatistics.from_dict({**sound(), **changes})


@pytest.mark.parametrize("name", ["graphs", "attributes", "in_degrees", "layer_sizes"])
def test_a_missing_entry_is_a_key_error(name):
    data = sound()
    del data[name]
    with pytest.raises(KeyError):
        GraphStatistics.from_dict(data)


@tried(30)
@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(0, 2**32 - 1),
)
def test_counts_are_those_of_a_slow_count(shapes, seed):
    rng = np.random.default_rng(seed)
    dags = [random_dag(rng, sizes, [3, 2], extra_edges=0.6, num_edge_types=2) for sizes in shapes]
    found = GraphStatistics.measure(dags, FORK_SIZES)
    kinds, parents, children, widths = Counter(), Counter(), Counter(), Counter()
    for dag in dags:
        kind = dag.x_NA[:, 0].tolist()
        sources, targets = dag.edge_index_2E.tolist()
        kinds.update(kind)
        parents.update((k, targets.count(n)) for n, k in enumerate(kind))
        children.update((k, sources.count(n)) for n, k in enumerate(kind))
        widths.update(Counter(dag.layer_N.tolist()).values())
    assert found.attributes[0] == tuple(kinds[k] for k in range(3))
    for table, counts in ((found.in_degrees, parents), (found.out_degrees, children)):
        assert {(k, d): n for k in range(3) for d, n in table[k]} == dict(counts)
    assert dict(found.layer_sizes) == dict(widths)
    assert dict(found.layer_counts) == dict(Counter(len(sizes) for sizes in shapes))
    assert sum(found.edge_types) == sum(dag.num_edges for dag in dags)
    assert GraphStatistics.from_dict(json.loads(json.dumps(found.to_dict()))) == found
