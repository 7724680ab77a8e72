"""Programs: what is compared of a trace or a graph, and which ranks run the same one."""

from dataclasses import replace

import numpy as np
import pytest
from raw_graphs import chain
from simulator_traces import all_reduce, coll, comp, node, recv, send, workload

from layerdag.errors import GraphError
from layerdag.traces import CollectiveType, NodeType
from layerdag.traces.chakra import NodeSpec
from layerdag.workloads.differences._program import Program, kinds_of_ranks, program_of_graph


def program(nodes: list[NodeSpec]) -> Program:
    (kind,) = kinds_of_ranks(workload(nodes))
    return kind.program


def named(*names: str) -> Program:
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
def test_numbers_of_copies_are_no_part_of_an_operator(name: str, operator: str) -> None:
    assert named(name).operators == [operator]


def test_a_collective_is_told_with_its_kind_and_a_message_is_not() -> None:
    nodes = [
        coll(0, CollectiveType.ALL_GATHER, 8),
        coll(1, CollectiveType.REDUCE_SCATTER, 8, (0,)),
        comp(2, 1, (1,)),
    ]
    found = program(nodes)
    assert found.operators == ["n# [ALL_GATHER]", "n# [REDUCE_SCATTER]", "n#"]
    assert found.is_communication_N.tolist() == [True, True, False]


def test_an_attribute_that_a_node_lacks_is_not_zero() -> None:
    found = program([comp(0, 3, num_ops=0, tensor_size=64), comp(1, 4, (0,)), all_reduce(2, 8)])
    np.testing.assert_array_equal(found.columns["flops"], [0, np.nan, np.nan])
    np.testing.assert_array_equal(found.columns["tensor_bytes"], [64, np.nan, np.nan])
    np.testing.assert_array_equal(found.columns["comm_bytes"], [np.nan, np.nan, 8])
    assert found.columns["duration_us"].tolist() == [3, 4, 0]


def test_nodes_stand_in_an_order_in_which_they_can_run_whatever_their_place_in_the_file() -> None:
    nodes = [comp(2, 1, (1,)), comp(1, 1, (0,)), comp(0, 1)]
    found = program([replace(n, name="abc"[n.id]) for n in nodes])
    assert found.operators == ["a", "b", "c"]
    assert found.edges_2E.T.tolist() in ([[0, 1], [1, 2]], [[1, 2], [0, 1]])
    assert found.layer_N.tolist() == [0, 1, 2]


def test_dependencies_by_data_and_by_control_are_of_other_kinds() -> None:
    by_control = replace(comp(1, 1), ctrl_deps=(0,))
    kinds = [program([comp(0, 1), last]).kind_E.tolist() for last in (comp(1, 1, (0,)), by_control)]
    assert len(kinds[0]) == len(kinds[1]) == 1
    assert kinds[0] != kinds[1]


def test_ranks_that_run_one_program_are_one_kind() -> None:
    first = [comp(0, 1), send(1, 1, 8, (0,))]
    last = [recv(0, 0, 8), comp(1, 1, (0,))]
    kinds = kinds_of_ranks(workload(first, last))
    assert [kind.ranks for kind in kinds] == [(0,), (1,)]
    assert [kind.program.operators for kind in kinds] == [["n#", "n#"]] * 2
    same = [comp(0, 1), all_reduce(1, 8, (0,))]
    assert [kind.ranks for kind in kinds_of_ranks(workload(same, same, same))] == [(0, 1, 2)]


def test_ranks_without_their_partners_are_taken_as_they_are() -> None:
    """Two ranks of a larger job: the receiver of their messages is not there."""
    sender, other = [comp(0, 1), send(1, 9, 8, (0,))], [comp(0, 1)]
    kinds = kinds_of_ranks(workload(sender, sender, other))
    assert [kind.ranks for kind in kinds] == [(0, 1), (2,)]


def test_a_job_without_nodes_has_an_empty_program() -> None:
    found = program([])
    assert (found.num_nodes, found.edges_2E.shape, found.layer_N.size) == (0, (2, 0), 0)


def test_an_empty_program_has_the_columns_of_another() -> None:
    some = program([comp(0, 1), node(1, NodeType.MEM_LOAD, (0,))])
    none = Program.empty(some)
    assert (none.name, none.num_nodes, none.layer_N.size) == (some.name, 0, 0)
    assert none.columns.keys() == some.columns.keys()
    assert all(column.size == 0 for column in none.columns.values())


# ---- of graphs ----


def test_the_operator_of_a_node_of_a_graph_is_all_its_words() -> None:
    graph = replace(chain("g", "ab"), categories={"op": ["mm", "add"], "device": ["x", "y"]})
    assert program_of_graph(graph, ("data",)).operators == ["mm, x", "add, y"]


def test_nodes_without_words_are_nodes() -> None:
    graph = replace(chain("g", "ab"), categories={}, numbers={"work": np.array([1.0, 2.0])})
    assert program_of_graph(graph, ("data",)).operators == ["node", "node"]


def test_nodes_of_a_graph_stand_layer_by_layer() -> None:
    """b waits for a, though its number is smaller."""
    graph = replace(
        chain("g", "ba"), edge_index_2E=np.array([[1], [0]]), numbers={"work": np.array([2, 1])}
    )
    found = program_of_graph(graph, ("data",))
    assert found.operators == ["a", "b"]
    assert found.edges_2E.tolist() == [[0], [1]]
    assert found.columns["work"].tolist() == [1.0, 2.0]
    assert found.columns["work"].dtype == np.float64


def test_kinds_of_edges_are_places_in_the_names_of_both_graphs() -> None:
    graph = replace(chain("g", "ab"), edge_type_names=("control",))
    assert program_of_graph(graph, ("data", "control")).kind_E.tolist() == [1]


def test_a_graph_of_one_node_has_no_edges() -> None:
    found = program_of_graph(chain("g", "a"), ("data",))
    assert (found.operators, found.edges_2E.shape, found.kind_E.size) == (["a"], (2, 0), 0)


def test_a_graph_with_a_cycle_is_refused() -> None:
    graph = replace(
        chain("g", "ab"), edge_index_2E=np.array([[0, 1], [1, 0]]), edge_type_E=np.zeros(2, int)
    )
    with pytest.raises(GraphError, match="cycle"):
        program_of_graph(graph, ("data",))
