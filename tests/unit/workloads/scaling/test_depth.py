"""Layers that the stages of a pipeline share."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from laws import tried
from same_jobs import assert_same, operators
from symbolic_jobs import LLAMA, small

from layerdag.codec import rank_classes
from layerdag.errors import UsageError
from layerdag.traces import Workload
from layerdag.workloads.scaling import scale
from layerdag.workloads.scaling._depth import _shared, with_layers
from layerdag.workloads.scaling._program import Program
from layerdag.workloads.scaling._roles import Job


@pytest.mark.parametrize(
    ("count", "stages", "each"),
    [(8, 4, [2, 2, 2, 2]), (9, 2, [5, 4]), (11, 4, [3, 3, 3, 2]), (3, 3, [1, 1, 1]), (5, 1, [5])],
)
def test_the_first_stages_take_the_layers_that_are_left_over(
    count: int, stages: int, each: list[int]
) -> None:
    assert _shared(count, stages) == each


@tried(60)
@given(st.integers(1, 500), st.integers(1, 40))
def test_no_layer_is_lost_and_stages_differ_by_one_at_most(count: int, stages: int) -> None:
    each = _shared(count, stages)
    assert (len(each), sum(each)) == (stages, count)
    assert max(each) - min(each) <= 1
    assert each == sorted(each, reverse=True)


# ---- jobs ----


def made(layers: int, **plan: Any) -> Workload:
    return small(replace(LLAMA, layers=layers), **plan).workload()


def deepened(workload: Workload, count: int, now: int | None = None) -> tuple[Job, dict[str, Any]]:
    """Return a job with so many layers, and what was found."""
    programs = [Program.of(part.trace, part.ranks) for part in rank_classes(workload)]
    job = Job.of(programs, dict(workload.groups), workload.source)
    return with_layers(job, job.kinds, count, now)


def nodes(workload: Workload) -> list[int]:
    return [trace.num_nodes for trace in workload.traces]


def test_each_layer_adds_the_nodes_of_its_blocks() -> None:
    job, found = deepened(made(3, data=2), 5)
    (before,) = set(nodes(made(3, data=2)))
    block = sum(part["nodes"] for part in found["blocks"])
    assert (found["before"], found["after"]) == (3, 5)
    assert [part["backward"] for part in found["blocks"]] == [False, True]
    assert job.programs[0].num_nodes == before + 2 * block


def test_operations_of_added_layers_are_all_the_same() -> None:
    """Total operations are a + b * layers: equal steps between three, four and nine layers."""
    source = made(3, data=2)
    total = {n: int(deepened(source, n)[0].programs[0].ops_N.sum()) for n in (3, 4, 9)}
    assert total[4] > total[3]
    assert total[9] - total[4] == 5 * (total[4] - total[3])


def test_as_many_layers_as_there_are_leave_the_operators() -> None:
    source = made(3, data=2, zero=1)
    job, found = deepened(source, 3)
    assert found["before"] == found["after"] == 3
    assert operators(job.programs[0].trace) == operators(source.traces[0])


def test_groups_and_ranks_stay() -> None:
    source = made(2, data=2, tensor=2)
    job, _ = deepened(source, 6)
    assert job.mesh.num_ranks == source.num_ranks
    assert {tuple(ranks) for ranks in source.groups.values()} <= set(job.groups.values())
    assert sorted(rank for program in job.programs for rank in program.ranks) == [0, 1, 2, 3]


def test_stages_that_got_one_layer_more_keep_the_first_places() -> None:
    """Seven layers on two stages are four and three; ten are five and five."""
    _, found = deepened(made(7, pipeline=2, data=2, zero=3), 10)
    counts = {part["class"]: part["count"] for part in found["blocks"]}
    assert counts == {0: 4, 1: 3}
    assert (found["before"], found["after"]) == (7, 10)


def test_there_and_back_are_the_same_operators() -> None:
    source = made(3, data=2, zero=3)
    larger = scale(source, layers=8).workload
    assert_same(scale(larger, layers=3).workload, source, 2)


def test_one_layer_is_left_but_tells_of_no_second() -> None:
    one = scale(made(3, data=2), layers=1).workload
    assert_same(one, made(1, data=2), 2)
    with pytest.raises(UsageError, match="A job of one layer does not tell"):
        scale(one, layers=2)


def test_a_stage_of_one_layer_is_told_by_its_number() -> None:
    """Three layers on two stages: the second stage has one."""
    with pytest.raises(UsageError, match="stage 1: no block of operators repeats"):
        deepened(made(3, pipeline=2), 8)


def test_a_stated_number_is_that_of_all_stages() -> None:
    source = made(6, pipeline=2, data=2, zero=3)
    assert deepened(source, 8, now=6)[1]["before"] == 6
    with pytest.raises(UsageError, match=r"no blocks of operators repeat 2 times; found 3 x"):
        deepened(source, 8, now=4)
