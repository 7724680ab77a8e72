"""Which node of one program is which node of the other."""

from dataclasses import replace

import numpy as np
import pytest
from raw_graphs import chain
from simulator_traces import all_reduce, coll, comp, node, recv, send, workload

from layerdag.differences.alignment import (
    Alignment,
    OperatorSequence,
    align,
    common_subsequence,
    kinds_of_ranks,
    program_of_graph,
)
from layerdag.errors import GraphError
from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.builder import NodeSpec
from layerdag.traces.trace import NodeType


def words(text: str) -> np.ndarray:
    return np.array([ord(letter) for letter in text], dtype=np.int64)


def aligned(a: str, b: str, color_a: str = "", color_b: str = "") -> Alignment:
    return align(words(a), words(b), words(color_a or a), words(color_b or b))


@pytest.mark.parametrize(
    ("a", "b", "pairs", "only_a", "only_b"),
    [
        ("abc", "abc", 3, [], []),
        ("abc", "abxc", 3, [], [2]),
        ("abxc", "abc", 3, [2], []),
        ("", "ab", 0, [], [0, 1]),
        ("ab", "", 0, [0, 1], []),
        ("", "", 0, [], []),
    ],
)
def test_what_was_put_in_or_taken_out_has_no_partner(a, b, pairs, only_a, only_b):
    found = aligned(a, b)
    assert found.in_order_2P.shape == (2, pairs)
    assert found.only_a.tolist() == only_a
    assert found.only_b.tolist() == only_b


def test_an_unique_neighborhood_is_an_anchor():
    """Of equal operators, those with the neighborhood that occurs once belong together."""
    found = aligned("xx", "x", color_a="12", color_b="2")
    assert found.in_order_2P.tolist() == [[1], [0]]


def test_a_node_that_moved_is_paired_by_its_neighborhood():
    found = aligned("abcd", "bcda")
    assert found.in_order_2P.shape[1] == 3
    assert found.moved_2M.tolist() == [[0], [3]]
    assert not found.only_a.size
    assert not found.only_b.size


def test_operators_of_another_neighborhood_are_not_said_to_have_moved():
    found = aligned("abcd", "bcda", color_a="1bcd", color_b="bcd2")
    assert found.moved_2M.shape == (2, 0)
    assert found.only_a.tolist() == [0]
    assert found.only_b.tolist() == [3]


def longest(a: np.ndarray, b: np.ndarray) -> int:
    """The textbook table."""
    table = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            same = table[i - 1, j - 1] + 1
            table[i, j] = same if x == y else max(table[i - 1, j], table[i, j - 1])
    return int(table[-1, -1])


def test_the_common_subsequence_is_one_and_none_is_longer():
    rng = np.random.default_rng(0)
    for _ in range(150):
        a, b = (rng.integers(0, rng.integers(1, 6), rng.integers(0, 13)) for _ in range(2))
        found_2P, exact = common_subsequence(a, b)
        assert exact
        assert (a[found_2P[0]] == b[found_2P[1]]).all()
        assert (np.diff(found_2P) > 0).all()
        assert found_2P.shape[1] == longest(a, b), (a, b)


def test_sequences_too_different_are_compared_half_by_half():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 9, 300), rng.integers(0, 9, 290)
    found_2P, exact = common_subsequence(a, b, 40)
    assert not exact
    assert (a[found_2P[0]] == b[found_2P[1]]).all()
    assert (np.diff(found_2P) > 0).all()
    assert found_2P.shape[1] > 0.6 * longest(a, b)


def test_as_many_edits_as_are_allowed_are_exact_and_one_more_is_not():
    """Two elements have no partner: the first of one sequence and the last of the other."""
    a, b = words("ab" * 4), words("ba" * 4)
    assert common_subsequence(a, b, most=2)[1]
    assert not common_subsequence(a, b, most=1)[1]


def test_elements_of_one_side_alone_are_no_edits():
    """They are left out before the search, however many they are."""
    a = np.concatenate([np.arange(100, 200), [1, 2, 3]])
    b = np.concatenate([[1, 2, 3], np.arange(300, 400)])
    found_2P, exact = common_subsequence(a, b, most=1)
    assert exact
    assert found_2P.tolist() == [[100, 101, 102], [0, 1, 2]]


def test_large_and_negative_numbers_are_told_apart():
    a = np.array([-1, 2**62, 0, -(2**62)], dtype=np.int64)
    b = np.array([2**62, -1, -(2**62), 0], dtype=np.int64)
    found_2P, _ = common_subsequence(a, b)
    assert found_2P.shape[1] == 2
    assert (a[found_2P[0]] == b[found_2P[1]]).all()


def program(nodes: list[NodeSpec]) -> OperatorSequence:
    (kind,) = kinds_of_ranks(workload(nodes))
    return kind.program


def named(*names: str) -> OperatorSequence:
    return program([replace(comp(place, 1), name=name) for place, name in enumerate(names)])


# ---- of traces ----


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("mm.3", "mm.#"),
        ("mm.12.F0.dw", "mm.#.F#.dw"),
        ("gradients.L7.B1", "gradients.L#.B#"),
        ("layer3", "layer#"),
        ("block12/mlp", "block#/mlp"),
        ("stage_2", "stage_#"),
        ("mm#12", "mm##"),
        ("conv2d", "conv2d"),  # belongs to the name
        ("sm90_kernel", "sm90_kernel"),
        ("h2d", "h2d"),
        ("", ""),
    ],
)
def test_numbers_of_copies_are_no_part_of_an_operator(name, operator):
    assert named(name).operators == [operator]


