"""Two programs aligned: dependencies, runs, stretches, blocks, changed figures."""

from dataclasses import replace

import numpy as np
from simulator_traces import all_reduce, comp, workload

from layerdag.traces.chakra import NodeSpec
from layerdag.workloads.differences._aligned import AlignedPair
from layerdag.workloads.differences._figures import Stretch
from layerdag.workloads.differences._program import Program, kinds_of_ranks


def program(nodes: list[NodeSpec]) -> Program:
    (kind,) = kinds_of_ranks(workload(nodes))
    return kind.program


def path(letters: str) -> list[NodeSpec]:
    """A chain of nodes, each named by a letter."""
    return [
        replace(comp(place, 1, (place - 1,) if place else ()), name=letter)
        for place, letter in enumerate(letters)
    ]


def pair(a: list[NodeSpec] | str, b: list[NodeSpec] | str) -> AlignedPair:
    first, second = (program(path(x) if isinstance(x, str) else x) for x in (a, b))
    return AlignedPair.of("rank 0", first, second)


def with_work(node: NodeSpec, operations: int) -> NodeSpec:
    return replace(node, attributes=comp(0, 1, num_ops=operations).attributes)


# ---- dependencies ----


def test_a_program_beside_itself_differs_in_nothing() -> None:
    found = pair("abcab", "abcab")
    programs = found.programs()
    assert (programs.nodes, programs.edges, programs.aligned) == ((5, 5), (4, 4), 5)
    assert not programs.differs
    assert programs.runs == ((0, 0, 5),)
    assert list(found.stretches()) == []
    assert list(found.blocks()) == []


def test_a_dependency_that_only_one_has_is_counted_on_its_side() -> None:
    more = path("abcd")
    more[3] = replace(more[3], data_deps=(2, 0))
    assert pair("abcd", more).rewired == (0, 1)
    assert pair(more, "abcd").rewired == (1, 0)


def test_a_dependency_of_another_kind_is_another_dependency_and_leaves_the_others_alone() -> None:
    other = path("abcdef")
    other[3] = replace(other[3], data_deps=(), ctrl_deps=(2,))
    assert pair("abcdef", other).rewired == (1, 1)
    assert pair(other, other).rewired == (0, 0)


def test_kind_and_ends_of_a_dependency_are_told_apart() -> None:
    """a -> c by data is not a -> b by control, whose numbers would add up to the same."""
    a, b, c = (replace(comp(place, 1), name="abc"[place]) for place in range(3))
    by_data = [a, b, replace(c, data_deps=(0,))]
    by_control = [a, replace(b, ctrl_deps=(0,)), c]
    assert pair(by_data, by_control).rewired == (1, 1)


def test_dependencies_of_nodes_without_a_partner_are_not_rewired() -> None:
    """c is gone, and with it its two dependencies; b -> d is new between aligned nodes."""
    found = pair("abcd", "abd")
    assert found.programs().edges == (3, 2)
    assert found.rewired == (0, 1)


def test_the_same_fan_out_in_another_order_is_no_difference() -> None:
    a = [*path("ab"), replace(comp(2, 1, (0,)), name="c")]
    b = [a[0], replace(a[2], id=1), replace(a[1], id=2)]
    assert pair(a, b).rewired == (0, 0)


def test_two_chains_that_cross_over_are_rewired() -> None:
    """From a -> b -> c and x -> y -> z to a -> y -> c and x -> b -> z."""
    names = "axbycz"
    before = {2: (0,), 3: (1,), 4: (2,), 5: (3,)}
    after = {2: (1,), 3: (0,), 4: (3,), 5: (2,)}
    a, b = (
        [replace(comp(i, 1, deps.get(i, ())), name=names[i]) for i in range(6)]
        for deps in (before, after)
    )
    assert pair(a, b).rewired == (4, 4)


# ---- what only one has ----


def test_stretches_are_told_with_their_side_place_and_operators() -> None:
    assert list(pair("abcd", "abxxycd").stretches()) == [
        Stretch("b", "rank 0", 2, {"x": 2, "y": 1})
    ]
    assert list(pair("abxxycd", "abcd").stretches()) == [
        Stretch("a", "rank 0", 2, {"x": 2, "y": 1})
    ]


