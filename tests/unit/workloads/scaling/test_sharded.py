"""Units of fully sharded data parallelism: what each rank holds."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from programs_by_hand import ITEM, costs, flags, gathers, operator, product, program, scatters
from same_jobs import operators
from small_workloads import integer, with_attribute

from layerdag.codec.folding import rank_classes
from layerdag.traces.builder import NodeSpec
from layerdag.traces.chakra.corpus import read_index, read_runs
from layerdag.traces.trace import Wire
from layerdag.workloads.scaling.program import EditableProgram
from layerdag.workloads.scaling.rescaling import scale
from layerdag.workloads.scaling.sharded import (
    FSDPUnit,
    Numbers,
    Resharding,
    ShardCountChange,
    factors,
)

WHOLE = st.tuples(st.integers(1, 40), st.integers(1, 9))  # rows, and elements of a row


def padded_unit(parameters: list[tuple[int, int]], members: int) -> FSDPUnit:
    """Return the unit that FSDP2 makes of parameters: each is cut by rows and filled up."""
    elements = sum(-(-rows // members) * each for rows, each in parameters)
    return FSDPUnit(elements, members, 4, True, tuple(parameters))


def chunks(rows: int, members: int) -> list[int]:
    """Return the rows of each rank as torch cuts them, which is what FSDP2 does."""
    parts = [len(part) for part in torch.chunk(torch.arange(rows), members)]
    return parts + [0] * (members - len(parts))


@tried(80)
@given(st.lists(WHOLE, min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 9))
def test_ranks_hold_what_torch_gives_them(parameters, before, after):
    unit = padded_unit(parameters, before)
    held = [unit.held(after, place) for place in range(after)]
    expected = [
        sum(chunks(rows, after)[place] * each for rows, each in parameters)
        for place in range(after)
    ]
    assert held == expected
    assert sum(held) == sum(rows * each for rows, each in parameters)


@tried(80)
@given(st.lists(WHOLE, min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 9))
def test_shards_are_of_one_size_and_hold_the_fullest_rank(parameters, before, after):
    unit = padded_unit(parameters, before)
    assert unit.shard(after) == padded_unit(parameters, after).elements
    assert unit.shard(after) == max(unit.held(after, place) for place in range(after))
    assert unit.shard(before) == unit.elements


@tried(60)
@given(st.integers(1, 500), st.integers(1, 6), st.integers(1, 12))
def test_parameters_whose_rows_are_not_known_are_taken_to_divide(elements, before, after):
    unit = FSDPUnit(elements, before, 2, False)
    assert unit.shard(after) == -(-elements * before // after)
    assert unit.held(after, after - 1) == unit.shard(after)


def test_one_parameter_of_a_unit_is_found_by_its_size():
    # Seven rows of five and three rows of two, on two ranks: four and three rows, two and one.
    unit = padded_unit([(7, 5), (3, 2)], 2)
    assert unit.elements == 4 * 5 + 2 * 2
    assert [unit.resized(20, 4, place) for place in range(4)] == [10, 10, 10, 5]
    assert [unit.resized(4, 4, place) for place in range(4)] == [2, 2, 2, 0]
    assert unit.resized(7, 4, 0) is None


@tried(200)
@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_factors_are_found_again_from_product_and_sum(first, second):
    assert factors(first * second, first + second) == (min(first, second), max(first, second))


def test_numbers_without_whole_factors_have_none():
    found = [
        (product, total)
        for product in range(1, 60)
        for total in range(-3, 60)
        if factors(product, total)
    ]
    expected = {
        (a * b, a + b) for a in range(1, 60) for b in range(a, 60) if a * b < 60 and a + b < 60
    }
    assert set(found) == expected
    assert np.array(found).min() > 0


def test_shards_of_shards_are_rounded_up_once():
    for size in range(1, 60):
        once = -(-size // 12)
        assert ShardCountChange(3, 12).shard(-(-size // 3)) == once


@pytest.mark.parametrize(
    ("run", "classes"),
    [
        (
            "0766_cnn_fsdp2_ws4",
            [(0, 1, 2), (3,)],
        ),  # ten rows: three ranks hold three, one holds one
        ("0784_bert_fsdp2_ws4", [(0, 1), (2, 3)]),  # an embedding table of two rows
    ],
)
def test_ranks_that_hold_less_are_a_class_of_their_own(run, classes):
    (record,) = [r for r in read_index("data") if r.run == run]
    (target,) = read_runs("data", [record])
    (twin,) = [r for r in read_index("data/twins") if r.run == f"{run}.ws2"]
    (source,) = read_runs("data/twins", [twin])
    made = scale(source.workload(), ranks=4).workload
    assert [part.ranks for part in rank_classes(made)] == classes
    for rank, trace in enumerate(target.workload().traces):
        assert operators(made.traces[rank]) == operators(trace)


def sharded(elements: int, members: int) -> EditableProgram:
    """Return what a rank runs that shares a weight of so many elements, as ZeRO does.

    The weight is gathered, its gradient scattered, and the rank's shard of both gives a new one.
    """
    shard = -(-elements // members)
    return program(
        memory(gathers(0, shard), shard + elements),
        product(1, (3, elements, 1), 0),
        product(2, (elements, 3, 1), 1),
        memory(scatters(3, elements, 2), elements + shard),
        operator(4, "aten::sgd", (2 * shard, 3 * shard), 3),
    )


def memory(spec: NodeSpec, elements: int) -> NodeSpec:
    """Return a collective that reads and writes so many elements in memory."""
    return with_attribute(spec, integer("tensor_size", ITEM * elements, Wire.UINT64))


def on(made: EditableProgram, new: int, old: int = 2, place: int = 0) -> EditableProgram:
    rows_N = flags(made, *np.flatnonzero(~made.computes_N))
    return Resharding(made, [(rows_N, ShardCountChange(old, new))], place).done()


def test_a_weight_of_twelve_elements_by_hand():
    """Six elements on each of two ranks, three on each of four."""
    made = on(sharded(12, 2), 4)
    assert made.comm_N.tolist() == [ITEM * 3, 0, 0, ITEM * 12, 0]  # a shard is sent, or the whole
    assert costs(made, 0) == (0, 3 + 12)
    assert costs(made, 3) == (0, 12 + 3)
    assert costs(made, 4) == (2 * 3, 3 * 3)
    for row in (1, 2):  # products have the whole weight on each rank
        assert costs(made, row) == costs(sharded(12, 2), row)


@tried(40)
@given(each=st.integers(1, 40), old=st.integers(1, 6), new=st.integers(1, 6))
def test_a_weight_that_divides_is_as_if_it_had_been_shared_by_the_new_ranks(each, old, new):
    elements = each * old * new
    made, wanted = on(sharded(elements, old), new, old), sharded(elements, new)
    for column in ("ops_N", "bytes_N", "comm_N"):
        np.testing.assert_array_equal(getattr(made, column), getattr(wanted, column), column)


def test_a_shard_that_does_not_divide_is_rounded_up():
    """Ten elements, five on each of two ranks; three on each of four, of which two are filling."""
    made = on(sharded(10, 2), 4)
    assert made.comm_N[0] == ITEM * 3
    assert costs(made, 0) == (0, 3 + 4 * 3)  # what is gathered is filled up, too
    assert made.comm_N[3] == ITEM * 10  # what is scattered is as large as it was
    assert costs(made, 4) == (2 * 3, 3 * 3)


def test_what_a_rank_holds_of_each_unit_is_told_without_changing_it():
    before = sharded(12, 2)
    rows_N = flags(before, 0, 3)
    assert Resharding(before, [(rows_N, ShardCountChange(2, 4))]).held() == (3,)
    assert Resharding(before, [(rows_N, ShardCountChange(2, 2))]).held() == (6,)
    assert before.comm_N[0] == ITEM * 6


def test_only_gathers_of_weights_change_where_nothing_is_scattered():
    """Inference with sharded weights: no gradients, and no optimizer."""
    before = program(
        gathers(0, 6), product(1, (3, 12, 1), 0), operator(2, "aten::relu", (6, 12), 1)
    )
    after = on(before, 4)
    assert after.comm_N[0] == ITEM * 3
    assert [costs(after, row) for row in (1, 2)] == [costs(before, row) for row in (1, 2)]


def two_units(optimizer: NodeSpec) -> EditableProgram:
    """Return a program of two weights of 12 and 20 elements on two ranks."""
    return program(
        gathers(0, 6), product(1, (3, 12, 1), 0), gathers(2, 10), product(3, (3, 20, 1), 2, 1),
        product(4, (20, 3, 1), 3), scatters(5, 20, 4),
        product(6, (12, 3, 1), 4), scatters(7, 12, 6), optimizer,
    )  # fmt: skip


def test_an_optimizer_follows_the_shards_that_it_updates():
    """Sixteen elements of both shards on two ranks, eight on four."""
    made = on(two_units(operator(8, "aten::_foreach_add_", (16, 3 * 16), 5, 7)), 4)
    assert costs(made, 8) == (8, 3 * 8)
    made = on(two_units(operator(8, "aten::add_", (10, 3 * 10), 5)), 4)
    assert costs(made, 8) == (5, 3 * 5)
    # One element beside shards is a scalar; on a thousand ranks it is one still.
    made = on(two_units(operator(8, "aten::add_", (1, 2), 5)), 1024)
    assert costs(made, 8) == (1, 2)


def test_micro_batches_scatter_each_gradient_more_than_once_but_hold_it_once():
    """Two scatters of 12 elements; the optimizer updates the six of the rank's shard once."""
    nodes = (
        gathers(0, 6), product(1, (3, 12, 1), 0), scatters(2, 12, 1),
        product(3, (3, 12, 1), 2), scatters(4, 12, 3), operator(5, "aten::_fused", (6, 18), 2, 4),
    )  # fmt: skip
    assert costs(on(program(*nodes), 4), 5) == (3, 9)


