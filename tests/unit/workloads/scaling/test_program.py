"""The program of a class: what depends on what, and a trace whose numbers have changed."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from symbolic_jobs import GPT, small

from layerdag.traces import CollectiveType, NodeType, read_workload
from layerdag.workloads.scaling._program import Program, numbers_written, with_words, written


@cache
def measured() -> Program:
    """Return the program of a measured job of data-parallel ranks."""
    return Program.of(read_workload("data/examples/ddp_mlp").traces[0], (0, 1))


def none_N(program: Program) -> np.ndarray:
    return np.zeros(program.num_nodes, dtype=bool)


def only(program: Program, row: int) -> np.ndarray:
    rows_N = none_N(program)
    rows_N[row] = True
    return rows_N


def costly_row(program: Program) -> int:
    """Return the first operator that has operations, bytes and a duration."""
    nanoseconds_N, _ = program.trace.integers("duration_ns")
    timed_N = (program.ops_N > 0) & (program.bytes_N > 0) & (nanoseconds_N > 0)
    return int(np.flatnonzero(program.computes_N & timed_N)[0])


def test_parents_and_children_are_the_two_ends_of_each_edge() -> None:
    program = measured()
    edges = set(zip(*program.data_edges_2E.tolist(), strict=True))
    rows = range(program.num_nodes)
    assert edges
    assert {(parent, row) for row in rows for parent in program.parents(row)} == edges
    assert {(row, child) for row in rows for child in program.children(row)} == edges


def test_descendants_and_ancestors_mirror_each_other() -> None:
    program = measured()
    rows = range(0, program.num_nodes, 5)
    below = {row: program.descendants(only(program, row)) for row in rows}
    above = {row: program.ancestors(only(program, row)) for row in rows}
    assert any(reached_N.any() for reached_N in below.values())
    for first in rows:
        assert not below[first][first]
        assert all(below[first][row] == above[row][first] for row in rows)


def test_nothing_depends_on_no_node() -> None:
    program = measured()
    assert not program.descendants(none_N(program)).any()
    assert not program.ancestors(none_N(program)).any()


def test_groups_and_kinds_are_of_collectives_only() -> None:
    program = measured()
    joins_N = program.trace.type_N == NodeType.COMM_COLL
    assert joins_N.any()
    assert (program.collective_N[joins_N] == CollectiveType.ALL_REDUCE).all()
    assert (program.collective_N[~joins_N] == CollectiveType.INVALID).all()
    assert {program.group_N[row] for row in np.flatnonzero(~joins_N)} == {""}


@pytest.mark.parametrize(("pipeline", "talks"), [(1, False), (2, True)])
def test_only_stages_of_a_pipeline_talk(pipeline: int, talks: bool) -> None:
    trace = small(GPT, pipeline=pipeline).workload().traces[0]
    assert Program.of(trace, (0,)).talks is talks


def test_a_program_that_no_rule_changed_keeps_its_trace() -> None:
    program = measured()
    assert written(program, program, none_N(program)) is program.trace


@pytest.mark.parametrize(("ops", "moved", "ratio"), [(3, 1, 3), (1, 2, 2), (2, 5, 5)])
def test_a_duration_follows_the_cost_that_grows_more(ops: int, moved: int, ratio: int) -> None:
    before = measured()
    row = costly_row(before)
    ops_N, bytes_N = before.ops_N.copy(), before.bytes_N.copy()
    ops_N[row] *= ops
    bytes_N[row] *= moved
    trace = written(replace(before, ops_N=ops_N, bytes_N=bytes_N), before, none_N(before))
    old_N, new_N = (t.integers("duration_ns")[0] for t in (before.trace, trace))
    assert new_N[row] == ratio * old_N[row]
    np.testing.assert_array_equal(np.delete(new_N, row), np.delete(old_N, row))
    assert (trace.io_N6[row] == -1).all()  # its shapes are not those of the new size


def test_a_regrouped_collective_loses_its_measured_time_and_keeps_its_size() -> None:
    program = measured()
    row = int(np.flatnonzero(program.trace.type_N == NodeType.COMM_COLL)[0])
    trace = written(program, program, only(program, row))
    assert program.trace.integers("duration_ns")[0][row] > 0
    assert trace.integers("duration_ns")[0][row] == 0
    assert trace.integers("comm_size")[0][row] == program.comm_N[row]


def test_numbers_are_read_again_as_they_were_written() -> None:
    program = measured()
    doubled = replace(program, ops_N=2 * program.ops_N, comm_N=2 * program.comm_N)
    again = Program.of(numbers_written(doubled), program.ranks)
    np.testing.assert_array_equal(again.ops_N, 2 * program.ops_N)
    np.testing.assert_array_equal(again.comm_N, 2 * program.comm_N)
    np.testing.assert_array_equal(again.bytes_N, program.bytes_N)


def test_an_attribute_that_no_node_has_changes_nothing() -> None:
    trace = measured().trace
    same = with_words(trace, {"no such attribute": np.ones(trace.num_nodes, dtype=np.int64)})
    np.testing.assert_array_equal(same.attributes.word_A, trace.attributes.word_A)
