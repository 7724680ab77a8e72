"""Two programs aligned: dependencies, runs, stretches, blocks, changed figures."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from simulator_traces import all_reduce, comp, workload

from layerdag.differences.alignment import OperatorSequence, kinds_of_ranks
from layerdag.differences.difference import (
    AlignedPair,
    AlignedPrograms,
    CommunicationDelta,
    Difference,
    Operator,
    PairedValue,
    RepeatedBlockDelta,
    UnmatchedRun,
    counts_text,
    figure_text,
    lines,
)
from layerdag.traces.builder import NodeSpec


def program(nodes: list[NodeSpec]) -> OperatorSequence:
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
    return AlignedPair.from_sequences("rank 0", first, second)


def with_work(node: NodeSpec, operations: int) -> NodeSpec:
    return replace(node, attributes=comp(0, 1, num_ops=operations).attributes)


# ---- dependencies ----


def test_a_program_beside_itself_differs_in_nothing():
    found = pair("abcab", "abcab")
    programs = found.programs()
    assert (programs.nodes, programs.edges, programs.aligned) == ((5, 5), (4, 4), 5)
    assert not programs.differs
    assert programs.runs == ((0, 0, 5),)
    assert list(found.stretches()) == []
    assert list(found.blocks()) == []


def test_a_dependency_that_only_one_has_is_counted_on_its_side():
    more = path("abcd")
    more[3] = replace(more[3], data_deps=(2, 0))
    assert pair("abcd", more).rewired == (0, 1)
    assert pair(more, "abcd").rewired == (1, 0)


def test_a_dependency_of_another_kind_is_another_dependency_and_leaves_the_others_alone():
    other = path("abcdef")
    other[3] = replace(other[3], data_deps=(), ctrl_deps=(2,))
    assert pair("abcdef", other).rewired == (1, 1)
    assert pair(other, other).rewired == (0, 0)


def test_kind_and_ends_of_a_dependency_are_told_apart():
    """a -> c by data is not a -> b by control, whose numbers would add up to the same."""
    a, b, c = (replace(comp(place, 1), name="abc"[place]) for place in range(3))
    by_data = [a, b, replace(c, data_deps=(0,))]
    by_control = [a, replace(b, ctrl_deps=(0,)), c]
    assert pair(by_data, by_control).rewired == (1, 1)


def test_dependencies_of_nodes_without_a_partner_are_not_rewired():
    """c is gone, and with it its two dependencies; b -> d is new between aligned nodes."""
    found = pair("abcd", "abd")
    assert found.programs().edges == (3, 2)
    assert found.rewired == (0, 1)


def test_the_same_fan_out_in_another_order_is_no_difference():
    a = [*path("ab"), replace(comp(2, 1, (0,)), name="c")]
    b = [a[0], replace(a[2], id=1), replace(a[1], id=2)]
    assert pair(a, b).rewired == (0, 0)


def test_two_chains_that_cross_over_are_rewired():
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


def test_stretches_are_told_with_their_side_place_and_operators():
    assert list(pair("abcd", "abxxycd").stretches()) == [
        UnmatchedRun("b", "rank 0", 2, {"x": 2, "y": 1})
    ]
    assert list(pair("abxxycd", "abcd").stretches()) == [
        UnmatchedRun("a", "rank 0", 2, {"x": 2, "y": 1})
    ]


def test_nodes_apart_are_stretches_of_their_own():
    found = list(pair("abc", "xabyc").stretches())
    assert [(stretch.start, stretch.length) for stretch in found] == [(0, 1), (3, 1)]


def test_programs_without_a_common_operator_have_no_partner():
    programs = pair("ab", "xyz").programs()
    assert (programs.aligned, programs.rewired) == (0, (0, 0))
    assert programs.runs == ((0, -1, 2), (-1, 0, 3))
    assert programs.differs


def test_runs_cover_every_node_of_both_once():
    programs = pair("abcdefg", "abxdefyzg").programs()
    in_a = [place for at, _, size in programs.runs if at >= 0 for place in range(at, at + size)]
    in_b = [place for _, at, size in programs.runs if at >= 0 for place in range(at, at + size)]
    assert sorted(in_a) == list(range(7))
    assert sorted(in_b) == list(range(9))
    assert (3, 3, 3) in programs.runs


def test_nothing_beside_a_program_is_all_of_it_alone():
    some = program(path("abc"))
    found = AlignedPair.from_sequences("rank 1", OperatorSequence.empty(some), some)
    assert found.programs().nodes == (0, 3)
    assert found.programs().runs == ((-1, 0, 3),)
    (stretch,) = found.stretches()
    assert (stretch.side, stretch.length) == ("b", 3)
    assert found.changed(("flops",)).size == 0


# ---- blocks ----


def test_a_block_that_repeats_more_often_is_counted_on_both_sides():
    (block,) = pair("s" + "ab" * 3 + "e", "s" + "ab" * 5 + "e").blocks()
    assert (block.nodes, block.count, block.operators) == (2, (3, 5), {"a": 1, "b": 1})


def test_operators_of_a_block_are_counted_the_most_frequent_first():
    (block,) = pair("s" + "abb" * 2, "s" + "abb" * 4).blocks()
    assert (block.nodes, list(block.operators.items())) == (3, [("b", 2), ("a", 1)])


def test_a_block_that_only_one_repeats_occurs_no_times_in_the_other():
    counts = [block.count for block in pair("xyz", "x" + "ab" * 3).blocks()]
    assert counts == [(0, 3)]


def test_repeats_of_one_node_are_no_block():
    assert list(pair("saae", "saaaaae").blocks()) == []


# ---- figures ----


def test_changed_nodes_are_places_of_a():
    a, b = path("abc"), path("xabc")
    a = [with_work(node, 8) for node in a]
    b = [with_work(node, 9 if node.name == "c" else 8) for node in b]
    assert pair(a, b).changed(("flops",)).tolist() == [2]


def test_a_figure_that_only_one_states_is_another_one_and_absent_ones_are_equal():
    stated = [with_work(node, 8) for node in path("ab")]
    assert pair(stated, path("ab")).changed(("flops",)).tolist() == [0, 1]
    assert pair(path("ab"), path("ab")).changed(("flops",)).size == 0
    assert pair(stated, stated).changed(("flops", "no such column")).size == 0


def test_collectives_of_other_bytes_are_counted_and_operators_are_not():
    a = [with_work(comp(0, 1), 8), all_reduce(1, 64, (0,)), all_reduce(2, 64, (1,))]
    b = [with_work(comp(0, 1), 9), all_reduce(1, 64, (0,)), all_reduce(2, 65, (1,))]
    assert pair(a, b).programs().resized == 1
    assert pair(a, a).programs().resized == 0


def test_labels_are_the_same_numbers_in_both():
    found = pair("abc", "cab")
    by_name = dict(zip(found.a.operators, found.label_a.tolist(), strict=True))
    assert [by_name[op] for op in found.b.operators] == found.label_b.tolist()
    assert np.unique(found.label_a).size == 3


SAME = AlignedPrograms("ranks 0-1", (5, 5), 5, 0, (4, 4), (0, 0), ((0, 0, 5),))
LONGER = replace(SAME, nodes=(5, 9))


def difference(**changes: Any) -> Difference:
    """Two equal jobs of two ranks, but for the changes."""
    equal = Difference("before", "after", (2, 2), (SAME,), (), (), (), (), ())
    return replace(equal, **changes)


def told(title: str, **changes: Any) -> list[str]:
    """The rows under a title, without it."""
    found = lines(difference(**changes))
    first = next(place for place, line in enumerate(found) if line.startswith(f"  {title}"))
    rows = [found[first]]
    for line in found[first + 1 :]:
        if not line.startswith(" " * 16):
            break
        rows.append(line)
    return [row[16:] for row in rows]


# ---- what counts ----


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"operators": (Operator("mm", (1, 2), {}, 0),)}, "operators"),
        ({"ranks": (2, 4)}, "structure"),
        ({"programs": (replace(SAME, rewired=(1, 0)),)}, "structure"),
        ({"times": (PairedValue("compute", 1.0, 2.0, "us"),)}, "time"),
        ({"communication": (CommunicationDelta("message", 2, (1, 2), (8, 8)),)}, "communication"),
        ({"programs": (replace(SAME, resized=1),)}, "communication"),
        ({"labels": {"seconds": (1.0, 2.0)}}, "labels"),
    ],
)
def test_each_part_differs_by_itself_and_can_be_left_out(changes, part):
    found = difference(**changes)
    assert found.differing == (part,)
    assert not found.equal
    ignoring = replace(found, ignored=(part,))
    assert ignoring.equal
    assert f"differ in nothing (not counted: {part})" in lines(ignoring)


def test_parts_are_told_in_one_order():
    found = difference(
        labels={"x": (1.0, 2.0)}, ranks=(2, 4), times=(PairedValue("t", 1.0, 2.0, "us"),)
    )
    assert found.differing == ("structure", "time", "labels")
    assert lines(found)[:3] == ["A before", "B after", "differ in structure, time, labels"]


@pytest.mark.parametrize(
    ("changes", "compared"),
    [
        ({}, "2 ranks of 5 nodes aligned"),
        ({"ranks": (1, 1)}, "1 rank of 5 nodes aligned"),
        ({"ranks": None}, "5 nodes aligned"),
        ({"programs": (SAME, SAME)}, "2 ranks of 2 kinds, 10 nodes aligned"),
        ({"ranks": None, "programs": (replace(SAME, nodes=(1, 1), aligned=1),)}, "1 node aligned"),
    ],
)
def test_equal_ones_are_told_in_a_line_with_how_much_was_compared(changes, compared):
    assert lines(difference(**changes)) == [f"before and after are equal: {compared}"]


def test_a_note_is_told_of_equal_ones_too():
    found = lines(difference(notes=("Half was guessed.",)))
    assert found[2] == "differ in nothing"
    assert found[-1] == "note: Half was guessed."


def test_the_summary_is_plain_and_says_what_counts():
    found = difference(labels={"x": (1.0, None)}, ignored=("labels",)).summary()
    assert (found["equal"], found["differing"], found["ignored"]) == (True, [], ("labels",))
    assert found["labels"] == {"x": (1.0, None)}
    assert found["programs"][0]["nodes"] == (5, 5)


# ---- rows ----


def test_nodes_are_summed_over_kinds_of_ranks():
    more = replace(SAME, name="rank 2", nodes=(5, 9), moved=2, rewired=(3, 1))
    assert told("nodes", programs=(SAME, more)) == [
        "10 -> 14: 10 aligned (2 moved), 0 only in A, 4 only in B"
    ]
    assert told("dependencies", programs=(SAME, more)) == [
        "between aligned nodes: 3 only in A, 1 only in B"
    ]
    assert told("ranks", ranks=(2, 4096)) == ["2 -> 4,096"]


def test_stretches_that_are_alike_are_told_once_with_the_first_place():
    norm = [UnmatchedRun("b", "rank 0", place, {"norm": 1}) for place in (40, 8, 24)]
    long = UnmatchedRun("a", "rank 0", 3, {"mm": 2, "add": 1})
    assert told("only in one", stretches=(long, *norm), programs=(LONGER,)) == [
        "A, rank 0: 3 nodes (at 3): mm 2, add",
        "B, rank 0: 3 times 1 node (first at 8): norm",
    ]


def test_a_block_names_its_program_where_there_are_several():
    block = RepeatedBlockDelta("rank 1", 3, {"mm": 2, "add": 1}, (3, 5))
    assert told("blocks", blocks=(block,), programs=(LONGER,)) == [
        "3 -> 5 times 3 nodes: mm 2, add"
    ]
    assert told("blocks", blocks=(block,), programs=(LONGER, SAME)) == [
        "rank 1: 3 -> 5 times 3 nodes: mm 2, add"
    ]


def test_an_operator_tells_only_what_changed():
    numbers = {
        "flops": (1e9, 2e9), "tensor_bytes": (2048, 2048), "comm_bytes": (None, 1 << 20),
        "duration_us": (5.0, 6.0),
    }  # fmt: skip
    assert told("operators", operators=(Operator("mm", (1, 2000), numbers, 1),)) == [
        "mm: 1 -> 2,000 nodes; flops 1e+09 -> 2e+09; comm bytes none -> 1 MiB; "
        "1 aligned with other figures"
    ]


def test_communication_tells_the_size_of_groups_where_it_is_known():
    rows = (
        CommunicationDelta("ALL_REDUCE", 8, (1, 2), (1024, 2048)),
        CommunicationDelta("ALL_GATHER", 0, (1, 0), (1024, 0)),
        CommunicationDelta("message", 2, (0, 3), (0, 96)),
        CommunicationDelta("BROADCAST", 2, (1, 1), (8, 8)),
    )
    assert told("communication", communication=rows) == [
        "ALL_REDUCE of 8 ranks: 1 -> 2, 1 KiB -> 2 KiB",
        "ALL_GATHER: 1 -> 0, 1 KiB -> 0 B",
        "message: 0 -> 3, 0 B -> 96 B",
    ]


def test_times_are_told_with_their_change_and_all_of_them():
    times = (
        PairedValue("compute", 100.0, 80.0, "us"),
        PairedValue("recorded communication", 5.0, 5.0, "us"),
        PairedValue("critical path", 0.0, 12.5, "us"),
        PairedValue("aligned nodes with another duration", 0.0, 1234.0),
        PairedValue("simulated makespan", 1e8, 2e8, "us"),
    )
    assert told("time", times=times) == [
        "compute 100 -> 80 us (-20.0 %)",
        "critical path 0 -> 12.5 us",  # no share of nothing
        "aligned nodes with another duration: 1,234",
        "simulated makespan 1e+08 -> 2e+08 us (+100.0 %)",
    ]


def test_labels_may_be_words_numbers_or_absent():
    labels = {"device": ("h100", "b200"), "seconds": (None, 1.5)}
    assert told("labels", labels=labels) == ["device h100 -> b200", "seconds None -> 1.5"]


@pytest.mark.parametrize(("count", "last"), [(3, "op2"), (4, "op2"), (9, "op2")])
def test_three_rows_are_shown_and_the_rest_counted_unless_all_are_asked_for(count, last):
    operators = tuple(Operator(f"op{place}", (1, 2), {}, 0) for place in range(count))
    rows = told("operators", operators=operators)
    assert len(rows) == 3
    hidden = f"; {count - 3} more" if count > 3 else ""
    assert rows[-1] == f"{last}: 1 -> 2 nodes{hidden}"
    every = lines(difference(operators=operators), None)
    assert sum("1 -> 2 nodes" in line for line in every) == count


# ---- figures ----


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("flops", 0.0, "0"),
        ("flops", 1234567.0, "1,234,567"),
        ("flops", 0.125, "0.125"),
        ("flops", 12345678.0, "1.235e+07"),
        ("flops", float("inf"), "inf"),
        ("comm_bytes", 1023, "1,023 B"),
        ("comm_bytes", 1024, "1 KiB"),
        ("tensor_bytes", 1536, "1.5 KiB"),
        ("tensor_bytes", 3 << 20, "3 MiB"),
        ("tensor_bytes", 5 << 30, "5 GiB"),
        ("tensor_bytes", 7 << 40, "7 TiB"),
    ],
)
def test_figures_have_few_digits_and_bytes_a_binary_unit(name, value, text):
    assert figure_text(name, value) == text


def test_long_lists_of_operators_are_cut_with_the_number_of_those_left_out():
    operators = {"a": 1200, "b": 3, "c": 2, "d": 1, "e": 1, "f": 1}
    assert counts_text(operators) == "a 1,200, b 3, c 2, d, 2 more"
    assert counts_text(operators, most=6) == "a 1,200, b 3, c 2, d, e, f"
    assert counts_text({}) == ""


@pytest.mark.parametrize(
    ("pair", "differs"),
    [((1.0, 1.0), False), ((1.0, 2.0), True), ((None, 0.0), True), ((None, None), False)],
)
def test_a_figure_differs_if_its_values_do_and_none_is_not_zero(pair, differs):
    assert PairedValue("time", *pair).differs is differs


@pytest.mark.parametrize(
    ("operator", "differs"),
    [
        (Operator("mm", (2, 2), {"flops": (8.0, 8.0)}, 0), False),
        (Operator("mm", (2, 3), {"flops": (8.0, 8.0)}, 0), True),
        (Operator("mm", (2, 2), {"flops": (8.0, 9.0)}, 0), True),
        (Operator("mm", (2, 2), {"flops": (None, 0.0)}, 0), True),
        (Operator("mm", (2, 2), {"flops": (8.0, 8.0)}, 1), True),  # two nodes traded theirs
        (Operator("mm", (2, 2), {"duration_us": (5.0, 6.0)}, 0), False),  # told as time
    ],
)
def test_an_operator_differs_in_its_count_its_sums_or_a_changed_node(operator, differs):
    assert operator.differs is differs


def test_communication_differs_in_count_or_bytes():
    same = CommunicationDelta("ALL_REDUCE", 4, (2, 2), (64, 64))
    assert not same.differs
    assert CommunicationDelta("ALL_REDUCE", 4, (2, 1), (64, 64)).differs
    assert CommunicationDelta("ALL_REDUCE", 4, (2, 2), (64, 65)).differs


@pytest.mark.parametrize(
    ("nodes", "aligned", "rewired", "differs"),
    [
        ((3, 3), 3, (0, 0), False),
        ((3, 4), 3, (0, 0), True),
        ((4, 3), 3, (0, 0), True),
        ((3, 3), 2, (0, 0), True),
        ((3, 3), 3, (1, 0), True),
        ((3, 3), 3, (0, 1), True),
        ((0, 0), 0, (0, 0), False),
    ],
)
def test_programs_differ_unless_all_nodes_are_aligned_and_no_dependency_is_rewired(
    nodes, aligned, rewired, differs
):
    programs = AlignedPrograms("rank 0", nodes, aligned, 0, (2, 2), rewired, ())
    assert programs.differs is differs


def test_nodes_that_moved_and_other_bytes_are_no_other_structure():
    assert not AlignedPrograms("rank 0", (3, 3), 3, 2, (2, 2), (0, 0), (), resized=3).differs