def padded_program() -> EditableProgram:
    """Return a linear layer of 5 rows of 3 and a bias of 5, on two ranks as FSDP2 shards it.

    A shard has ceil(5 / 2) = 3 rows of each: 3 * (3 + 1) = 12 elements, and the whole 24.
    """
    return program(
        operator(0, "fsdp::all_gather_copy_in", (24, 2 * (24 + 12))),
        memory(gathers(1, 12, 0), 12 + 24),
        operator(2, "fsdp::split_with_sizes_copy", (24, 2 * 24), 1),
        # (2 x 3) by (3 x 5) with a bias: 6 + 15 + 10 + 5 elements
        operator(3, "aten::addmm", (2 * 2 * 3 * 5, 36), 2),
        product(4, (5, 2, 3), 3),
        operator(5, "fsdp::chunk_cat", (24, 20 + 24), 4),
        memory(scatters(6, 24, 5), 24 + 12),
        operator(7, "aten::add_", (9, 3 * 9), 6),
        operator(8, "aten::add_", (3, 3 * 3), 6),
    )


def test_filled_rows_are_gathered_and_scattered_but_not_updated():
    """On four ranks two rows each, ceil(5 / 4): the third holds one of them, the last none."""
    first, third = (on(padded_program(), 4, place=place) for place in (0, 2))
    shard, whole = 2 * (3 + 1), 4 * 2 * (3 + 1)
    for made in (first, third):
        assert made.comm_N[[1, 6]].tolist() == [ITEM * shard, ITEM * whole]
        assert [costs(made, row)[0] for row in (0, 2, 5)] == [whole] * 3
        assert costs(made, 1) == (0, shard + whole)
        assert costs(made, 0) == (whole, 2 * (whole + shard))
        assert costs(made, 5) == (whole, 20 + whole)  # gradients that are read are not filled up
    assert [costs(first, row) for row in (7, 8)] == [(6, 18), (2, 6)]
    assert [costs(third, row) for row in (7, 8)] == [(3, 9), (1, 3)]


