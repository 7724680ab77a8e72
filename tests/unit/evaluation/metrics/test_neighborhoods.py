"""Distances of pooled frequencies: by hand, by law, and in blocks."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from letters import OP as LETTERS, graph, layered, path as chain
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError, GraphError
from layerdag.evaluation.metrics.base import AttributeView, Comparison, Draws, Goal, SimilarityRow
from layerdag.evaluation.metrics.descriptor_metrics import Items
from layerdag.evaluation.metrics.neighborhoods import (
    NEIGHBORHOOD_METRICS,
    TypeHashDistance,
    frequency_distances,
    operator_paths,
    type_hashes,
)
from layerdag.evaluation.similarity import LOCAL_METRICS, compare

NAMES = ("train", "test", "generated")


def distances(*sets: list[str]) -> tuple[Draws, Draws]:
    """Return the distances of sets of words, a graph each, a letter being a kind that occurs."""
    graphs = [GraphSet.from_dags([chain(word) for word in words]) for words in sets]
    items = [
        Items(
            name,
            np.array([ord(letter) for word in words for letter in word]),
            np.array([graph for graph, word in enumerate(words) for _ in word]),
        )
        for name, words in zip(NAMES, sets, strict=True)
    ]
    return frequency_distances(items, Comparison(*graphs, replicates=4))


def test_figures_are_those_computed_by_hand():
    # Test: a 3/4, b 1/4. Generated: a 1/2, c 1/2. Differences: 1/4, 1/4 and 1/2.
    made, real = distances(["ab"], ["aaab"], ["ac"])
    assert made[0][0] == pytest.approx(1 / 2)
    assert made[1]["rmse"] == pytest.approx(math.sqrt((6 / 16) / 3))
    # Training: a 1/2, b 1/2. Differences: 1/4 and 1/4, over two kinds.
    assert real[0][0] == pytest.approx(1 / 4)
    assert real[1]["rmse"] == pytest.approx(math.sqrt((2 / 16) / 2))


def test_counts_are_pooled_so_that_large_graphs_count_more():
    made, _ = distances(["a"], ["aaab"], ["aaa", "b"])
    assert made[0][0] == pytest.approx(0, abs=1e-12)


def test_blocks_of_kinds_change_nothing(monkeypatch):
    sets = (["abcdefg", "aab"], ["gfed", "ahij"], ["bcd", "xyz"])
    whole = distances(*sets)
    monkeypatch.setattr("layerdag.evaluation.metrics.neighborhoods._KINDS_AT_ONCE", 2)
    for found, expected in zip(distances(*sets), whole, strict=True):
        np.testing.assert_allclose(found[0], expected[0])
        assert found[1] == pytest.approx(expected[1])


@pytest.mark.parametrize("empty", range(3))
def test_a_set_with_nothing_to_count_is_refused_by_name(empty):
    graphs = [GraphSet.from_dags([chain("ab")])] * 3
    nothing = Items("x", np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    some = Items("x", np.array([97, 98]), np.array([0, 0]))
    items = [nothing if place == empty else some for place in range(3)]
    told = ("training", "test", "generated")[empty]
    with pytest.raises(DataError, match=f"The {told} graphs have nothing to count"):
        frequency_distances(items, Comparison(*graphs, replicates=2))


PATHS = [m for m in LOCAL_METRICS if getattr(m, "name", "").startswith("path_")]


def rows(train: list[DAG], test: list[DAG], made: list[DAG]) -> dict[str, SimilarityRow]:
    report = compare(train, test, made, LETTERS, metrics=PATHS, replicates=5)
    return {row.metric.name.removeprefix("path_"): row for row in report.rows}


def test_an_operator_out_of_place_is_new_to_the_sequences_through_it():
    found = rows([chain("abcdefgh")], [chain("abcdefgh")], [chain("abcxefgh")])
    # Of 7 pairs 2 hold the x, of 6 triples 3, of 5 quadruples 4.
    assert found["novelty:2"].generated.value == pytest.approx(2 / 7)
    assert found["novelty:3"].generated.value == pytest.approx(3 / 6)
    assert found["novelty:4"].generated.value == pytest.approx(4 / 5)
    assert found["novelty:2"].reference.value == 0.0


def test_the_direction_of_edges_matters():
    found = rows([chain("ab")], [chain("ab")], [chain("ba")])
    assert found["novelty:2"].generated.value == 1.0
    assert found["frequencies:2"].generated.value == 1.0


def test_frequencies_are_pooled_and_compared_with_test_graphs():
    # Pairs of the test graphs: ab, bc. Of the samples: ab, ab, bc, bd. Of training graphs: ab.
    found = rows([chain("ab")], [chain("abc")], [chain("abc"), chain("abd")])["frequencies:2"]
    assert found.generated.value == pytest.approx((0 + 0.25 + 0.25) / 2)
    assert found.reference.value == pytest.approx((0.5 + 0.5) / 2)
    assert found.ratio == pytest.approx(0.5)


def test_a_sequence_counts_once_where_it_ends_however_many_paths_lead_there():
    one, many = (
        GraphSet.from_dags([layered("a", "b", "c")]),
        GraphSet.from_dags([layered("a", "b" * 9, "c")]),
    )
    assert operator_paths(one, 3).word.tolist() == operator_paths(many, 3).word.tolist()
    assert operator_paths(many, 2).word.size == 10


def test_exponentially_many_paths_take_no_time():
    # 20^20 paths lead to each node, all of one sequence.
    wide = GraphSet.from_dags([layered(*["a" * 20] * 30)])
    assert operator_paths(wide, 20).word.size == 20 * 11


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("length", [2, 3, 4])
def test_they_are_those_of_a_walk_over_all_paths(seed, length):
    rng = np.random.default_rng(seed)
    dags = [random_dag(rng, [2, 3, 2, 3, 2], [3]) for _ in range(2)]
    found = operator_paths(GraphSet.from_dags(dags), length)
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


def test_graphs_without_such_a_path_are_left_out():
    found = rows([chain("abcd")], [chain("abcd")], [chain("ab"), chain("abcd"), graph("x", [])])
    assert found["novelty:2"].generated.value == 0.0
    assert found["novelty:4"].generated.value == 0.0
    alone = rows([chain("abcd")], [chain("abcd")], [chain("ab")])
    assert "no nodes or edges" in alone["novelty:3"].generated.error
    assert "nothing to count" in alone["frequencies:3"].generated.error


METRIC = TypeHashDistance("type_hashes", "type hashes", Goal.MINIMIZE)


def row(train: list[DAG], test: list[DAG], made: list[DAG]) -> SimilarityRow:
    return compare(train, test, made, LETTERS, metrics=[METRIC], replicates=3).rows[0]


@pytest.mark.parametrize("seed", range(5))
def test_hashes_are_equal_exactly_where_nested_sets_are(seed):
    rng = np.random.default_rng(seed)
    dags = [random_dag(rng, [2, 2, 3, 2], [2]) for _ in range(4)]
    found = type_hashes(GraphSet.from_dags(dags)).tolist()
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


def test_the_distance_is_the_total_variation_and_that_of_wfchef_stands_beside_it():
    # Frequencies of lone operators: test a 1/2, b 1/2; samples a 3/4, c 1/4; training graphs b 1.
    single = {op: graph(op, []) for op in "abc"}
    found = row([single["b"]], [single["a"], single["b"]], [single["a"]] * 3 + [single["c"]])
    squares = 0.25**2 + 0.5**2 + 0.25**2
    assert found.generated.value == pytest.approx(0.5)
    assert found.generated.breakdown == {"rmse": pytest.approx(math.sqrt(squares / 3))}
    assert found.reference.value == pytest.approx(0.5)
    assert found.ratio == pytest.approx(1.0)


def test_samples_that_share_nothing_are_further_than_those_that_share_something():
    # One frequent hash of the samples alone must not outweigh all that they share.
    test = [graph("a", [])] * 6 + [graph(op, []) for op in "bcde"]
    alike = [graph("a", [])] * 3 + [graph("z", [])] * 7
    strange = [graph(op, []) for op in "klmnopqrst"]
    near, far = (row(test, test, made).generated.value for made in (alike, strange))
    assert near < far == pytest.approx(1.0)


OP = (AttributeView("op"), AttributeView("size", ordered=True))
NO_EDGES = torch.zeros((2, 0), dtype=torch.int64)


def path(ops: str, sizes: int = 0) -> DAG:
    """A path whose operators are the letters."""
    x_NA = torch.tensor([[ord(op) - ord("a"), sizes] for op in ops])
    return DAG.build(x_NA, torch.stack([torch.arange(len(ops) - 1), torch.arange(1, len(ops))]))


def neighborhood_rows(
    train: list[DAG], test: list[DAG], generated: list[DAG], replicates: int = 5
) -> dict[str, SimilarityRow]:
    report = compare(
        train, test, generated, OP, metrics=NEIGHBORHOOD_METRICS, replicates=replicates
    )
    assert not report.failures
    return {row.metric.name.removeprefix("neighborhood_"): row for row in report.rows}


def values(found: dict[str, SimilarityRow], kind: str) -> list[float]:
    return [found[f"{kind}:{radius}"].generated.value for radius in (1, 2, 3)]


def test_a_changed_operator_is_new_to_all_who_see_it():
    # Within r steps of the x are 2 r + 1 nodes; the path is long enough for all of them.
    found = neighborhood_rows([path("abcdefghij")], [path("abcdefghij")], [path("abcdexghij")])
    assert values(found, "novelty") == pytest.approx([0.3, 0.5, 0.7])
    assert found["novelty:1"].reference.value == 0.0


def test_novelty_is_told_of_real_test_graphs_too():
    found = neighborhood_rows([path("abcd")], [path("abcx"), path("abcd")], [path("abcd")])
    assert values(found, "novelty") == [0.0, 0.0, 0.0]
    assert found["novelty:1"].reference.value == pytest.approx(0.25)
    assert found["novelty:3"].reference.value == pytest.approx(0.5)


def test_a_motif_repeats_but_for_its_ends():
    # Of abcabcabc, the inner nodes see the same at radius 1 as their twins, the outer a and c not.
    found = neighborhood_rows([path("a")], [path("aa")], [path("abcabcabc")])
    assert values(found, "repetition") == pytest.approx([7 / 9, 4 / 9, 0.0])
    assert found["repetition:1"].reference.value == 0.0


def test_repetition_is_inside_a_graph_and_means_are_over_graphs():
    twins = [path("ab"), path("ab")]
    assert values(neighborhood_rows(twins, twins, twins), "repetition") == [0.0, 0.0, 0.0]
    mixed = [path("abcabcabc"), path("ab")]
    assert values(neighborhood_rows(twins, twins, mixed), "repetition") == pytest.approx(
        [7 / 18, 4 / 18, 0]
    )


def test_parents_and_children_are_told_apart_and_other_attributes_are_not_seen():
    assert values(neighborhood_rows([path("ab")], [path("ab")], [path("ba")]), "novelty") == [
        1.0,
        1.0,
        1.0,
    ]
    resized = neighborhood_rows([path("abc")], [path("abc")], [path("abc", sizes=3)])
    assert values(resized, "novelty") == [0.0, 0.0, 0.0]


def test_edge_types_count_for_nothing():
    plain = path("abc")
    control = DAG.build(plain.x_NA, plain.edge_index_2E, edge_type_E=torch.tensor([1, 0]))
    assert values(neighborhood_rows([plain], [plain], [control]), "novelty") == [0.0, 0.0, 0.0]


def test_multiplicities_of_neighbors_are_seen():
    def fan(children: int) -> DAG:
        edges = torch.stack([torch.zeros(children, dtype=torch.int64), 1 + torch.arange(children)])
        return DAG.build(torch.zeros((1 + children, 2), dtype=torch.int64), edges)

    found = neighborhood_rows([fan(2)], [fan(2)], [fan(3)])
    assert found["novelty:1"].generated.value == pytest.approx(1 / 4)
    assert found["repetition:1"].generated.value == pytest.approx(3 / 4)


def test_a_graph_without_nodes_is_left_out():
    empty = DAG.build(torch.zeros((0, 2), dtype=torch.int64), NO_EDGES)
    found = neighborhood_rows([path("ab")], [path("ab")], [empty, path("ab")])
    assert values(found, "novelty") == [0.0, 0.0, 0.0]
    alone = compare([path("ab")], [path("ab")], [empty], OP, metrics=NEIGHBORHOOD_METRICS)
    assert {failure.metric for failure in alone.failures} == set(NEIGHBORHOOD_METRICS)


def test_graphs_with_a_cycle_have_neighborhoods_but_no_layers():
    ring = DAG.build(torch.zeros((3, 2), dtype=torch.int64), torch.tensor([[0, 1, 2], [1, 2, 0]]))
    assert values(neighborhood_rows([path("a")], [path("aa")], [ring]), "repetition") == [
        1.0,
        1.0,
        1.0,
    ]
    with pytest.raises(GraphError, match="cycle"):
        compare([path("ab")], [path("ab")], [ring], OP, replicates=2)
