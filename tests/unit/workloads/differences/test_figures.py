"""When a figure of A is another one in B."""

import pytest

from layerdag.workloads.differences._figures import (
    AlignedPrograms,
    Communication,
    Figure,
    Operator,
    Pair,
    Stretch,
)


@pytest.mark.parametrize(
    ("pair", "differs"),
    [((1.0, 1.0), False), ((1.0, 2.0), True), ((None, 0.0), True), ((None, None), False)],
)
def test_a_figure_differs_if_its_values_do_and_none_is_not_zero(pair: Pair, differs: bool) -> None:
    assert Figure("time", *pair).differs is differs


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
def test_an_operator_differs_in_its_count_its_sums_or_a_changed_node(
    operator: Operator, differs: bool
) -> None:
    assert operator.differs is differs


def test_communication_differs_in_count_or_bytes() -> None:
    same = Communication("ALL_REDUCE", 4, (2, 2), (64, 64))
    assert not same.differs
    assert Communication("ALL_REDUCE", 4, (2, 1), (64, 64)).differs
    assert Communication("ALL_REDUCE", 4, (2, 2), (64, 65)).differs


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
    nodes: tuple[int, int], aligned: int, rewired: tuple[int, int], differs: bool
) -> None:
    programs = AlignedPrograms("rank 0", nodes, aligned, 0, (2, 2), rewired, ())
    assert programs.differs is differs


def test_nodes_that_moved_and_other_bytes_are_no_other_structure() -> None:
    assert not AlignedPrograms("rank 0", (3, 3), 3, 2, (2, 2), (0, 0), (), resized=3).differs


def test_a_stretch_is_as_long_as_its_operators_together() -> None:
    assert Stretch("a", "rank 0", 0, {"mm": 3, "add": 2}).length == 5
