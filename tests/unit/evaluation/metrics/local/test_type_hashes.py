"""Type hashes by their definition, and distances of their frequencies."""

import math

import numpy as np
import pytest
from letters import OP, graph, layered, path

from layerdag.evaluation import GraphSet, SimilarityRow, compare
from layerdag.evaluation.metrics import Goal
from layerdag.evaluation.metrics.local import TypeHashDistance, type_hashes
from layerdag.graph import DAG, random_dag

METRIC = TypeHashDistance("type_hashes", "type hashes", Goal.MINIMIZE)


def row(train: list[DAG], test: list[DAG], made: list[DAG]) -> SimilarityRow:
    return compare(train, test, made, OP, metrics=[METRIC], replicates=3).rows[0]


def test_a_node_is_told_by_all_that_is_above_and_below_it() -> None:
    first, second = (type_hashes(GraphSet.of([path(word)])) for word in ("abcdef", "abcdex"))
    assert not set(first.tolist()) & set(second.tolist())


def test_equal_parents_count_once() -> None:
    one, many = (type_hashes(GraphSet.of([layered("a", "b" * n, "c")])) for n in (1, 5))
    assert set(one.tolist()) == set(many.tolist())


@pytest.mark.parametrize("seed", range(5))
def test_hashes_are_equal_exactly_where_nested_sets_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dags = [random_dag(rng, [2, 2, 3, 2], [2]) for _ in range(4)]
    found = type_hashes(GraphSet.of(dags)).tolist()
    nested = [one for dag in dags for one in by_definition(dag)]
    pairs = set(zip(found, nested, strict=True))
    assert len(pairs) == len(set(found)) == len(set(nested))


def by_definition(dag: DAG) -> list[object]:
    """Nested sets instead of hashes."""
    edges = dag.edge_index_2E.T.tolist()
    op_N = dag.x_NA[:, 0].tolist()

    def above(node: int) -> object:
        return op_N[node], frozenset(above(i) for i, j in edges if j == node)

    def below(node: int) -> object:
        return op_N[node], frozenset(below(j) for i, j in edges if i == node)

    return [(above(node), below(node)) for node in range(dag.num_nodes)]


def test_the_distance_is_the_total_variation_and_that_of_wfchef_stands_beside_it() -> None:
    # Frequencies of lone operators: test a 1/2, b 1/2; samples a 3/4, c 1/4; training graphs b 1.
    single = {op: graph(op, []) for op in "abc"}
    found = row([single["b"]], [single["a"], single["b"]], [single["a"]] * 3 + [single["c"]])
    squares = 0.25**2 + 0.5**2 + 0.25**2
    assert found.generated.value == pytest.approx(0.5)
    assert found.generated.breakdown == {"rmse": pytest.approx(math.sqrt(squares / 3))}
    assert found.reference.value == pytest.approx(0.5)
    assert found.ratio == pytest.approx(1.0)


def test_samples_that_share_nothing_are_further_than_those_that_share_something() -> None:
    # One frequent hash of the samples alone must not outweigh all that they share.
    test = [graph("a", [])] * 6 + [graph(op, []) for op in "bcde"]
    alike = [graph("a", [])] * 3 + [graph("z", [])] * 7
    strange = [graph(op, []) for op in "klmnopqrst"]
    near, far = (row(test, test, made).generated.value for made in (alike, strange))
    assert near < far == pytest.approx(1.0)


def test_sets_that_are_alike_have_no_distance() -> None:
    dags = [path("abcabc"), layered("a", "bb", "c")]
    assert row(dags, dags, dags).generated.value == 0.0
