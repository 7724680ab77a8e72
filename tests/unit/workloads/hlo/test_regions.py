"""Cutting a program into nodes: nothing is lost, and dependencies are those of the program."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.workloads.hlo import Hardware
from layerdag.workloads.hlo._program import Collective, Computation, Program
from layerdag.workloads.hlo._regions import Region, Split, regions

DEVICE = Hardware(100.0, 10.0, {"f16": 400.0, "tf32": 200.0}, "toy")


def op(
    flops: int = 0, moved: int = 0, parents: tuple[int, ...] = (), **more: object
) -> Computation:
    values = {"element": "f32", "matrix": False, "name": "op"} | more
    return Computation(flops=flops, mem_bytes=moved, parents=parents, **values)


def reduce(*parents: int) -> Collective:
    return Collective("all_reduce", 64, (), (), parents)


def program(*items: Computation | Collective) -> Program:
    return Program("main", 2, items)


@pytest.mark.parametrize(
    ("operation", "seconds"),
    [
        (op(1000, 10), 10.0),  # 1000 / 100 operations per second, longer than 10 / 10 bytes
        (op(100, 500), 50.0),  # 500 / 10 bytes, longer than 100 / 100
        (op(1000, 10, element="f16"), 2.5),  # its own rate
        (op(1000, 10, matrix=True), 5.0),  # f32 products run at the rate of tf32
        (op(1000, 10, matrix=True, element="f64"), 10.0),  # others do not
        (op(0, 0), 0.0),
    ],
)
def test_an_operation_takes_the_longer_of_computing_and_moving(
    operation: Computation, seconds: float
) -> None:
    assert DEVICE.seconds(operation) == pytest.approx(seconds)


def test_without_a_rate_of_tf32_matrix_products_have_that_of_their_type() -> None:
    assert Hardware(100.0, 10.0).seconds(op(1000, 10, matrix=True)) == 10.0


def test_computation_between_collectives_is_joined_and_chained() -> None:
    found = regions(program(op(100, 1), op(300, 1), reduce(1), op(0, 5), reduce(0)), DEVICE)
    assert [region.operations for region in found] == [2, 1, 1, 1]
    assert [region.collective is not None for region in found] == [False, True, False, True]
    assert [region.parents for region in found] == [(), (0,), (1,), (2,)]
    assert found[0].seconds == pytest.approx(1 + 3)
    assert (found[0].flops, found[0].mem_bytes) == (400, 2)


def test_a_joined_node_has_the_element_type_of_its_longest_operation() -> None:
    (found,) = regions(program(op(100, 1), op(4000, 1, element="f16"), op(100, 1)), DEVICE)
    assert found.element == "f16"


def test_what_takes_no_time_is_no_node() -> None:
    assert regions(program(op(), op()), DEVICE) == []
    assert regions(program(op(), op()), DEVICE, Split.INDIVIDUAL) == []
    first, second = regions(program(op(), reduce(0), op(), reduce(2)), DEVICE)
    assert (first.parents, second.parents) == ((), (0,))


def test_an_operation_without_time_hands_its_parents_on() -> None:
    # 0 and 1 compute, 2 reshapes both, 3 takes what 2 made.
    items = (op(1, 1), op(1, 1), op(0, 0, (0, 1)), op(1, 1, (2,)), reduce(2, 3))
    found = regions(program(*items), DEVICE, Split.INDIVIDUAL)
    assert [region.parents for region in found] == [(), (), (0, 1), (0, 1, 2)]


# Whether an item is a collective, its operations and bytes, and how far before it its parents are.
ITEM = st.tuples(
    st.sampled_from([False, False, True]),
    st.sampled_from([0, 0, 8, 900]),
    st.sampled_from([0, 0, 5, 70]),
    st.sets(st.integers(1, 6), max_size=3),
)
ITEMS = st.lists(ITEM, min_size=1, max_size=14)


def drawn(items: list[tuple[bool, int, int, set[int]]]) -> Program:
    made: list[Computation | Collective] = []
    for place, (is_collective, flops, moved, back) in enumerate(items):
        parents = tuple(sorted(place - steps for steps in back if steps <= place))
        made.append(reduce(*parents) if is_collective else op(flops, moved, parents))
    return program(*made)


def reachable(found: list[Region]) -> np.ndarray:
    """Return whether node i comes before node j."""
    before = np.zeros((len(found), len(found)), dtype=bool)
    for place, region in enumerate(found):
        for parent in region.parents:
            before[:, place] |= before[:, parent]
            before[parent, place] = True
    return before


@tried(60)
@given(ITEMS)
@pytest.mark.parametrize("split", list(Split))
def test_nodes_hold_all_operations_bytes_seconds_and_collectives(
    split: Split, items: list[tuple[bool, int, int, set[int]]]
) -> None:
    made = drawn(items)
    found = regions(made, DEVICE, split)
    computed = [item for item in made.items if isinstance(item, Computation)]
    assert sum(region.flops for region in found) == sum(item.flops for item in computed)
    assert sum(region.mem_bytes for region in found) == sum(item.mem_bytes for item in computed)
    assert math.isclose(
        sum(region.seconds for region in found), sum(map(DEVICE.seconds, computed)), abs_tol=1e-9
    )
    kept = [region.collective for region in found if region.collective is not None]
    assert kept == [item for item in made.items if isinstance(item, Collective)]
    assert all(parent < place for place, r in enumerate(found) for parent in r.parents)


@tried(60)
@given(ITEMS)
def test_single_operations_keep_the_order_that_the_program_demands(
    items: list[tuple[bool, int, int, set[int]]],
) -> None:
    """Whether one node must come before another is as in the program with all its operations."""
    made = drawn(items)
    found = regions(made, DEVICE, Split.INDIVIDUAL)
    timed = [
        place
        for place, item in enumerate(made.items)
        if isinstance(item, Collective) or item.flops or item.mem_bytes
    ]
    whole = [
        Region("", 1, 0, 0, 0.0, "", None, item.parents) for item in made.items
    ]  # every operation a node of its own
    expected = reachable(whole)[np.ix_(timed, timed)]
    np.testing.assert_array_equal(reachable(found), expected)
