"""Nodes as they are written: costs, groups, peers, and what waits for what."""

import pytest

from layerdag.errors import ConfigError
from layerdag.traces import CollectiveType, NodeType, Trace
from layerdag.workloads.symbolic import Tape

SUM = CollectiveType.ALL_REDUCE


def tape() -> Tape:
    return Tape("bfloat16", "tiny, stage 0")


def waits(trace: Trace) -> list[tuple[list[int], list[int]]]:
    """Return the nodes that each node waits for: for their data, and by control."""
    rows = range(trace.num_nodes)
    return [(trace.data_deps.of(i).tolist(), trace.ctrl_deps.of(i).tolist()) for i in rows]


def column(trace: Trace, name: str) -> list[int]:
    return trace.integers(name)[0].tolist()


# ---- what is written ----


def test_nodes_are_numbered_in_the_order_in_which_they_are_written() -> None:
    made = tape()
    first = made.compute("mm", (8, 16), ())
    second = made.collective("sum", SUM, "tensor", 64, first)
    third = made.receive("recv", "previous", 32, 5)
    assert (first, second, third) == ((0,), (1,), (2,))
    trace = made.trace()
    assert trace.names() == ["mm", "sum", "recv"]
    assert trace.id_N.tolist() == [0, 1, 2]
    kinds = [NodeType.COMP, NodeType.COMM_COLL, NodeType.COMM_RECV]
    assert trace.type_N.tolist() == kinds
    assert set(trace.dtypes()) == {"bfloat16"}


def test_costs_are_stated_and_never_zero() -> None:
    made = tape()
    made.compute("mm", (8, 16), ())
    made.compute("nothing", (0, 0), ())
    trace = made.trace()
    assert column(trace, "num_ops") == [8, 1]
    assert column(trace, "tensor_size") == [16, 1]


def test_a_collective_states_its_kind_its_bytes_and_the_role_of_its_group() -> None:
    made = tape()
    made.collective("gather", CollectiveType.ALL_GATHER, "data", 96, ())
    trace = made.trace()
    assert (column(trace, "comm_type"), column(trace, "comm_size")) == ([2], [96])
    assert trace.texts("pg_name")[0] == ["data"]


def test_messages_state_the_place_of_their_peer_bytes_and_tag() -> None:
    made = tape()
    made.send("send", "next", 64, 7, ())
    made.receive("recv", "previous", 32, 8)
    trace = made.trace()
    assert column(trace, "comm_size") == [64, 32]
    assert column(trace, "comm_tag") == [7, 8]
    assert trace.integers("comm_dst")[0][0] == 1  # "next"
    assert trace.integers("comm_src")[0][1] == 0  # "previous"
    assert trace.integers("comm_src")[1].tolist() == [False, True]


# ---- what waits ----


def test_operators_wait_for_data_alone_inside_a_task() -> None:
    made = tape()
    a = made.compute("a", (1, 1), ())
    made.compute("b", (1, 1), ())
    made.compute("c", (1, 1), a)
    assert waits(made.trace()) == [([], []), ([], []), ([0], [])]


def test_the_first_operator_of_a_task_waits_for_the_last_of_the_task_before() -> None:
    made = tape()
    made.begin_task()
    made.compute("a", (1, 1), ())
    made.compute("b", (1, 1), ())
    made.begin_task()
    made.compute("c", (1, 1), ())
    made.compute("d", (1, 1), ())
    assert waits(made.trace()) == [([], []), ([], []), ([], [1]), ([], [])]


def test_who_needs_the_data_of_the_last_operator_waits_for_it_once() -> None:
    made = tape()
    a = made.compute("a", (1, 1), ())
    made.begin_task()
    made.compute("b", (1, 1), a)
    assert waits(made.trace())[1] == ([0], [])


def test_collectives_and_sends_are_chained_in_the_order_of_the_program() -> None:
    made = tape()
    made.collective("one", SUM, "tensor", 8, ())
    made.send("two", "next", 8, 1, ())
    made.collective("three", SUM, "data", 8, ())
    assert waits(made.trace()) == [([], []), ([], [0]), ([], [1])]


def test_a_chain_that_data_makes_needs_no_control() -> None:
    """The second sum needs an operator that needs the first sum."""
    made = tape()
    first = made.collective("one", SUM, "tensor", 8, ())
    between = made.compute("mm", (1, 1), first)
    made.collective("two", SUM, "tensor", 8, between)
    made.collective("three", SUM, "tensor", 8, between)
    assert waits(made.trace())[2:] == [([1], []), ([1], [2])]


def test_a_receive_waits_for_nobody_and_nobody_for_its_place() -> None:
    made = tape()
    made.collective("one", SUM, "tensor", 8, ())
    got = made.receive("recv", "previous", 8, 1)
    made.collective("two", SUM, "tensor", 8, got)
    assert waits(made.trace()) == [([], []), ([], []), ([1], [0])]


@pytest.mark.parametrize(
    ("operations", "moved"), [(2**63, 1), (1, 2**63), (6 * 10**24, 6 * 10**24)]
)
def test_costs_that_64_bits_cannot_state_are_refused(operations: int, moved: int) -> None:
    made = tape()
    made.compute("fits", (2**63 - 1, 2**63 - 1), ())
    with pytest.raises(ConfigError, match=r"tiny, stage 0: 'mm' takes .* give a smaller batch"):
        made.compute("mm", (operations, moved), ())


def test_messages_that_64_bits_cannot_state_are_refused() -> None:
    for write in (
        lambda size: tape().collective("it", SUM, "data", size, ()),
        lambda size: tape().send("it", "next", size, 1, ()),
        lambda size: tape().receive("it", "next", size, 1),
    ):
        write(2**63 - 1)
        with pytest.raises(ConfigError, match=r"'it' takes 9\.22e"):
            write(2**63)
