from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried

from layerdag.graph import (
    DAG,
    _hashing,
    graph_hash,
    graph_hashes,
    neighborhood_colors,
    node_colors,
    random_dag,
)


def test_hash_does_not_depend_on_node_order(rng: np.random.Generator) -> None:
    dag = random_dag(rng, [3, 5, 4], [4, 2], num_edge_types=2)
    shuffled = dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes)))
    assert graph_hash(shuffled) == graph_hash(dag)


def test_hash_sees_attributes_edge_types_and_direction(rng: np.random.Generator) -> None:
    dag = random_dag(rng, [3, 5, 4], [4, 2], num_edge_types=2)
    x_NA = dag.x_NA.clone()
    x_NA[0, 0] += 1
    variants = [
        replace(dag, x_NA=x_NA),
        replace(dag, edge_type_E=1 - dag.edge_type_E),
        replace(dag, edge_index_2E=dag.edge_index_2E.flip(0)),
    ]
    hashes = {graph_hash(variant) for variant in [dag, *variants]}
    assert len(hashes) == 4


@pytest.mark.parametrize("at_once", [1, 15, 1 << 14])
def test_many_hashes_are_those_of_each_graph_alone(
    at_once: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_hashing, "_NODES_AT_ONCE", at_once)
    empty = DAG.build(
        torch.zeros((0, 2), dtype=torch.int64), torch.zeros((2, 0), dtype=torch.int64)
    )
    dags = [random_dag(rng, [2, 3], [4, 2], num_edge_types=2) for _ in range(7)]
    dags = [empty, *dags[:4], empty, random_dag(rng, [2, 2], [3]), *dags[4:], empty]
    for rounds in (0, 3):
        assert list(graph_hashes(iter(dags), rounds)) == [graph_hash(dag, rounds) for dag in dags]


def test_a_hash_is_what_it_always_was() -> None:
    x_NA = torch.tensor([[1, 0], [2, 3], [1, 1]])
    dag = DAG.build(x_NA, torch.tensor([[0, 0], [1, 2]]), edge_type_E=torch.tensor([0, 1]))
    assert (graph_hash(dag), graph_hash(dag, 8)) == ("0f2a955752be0881", "91a65c1e8accf276")


def partition(colors) -> list[list[int]]:
    """Return the sets of nodes of equal color, in order of their first node."""
    found: dict[object, list[int]] = {}
    for node, color in enumerate(colors):
        found.setdefault(color, []).append(node)
    return list(found.values())


def slow_colors(labels: list, edges: list[tuple[int, int, int]], rounds: int) -> list:
    """Return Weisfeiler-Lehman colors as nested tuples, straight from the definition."""
    colors = list(labels)
    for _ in range(rounds):
        colors = [
            (
                colors[node],
                tuple(sorted((repr(colors[a]), kind) for a, b, kind in edges if b == node)),
                tuple(sorted((repr(colors[b]), kind) for a, b, kind in edges if a == node)),
            )
            for node in range(len(labels))
        ]
    return colors


@tried(30)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 2**32 - 1),
       st.integers(0, 3))  # fmt: skip
def test_nodes_share_a_color_if_and_only_if_their_neighborhoods_are_alike(sizes, seed, rounds):
    dag = random_dag(np.random.default_rng(seed), sizes, [2], extra_edges=0.8, num_edge_types=2)
    labels = dag.x_NA[:, 0].tolist()
    edges = list(zip(*dag.edge_index_2E.tolist(), dag.edge_type_E.tolist(), strict=True))
    expected = partition(slow_colors(labels, edges, rounds))
    assert partition(node_colors(dag, rounds).tolist()) == expected


@tried(30)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_every_radius_of_a_neighborhood_has_a_row_of_colors(sizes, seed):
    dag = random_dag(np.random.default_rng(seed), sizes, [2], extra_edges=0.8)
    labels = dag.x_NA[:, 0].numpy()
    rows = neighborhood_colors(labels, dag.edge_index_2E.numpy(), 3)
    edges = [(a, b, 0) for a, b in dag.edge_index_2E.T.tolist()]
    assert rows.shape == (4, dag.num_nodes)
    for radius, row in enumerate(rows):
        expected = partition(slow_colors(labels.tolist(), edges, radius))
        assert partition(row.tolist()) == expected


def test_rounds_decide_how_far_a_difference_is_seen() -> None:
    """Two chains that differ in their last node only: their first nodes, four steps away."""
    steps = torch.arange(4)
    first, second = (
        DAG.build(torch.tensor([[0], [0], [0], [0], [last]]), torch.stack([steps, steps + 1]))
        for last in (0, 1)
    )
    for rounds in range(6):
        same = node_colors(first, rounds)[0] == node_colors(second, rounds)[0]
        assert bool(same) is (rounds < 4)


def test_an_empty_graph_and_one_without_edges_have_a_hash() -> None:
    none = torch.zeros((2, 0), dtype=torch.int64)
    empty = DAG.build(torch.zeros((0, 1), dtype=torch.int64), none)
    one = DAG.build(torch.zeros((1, 1), dtype=torch.int64), none)
    two = DAG.build(torch.zeros((2, 1), dtype=torch.int64), none)
    hashes = [graph_hash(dag) for dag in (empty, one, two)]
    assert len(set(hashes)) == 3
    assert all(len(word) == 16 and int(word, 16) >= 0 for word in hashes)


def test_the_number_of_edges_is_part_of_the_hash() -> None:
    """Without rounds the colors alone do not see edges."""
    x = torch.zeros((2, 1), dtype=torch.int64)
    apart, joined = (DAG.build(x, torch.tensor(e).reshape(2, -1)) for e in ([[], []], [[0], [1]]))
    assert graph_hash(apart, 0) != graph_hash(joined, 0)
