"""Sequences of operators along paths, counted by hand and by walking all paths."""

from collections import Counter

import numpy as np
import pytest
from letters import OP, graph, layered, path

from layerdag.evaluation import GraphSet, SimilarityRow, compare
from layerdag.evaluation.metrics import LOCAL_METRICS
from layerdag.evaluation.metrics.local import operator_paths
from layerdag.graph import DAG, random_dag

PATHS = [m for m in LOCAL_METRICS if getattr(m, "name", "").startswith("path_")]


def rows(train: list[DAG], test: list[DAG], made: list[DAG]) -> dict[str, SimilarityRow]:
    report = compare(train, test, made, OP, metrics=PATHS, replicates=5)
    return {row.metric.name.removeprefix("path_"): row for row in report.rows}


def test_an_operator_out_of_place_is_new_to_the_sequences_through_it() -> None:
    found = rows([path("abcdefgh")], [path("abcdefgh")], [path("abcxefgh")])
    # Of 7 pairs 2 hold the x, of 6 triples 3, of 5 quadruples 4.
    assert found["novelty:2"].generated.value == pytest.approx(2 / 7)
    assert found["novelty:3"].generated.value == pytest.approx(3 / 6)
    assert found["novelty:4"].generated.value == pytest.approx(4 / 5)
    assert found["novelty:2"].reference.value == 0.0


def test_the_direction_of_edges_matters() -> None:
    found = rows([path("ab")], [path("ab")], [path("ba")])
    assert found["novelty:2"].generated.value == 1.0
    assert found["frequencies:2"].generated.value == 1.0


def test_frequencies_are_pooled_and_compared_with_test_graphs() -> None:
    # Pairs of the test graphs: ab, bc. Of the samples: ab, ab, bc, bd. Of training graphs: ab.
    found = rows([path("ab")], [path("abc")], [path("abc"), path("abd")])["frequencies:2"]
    assert found.generated.value == pytest.approx((0 + 0.25 + 0.25) / 2)
    assert found.reference.value == pytest.approx((0.5 + 0.5) / 2)
    assert found.ratio == pytest.approx(0.5)


def test_a_sequence_counts_once_where_it_ends_however_many_paths_lead_there() -> None:
    one, many = GraphSet.of([layered("a", "b", "c")]), GraphSet.of([layered("a", "b" * 9, "c")])
    assert operator_paths(one, 3).word.tolist() == operator_paths(many, 3).word.tolist()
    assert operator_paths(many, 2).word.size == 10


def test_exponentially_many_paths_take_no_time() -> None:
    # 20^20 paths lead to each node, all of one sequence.
    wide = GraphSet.of([layered(*["a" * 20] * 30)])
    assert operator_paths(wide, 20).word.size == 20 * 11


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("length", [2, 3, 4])
def test_they_are_those_of_a_walk_over_all_paths(seed: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    dags = [random_dag(rng, [2, 3, 2, 3, 2], [3]) for _ in range(2)]
    found = operator_paths(GraphSet.of(dags), length)
    walked = [(walk, node) for walk, node in walks(dags, length)]
    assert sorted(found.node.tolist()) == sorted(node for _, node in walked)
    assert Counter(Counter(found.word.tolist()).values()) == Counter(
        Counter(walk for walk, _ in walked).values()
    )


def walks(dags: list[DAG], length: int) -> set[tuple[tuple[int, ...], int]]:
    """Operators of each path, and the node in the union at which it ends."""
    found, offset = set(), 0
    for dag in dags:
        op_N = dag.x_NA[:, 0].tolist()
        paths = [(node,) for node in range(dag.num_nodes)]
        for _ in range(length - 1):
            edges = dag.edge_index_2E.T.tolist()
            paths = [(*one, child) for one in paths for node, child in edges if node == one[-1]]
        found |= {(tuple(op_N[i] for i in one), one[-1] + offset) for one in paths}
        offset += dag.num_nodes
    return found


def test_graphs_without_such_a_path_are_left_out() -> None:
    found = rows([path("abcd")], [path("abcd")], [path("ab"), path("abcd"), graph("x", [])])
    assert found["novelty:2"].generated.value == 0.0
    assert found["novelty:4"].generated.value == 0.0
    alone = rows([path("abcd")], [path("abcd")], [path("ab")])
    assert "no nodes or edges" in alone["novelty:3"].generated.error
    assert "nothing to count" in alone["frequencies:3"].generated.error
