"""A difference as text: figures, units, what is left out and what is told once."""

from dataclasses import replace
from typing import Any

import pytest

from layerdag.workloads.differences import lines
from layerdag.workloads.differences._difference import Difference, counts_text, figure_text
from layerdag.workloads.differences._figures import (
    AlignedPrograms,
    Block,
    Communication,
    Figure,
    Operator,
    Stretch,
)

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
        ({"times": (Figure("compute", 1.0, 2.0, "us"),)}, "time"),
        ({"communication": (Communication("message", 2, (1, 2), (8, 8)),)}, "communication"),
        ({"programs": (replace(SAME, resized=1),)}, "communication"),
        ({"labels": {"seconds": (1.0, 2.0)}}, "labels"),
    ],
)
def test_each_part_differs_by_itself_and_can_be_left_out(
    changes: dict[str, Any], part: str
) -> None:
    found = difference(**changes)
    assert found.differing == (part,)
    assert not found.equal
    ignoring = replace(found, ignored=(part,))
    assert ignoring.equal
    assert f"differ in nothing (not counted: {part})" in lines(ignoring)


def test_parts_are_told_in_one_order() -> None:
    found = difference(labels={"x": (1.0, 2.0)}, ranks=(2, 4), times=(Figure("t", 1.0, 2.0, "us"),))
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
def test_equal_ones_are_told_in_a_line_with_how_much_was_compared(
    changes: dict[str, Any], compared: str
) -> None:
    assert lines(difference(**changes)) == [f"before and after are equal: {compared}"]


def test_a_note_is_told_of_equal_ones_too() -> None:
    found = lines(difference(notes=("Half was guessed.",)))
    assert found[2] == "differ in nothing"
    assert found[-1] == "note: Half was guessed."


def test_the_summary_is_plain_and_says_what_counts() -> None:
    found = difference(labels={"x": (1.0, None)}, ignored=("labels",)).summary()
    assert (found["equal"], found["differing"], found["ignored"]) == (True, [], ("labels",))
    assert found["labels"] == {"x": (1.0, None)}
    assert found["programs"][0]["nodes"] == (5, 5)


# ---- rows ----


def test_nodes_are_summed_over_kinds_of_ranks() -> None:
    more = replace(SAME, name="rank 2", nodes=(5, 9), moved=2, rewired=(3, 1))
    assert told("nodes", programs=(SAME, more)) == [
        "10 -> 14: 10 aligned (2 moved), 0 only in A, 4 only in B"
    ]
    assert told("dependencies", programs=(SAME, more)) == [
        "between aligned nodes: 3 only in A, 1 only in B"
    ]
    assert told("ranks", ranks=(2, 4096)) == ["2 -> 4,096"]


def test_stretches_that_are_alike_are_told_once_with_the_first_place() -> None:
    norm = [Stretch("b", "rank 0", place, {"norm": 1}) for place in (40, 8, 24)]
    long = Stretch("a", "rank 0", 3, {"mm": 2, "add": 1})
    assert told("only in one", stretches=(long, *norm), programs=(LONGER,)) == [
        "A, rank 0: 3 nodes (at 3): mm 2, add",
        "B, rank 0: 3 times 1 node (first at 8): norm",
    ]


def test_a_block_names_its_program_where_there_are_several() -> None:
    block = Block("rank 1", 3, {"mm": 2, "add": 1}, (3, 5))
    assert told("blocks", blocks=(block,), programs=(LONGER,)) == [
        "3 -> 5 times 3 nodes: mm 2, add"
    ]
    assert told("blocks", blocks=(block,), programs=(LONGER, SAME)) == [
        "rank 1: 3 -> 5 times 3 nodes: mm 2, add"
    ]


def test_an_operator_tells_only_what_changed() -> None:
    numbers = {
        "flops": (1e9, 2e9), "tensor_bytes": (2048, 2048), "comm_bytes": (None, 1 << 20),
        "duration_us": (5.0, 6.0),
    }  # fmt: skip
    assert told("operators", operators=(Operator("mm", (1, 2000), numbers, 1),)) == [
        "mm: 1 -> 2,000 nodes; flops 1e+09 -> 2e+09; comm bytes none -> 1 MiB; "
        "1 aligned with other figures"
    ]


def test_communication_tells_the_size_of_groups_where_it_is_known() -> None:
    rows = (
        Communication("ALL_REDUCE", 8, (1, 2), (1024, 2048)),
        Communication("ALL_GATHER", 0, (1, 0), (1024, 0)),
        Communication("message", 2, (0, 3), (0, 96)),
        Communication("BROADCAST", 2, (1, 1), (8, 8)),
    )
    assert told("communication", communication=rows) == [
        "ALL_REDUCE of 8 ranks: 1 -> 2, 1 KiB -> 2 KiB",
        "ALL_GATHER: 1 -> 0, 1 KiB -> 0 B",
        "message: 0 -> 3, 0 B -> 96 B",
    ]


def test_times_are_told_with_their_change_and_all_of_them() -> None:
    times = (
        Figure("compute", 100.0, 80.0, "us"),
        Figure("recorded communication", 5.0, 5.0, "us"),
        Figure("critical path", 0.0, 12.5, "us"),
        Figure("aligned nodes with another duration", 0.0, 1234.0),
        Figure("simulated makespan", 1e8, 2e8, "us"),
    )
    assert told("time", times=times) == [
        "compute 100 -> 80 us (-20.0 %)",
        "critical path 0 -> 12.5 us",  # no share of nothing
        "aligned nodes with another duration: 1,234",
        "simulated makespan 1e+08 -> 2e+08 us (+100.0 %)",
    ]


def test_labels_may_be_words_numbers_or_absent() -> None:
    labels = {"device": ("h100", "b200"), "seconds": (None, 1.5)}
    assert told("labels", labels=labels) == ["device h100 -> b200", "seconds None -> 1.5"]


@pytest.mark.parametrize(("count", "last"), [(3, "op2"), (4, "op2"), (9, "op2")])
def test_three_rows_are_shown_and_the_rest_counted_unless_all_are_asked_for(
    count: int, last: str
) -> None:
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
def test_figures_have_few_digits_and_bytes_a_binary_unit(
    name: str, value: float, text: str
) -> None:
    assert figure_text(name, value) == text


def test_long_lists_of_operators_are_cut_with_the_number_of_those_left_out() -> None:
    operators = {"a": 1200, "b": 3, "c": 2, "d": 1, "e": 1, "f": 1}
    assert counts_text(operators) == "a 1,200, b 3, c 2, d, 2 more"
    assert counts_text(operators, most=6) == "a 1,200, b 3, c 2, d, e, f"
    assert counts_text({}) == ""