def test_a_collective_is_told_with_its_kind_and_a_message_is_not():
    nodes = [
        coll(0, CollectiveType.ALL_GATHER, 8),
        coll(1, CollectiveType.REDUCE_SCATTER, 8, (0,)),
        comp(2, 1, (1,)),
    ]
    found = program(nodes)
    assert found.operators == ["n# [ALL_GATHER]", "n# [REDUCE_SCATTER]", "n#"]
    assert found.is_communication_N.tolist() == [True, True, False]


def test_an_attribute_that_a_node_lacks_is_not_zero():
    found = program([comp(0, 3, num_ops=0, tensor_size=64), comp(1, 4, (0,)), all_reduce(2, 8)])
    np.testing.assert_array_equal(found.columns["flops"], [0, np.nan, np.nan])
    np.testing.assert_array_equal(found.columns["tensor_bytes"], [64, np.nan, np.nan])
    np.testing.assert_array_equal(found.columns["comm_bytes"], [np.nan, np.nan, 8])
    assert found.columns["duration_us"].tolist() == [3, 4, 0]


def test_nodes_stand_in_an_order_in_which_they_can_run_whatever_their_place_in_the_file():
    nodes = [comp(2, 1, (1,)), comp(1, 1, (0,)), comp(0, 1)]
    found = program([replace(n, name="abc"[n.id]) for n in nodes])
    assert found.operators == ["a", "b", "c"]
    assert found.edges_2E.T.tolist() in ([[0, 1], [1, 2]], [[1, 2], [0, 1]])
    assert found.layer_N.tolist() == [0, 1, 2]


def test_dependencies_by_data_and_by_control_are_of_other_kinds():
    by_control = replace(comp(1, 1), ctrl_deps=(0,))
    kinds = [program([comp(0, 1), last]).kind_E.tolist() for last in (comp(1, 1, (0,)), by_control)]
    assert len(kinds[0]) == len(kinds[1]) == 1
    assert kinds[0] != kinds[1]


def test_ranks_that_run_one_program_are_one_kind():
    first = [comp(0, 1), send(1, 1, 8, (0,))]
    last = [recv(0, 0, 8), comp(1, 1, (0,))]
    kinds = kinds_of_ranks(workload(first, last))
    assert [kind.ranks for kind in kinds] == [(0,), (1,)]
    assert [kind.program.operators for kind in kinds] == [["n#", "n#"]] * 2
    same = [comp(0, 1), all_reduce(1, 8, (0,))]
    assert [kind.ranks for kind in kinds_of_ranks(workload(same, same, same))] == [(0, 1, 2)]


def test_ranks_without_their_partners_are_taken_as_they_are():
    """Two ranks of a larger job: the receiver of their messages is not there."""
    sender, other = [comp(0, 1), send(1, 9, 8, (0,))], [comp(0, 1)]
    kinds = kinds_of_ranks(workload(sender, sender, other))
    assert [kind.ranks for kind in kinds] == [(0, 1), (2,)]


def test_a_job_without_nodes_has_an_empty_program():
    found = program([])
    assert (found.num_nodes, found.edges_2E.shape, found.layer_N.size) == (0, (2, 0), 0)


def test_an_empty_program_has_the_columns_of_another():
    some = program([comp(0, 1), node(1, NodeType.MEM_LOAD, (0,))])
    none = OperatorSequence.empty(some)
    assert (none.name, none.num_nodes, none.layer_N.size) == (some.name, 0, 0)
    assert none.columns.keys() == some.columns.keys()
    assert all(column.size == 0 for column in none.columns.values())


# ---- of graphs ----


def test_the_operator_of_a_node_of_a_graph_is_all_its_words():
    graph = replace(chain("g", "ab"), categories={"op": ["mm", "add"], "device": ["x", "y"]})
    assert program_of_graph(graph, ("data",)).operators == ["mm, x", "add, y"]


def test_nodes_without_words_are_nodes():
    graph = replace(chain("g", "ab"), categories={}, numbers={"work": np.array([1.0, 2.0])})
    assert program_of_graph(graph, ("data",)).operators == ["node", "node"]


def test_nodes_of_a_graph_stand_layer_by_layer():
    """b waits for a, though its number is smaller."""
    graph = replace(
        chain("g", "ba"), edge_index_2E=np.array([[1], [0]]), numbers={"work": np.array([2, 1])}
    )
    found = program_of_graph(graph, ("data",))
    assert found.operators == ["a", "b"]
    assert found.edges_2E.tolist() == [[0], [1]]
    assert found.columns["work"].tolist() == [1.0, 2.0]
    assert found.columns["work"].dtype == np.float64


def test_kinds_of_edges_are_places_in_the_names_of_both_graphs():
    graph = replace(chain("g", "ab"), edge_type_names=("control",))
    assert program_of_graph(graph, ("data", "control")).kind_E.tolist() == [1]


def test_a_graph_of_one_node_has_no_edges():
    found = program_of_graph(chain("g", "a"), ("data",))
    assert (found.operators, found.edges_2E.shape, found.kind_E.size) == (["a"], (2, 0), 0)


def test_a_graph_with_a_cycle_is_refused():
    graph = replace(
        chain("g", "ab"), edge_index_2E=np.array([[0, 1], [1, 0]]), edge_type_E=np.zeros(2, int)
    )
    with pytest.raises(GraphError, match="cycle"):
        program_of_graph(graph, ("data",))