def test_nodes_apart_are_stretches_of_their_own() -> None:
    found = list(pair("abc", "xabyc").stretches())
    assert [(stretch.start, stretch.length) for stretch in found] == [(0, 1), (3, 1)]


def test_programs_without_a_common_operator_have_no_partner() -> None:
    programs = pair("ab", "xyz").programs()
    assert (programs.aligned, programs.rewired) == (0, (0, 0))
    assert programs.runs == ((0, -1, 2), (-1, 0, 3))
    assert programs.differs


def test_runs_cover_every_node_of_both_once() -> None:
    programs = pair("abcdefg", "abxdefyzg").programs()
    in_a = [place for at, _, size in programs.runs if at >= 0 for place in range(at, at + size)]
    in_b = [place for _, at, size in programs.runs if at >= 0 for place in range(at, at + size)]
    assert sorted(in_a) == list(range(7))
    assert sorted(in_b) == list(range(9))
    assert (3, 3, 3) in programs.runs


def test_nothing_beside_a_program_is_all_of_it_alone() -> None:
    some = program(path("abc"))
    found = AlignedPair.of("rank 1", Program.empty(some), some)
    assert found.programs().nodes == (0, 3)
    assert found.programs().runs == ((-1, 0, 3),)
    (stretch,) = found.stretches()
    assert (stretch.side, stretch.length) == ("b", 3)
    assert found.changed(("flops",)).size == 0


# ---- blocks ----


def test_a_block_that_repeats_more_often_is_counted_on_both_sides() -> None:
    (block,) = pair("s" + "ab" * 3 + "e", "s" + "ab" * 5 + "e").blocks()
    assert (block.nodes, block.count, block.operators) == (2, (3, 5), {"a": 1, "b": 1})


def test_operators_of_a_block_are_counted_the_most_frequent_first() -> None:
    (block,) = pair("s" + "abb" * 2, "s" + "abb" * 4).blocks()
    assert (block.nodes, list(block.operators.items())) == (3, [("b", 2), ("a", 1)])


def test_a_block_that_only_one_repeats_occurs_no_times_in_the_other() -> None:
    counts = [block.count for block in pair("xyz", "x" + "ab" * 3).blocks()]
    assert counts == [(0, 3)]


def test_repeats_of_one_node_are_no_block() -> None:
    assert list(pair("saae", "saaaaae").blocks()) == []


# ---- figures ----


def test_changed_nodes_are_places_of_a() -> None:
    a, b = path("abc"), path("xabc")
    a = [with_work(node, 8) for node in a]
    b = [with_work(node, 9 if node.name == "c" else 8) for node in b]
    assert pair(a, b).changed(("flops",)).tolist() == [2]


def test_a_figure_that_only_one_states_is_another_one_and_absent_ones_are_equal() -> None:
    stated = [with_work(node, 8) for node in path("ab")]
    assert pair(stated, path("ab")).changed(("flops",)).tolist() == [0, 1]
    assert pair(path("ab"), path("ab")).changed(("flops",)).size == 0
    assert pair(stated, stated).changed(("flops", "no such column")).size == 0


def test_collectives_of_other_bytes_are_counted_and_operators_are_not() -> None:
    a = [with_work(comp(0, 1), 8), all_reduce(1, 64, (0,)), all_reduce(2, 64, (1,))]
    b = [with_work(comp(0, 1), 9), all_reduce(1, 64, (0,)), all_reduce(2, 65, (1,))]
    assert pair(a, b).programs().resized == 1
    assert pair(a, a).programs().resized == 0


def test_labels_are_the_same_numbers_in_both() -> None:
    found = pair("abc", "cab")
    by_name = dict(zip(found.a.operators, found.label_a.tolist(), strict=True))
    assert [by_name[op] for op in found.b.operators] == found.label_b.tolist()
    assert np.unique(found.label_a).size == 3
