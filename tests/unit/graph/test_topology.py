import itertools
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import GraphError
from layerdag.graph.topology import (
    expand_ranges,
    group_by,
    longest_path,
    longest_path_layers,
    pointers,
)


def test_no_nodes_have_no_layers_and_endpoints_are_within_them():
    assert longest_path_layers(0, np.zeros((2, 0), np.int64)).size == 0
    with pytest.raises(GraphError, match="names node 5 but the graph has 3 nodes"):
        longest_path_layers(3, np.array([[0], [5]]))
    with pytest.raises(GraphError, match="names node -1"):
        longest_path_layers(3, np.array([[-1], [1]]))


@pytest.mark.parametrize(
    ("sizes", "starts"),
    [
        ([], [0]),
        ([2, 0, 3], [0, 2, 2, 5]),
        (np.array([True, False, True]), [0, 1, 1, 2]),
        (np.array([1, 2], dtype=np.uint64), [0, 1, 3]),
        (np.array([2**31 - 1, 1], dtype=np.int32), [0, 2**31 - 1, 2**31]),
    ],
)
def test_pointers_are_running_sums_in_64_bits(sizes, starts):
    found = pointers(sizes)
    assert found.tolist() == starts
    assert found.dtype == np.int64


def slow_layers(num_nodes: int, edges: list[tuple[int, int]]) -> list[int]:
    """Return the longest way to each node, by relaxing all edges until nothing changes."""
    layer = [0] * num_nodes
    for _ in range(num_nodes):
        for source, target in edges:
            layer[target] = max(layer[target], layer[source] + 1)
    return layer


@tried(60)
@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_layers_are_those_of_a_slow_search_whatever_the_ids(size, seed):
    rng = np.random.default_rng(seed)
    name = rng.permutation(size).tolist()
    edges = [(name[a], name[b]) for b in range(size) for a in range(b) if rng.random() < 0.4]
    edges += edges[:2]  # an edge may occur twice
    index = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    assert longest_path_layers(size, index).tolist() == slow_layers(size, edges)


@tried(60)
@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_a_cycle_is_found_if_and_only_if_there_is_one_and_named_as_it_is(size, seed):
    rng = np.random.default_rng(seed)
    edges = {(int(a), int(b)) for a, b in rng.integers(0, size, (int(rng.integers(0, 12)), 2))}
    reach = np.zeros((size, size), dtype=bool)
    for a, b in edges:
        reach[a, b] = True
    for middle in range(size):  # Warshall
        reach |= reach[:, [middle]] & reach[[middle], :]
    index = np.array(sorted(edges), dtype=np.int64).reshape(-1, 2).T
    if not reach.diagonal().any():
        assert longest_path_layers(size, index).tolist() == slow_layers(size, sorted(edges))
        return
    with pytest.raises(GraphError, match="remove the edge that closes the cycle") as caught:
        longest_path_layers(size, index)
    told = re.search(r"through (\d+) nodes: ([\d >-]+)\.", str(caught.value))
    assert told is not None
    walk = [int(node) for node in told[2].split(" -> ")]
    assert walk[0] == walk[-1]
    assert len(walk) - 1 == int(told[1]) == len(set(walk))
    assert set(pairwise(walk)) <= edges


def test_cycles_are_cut_off_in_the_message_and_long_chains_need_no_recursion():
    steps = np.arange(30)
    with pytest.raises(GraphError, match=r"cycle through 30 nodes: (\d+ -> ){8}\.\.\.\."):
        longest_path_layers(30, np.stack([steps, (steps + 1) % 30]))
    steps = np.arange(100_000)[::-1]
    layers = longest_path_layers(100_001, np.stack([steps + 1, steps]))
    assert layers.tolist() == list(range(100_001))[::-1]


@tried(30)
@given(st.lists(st.integers(0, 5), max_size=20))
def test_groups_hold_every_position_once_in_order(keys):
    ptr, order = group_by(np.array(keys, dtype=np.int64), 6)
    found = [order[ptr[g] : ptr[g + 1]].tolist() for g in range(6)]
    assert found == [[at for at, key in enumerate(keys) if key == g] for g in range(6)]


@tried(30)
@given(st.lists(st.tuples(st.integers(-5, 20), st.integers(0, 4)), max_size=8))
def test_expanded_ranges_are_those_of_python(pairs):
    starts = np.array([start for start, _ in pairs], dtype=np.int64)
    ends = np.array([start + length for start, length in pairs], dtype=np.int64)
    expected = [n for start, length in pairs for n in range(start, start + length)]
    assert expand_ranges(starts, ends).tolist() == expected


def test_path_of_a_small_graph():
    # 0 (2) -> 1 (3) -> 3 (1); 0 -> 2 (9) -> 3; 4 (5) alone.
    edges = np.array([[0, 1, 0, 2], [1, 3, 2, 3]])
    cost_N = np.array([2.0, 3.0, 9.0, 1.0, 5.0])
    path = longest_path(longest_path_layers(5, edges), edges, cost_N)
    assert path.length == 12
    assert path.row_P.tolist() == [0, 2, 3]
    assert path.finish_N.tolist() == [2, 5, 11, 12, 5]


def test_equal_to_enumeration_on_random_graphs(rng):
    for _ in range(20):
        pairs = [pair for pair in itertools.combinations(range(7), 2) if rng.random() < 0.4]
        edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        cost_N = rng.integers(0, 9, 7).astype(float)
        path = longest_path(longest_path_layers(7, edges), edges, cost_N)
        best = {n: cost_N[n] for n in range(7)}
        for source, target in sorted(pairs, key=lambda pair: pair[1]):
            best[target] = max(best[target], best[source] + cost_N[target])
        assert path.length == max(best.values())
        assert cost_N[path.row_P].sum() == path.length


def test_nothing_has_no_path():
    empty = np.zeros(0, np.int64)
    path = longest_path(empty, np.zeros((2, 0), np.int64), np.zeros(0))
    assert path.length == 0
    assert path.row_P.size == 0