def test_the_ranks_together_hold_each_weight_once():
    rows_N = flags(padded_program(), 1, 6)
    for members in (2, 3, 4, 5, 7):
        change = ShardCountChange(2, members)
        held = [
            Resharding(padded_program(), [(rows_N, change)], place).held()
            for place in range(members)
        ]
        assert sum(unit for (unit,) in held) == 5 * (3 + 1)


@pytest.mark.parametrize(
    ("size", "moved", "wanted"),
    [
        (10, 30, (4, 12)),  # one operation and three elements each
        (10, 33, (4, 15)),  # three bytes beside them stay
        (9, 9, (9, 9)),  # less than the elements: a scalar
    ],
)
def test_costs_follow_the_elements_and_keep_the_rest(size, moved, wanted):
    made = program(operator(0, "op", (size, 0)))
    numbers = Numbers(made)
    numbers.bytes_N[0] = moved
    numbers.follow(0, 10, 4)
    assert (int(numbers.ops_N[0]), int(numbers.bytes_N[0])) == wanted


def test_a_program_is_not_changed_by_the_columns_made_of_it():
    made = program(operator(0, "op", (10, 10)))
    numbers = Numbers(made)
    numbers.follow(0, 10, 5)
    assert costs(made, 0) == (10, 10)
    assert costs(numbers.program(), 0) == (5, 5)
    assert numbers.program().trace is made.trace


@pytest.mark.parametrize(("moved", "wanted"), [(120 + 40, 140), (2 * 120 + 40, 260), (77, 77)])
def test_memory_of_a_collective_follows_only_where_it_is_understood(moved, wanted):
    """Shards of 40 bytes, later 20; a whole of 120, read as well where it is written in place."""
    numbers = Numbers(program(memory(gathers(0, 10), 0)))
    numbers.bytes_N[0] = moved
    numbers.communicate(0, (40, 20), (120, 120))
    assert numbers.bytes_N[0] == wanted
