"""Statistics in a checkpoint: nothing that fewer than five graphs show."""

import json

import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried

from layerdag.graph import (
    DAG,
    SHARED_BY,
    GraphSizes,
    GraphStatistics,
    allowed_codes,
    shared_statistics,
)

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


def test_a_code_that_goes_with_one_other_alone_allows_no_other():
    sizes = GraphSizes(attributes=(3, 20))
    found = allowed_codes(jobs(5, [[0, 7], [1, 7], [1, 8]]), sizes)
    assert found == ((((7,), (), ()),), ())
    assert allowed_codes(jobs(9, [[0, 7]]) + jobs(1, [[0, 8]]), sizes) == (((),), ())


def test_what_goes_together_in_too_few_graphs_restricts_nothing():
    sizes = GraphSizes(attributes=(2, 20))
    others = jobs(6, [[1, 3], [1, 4]])
    assert allowed_codes(others + jobs(4, [[0, 7]]), sizes) == (((),), ())
    assert allowed_codes(others + jobs(5, [[0, 7]]), sizes) == ((((7,), ()),), ())


def test_few_codes_are_restricted_to_those_that_five_graphs_show():
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
