"""What is counted of a program, worked out by hand on a program of a few nodes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.builder import NodeAppender
from layerdag.traces.trace import NodeType, Trace, Wire, Workload
from layerdag.workloads.stage.flags import StageFlags
from layerdag.workloads.stage.job import (
    StageFigures,
    StageJob,
    group_numbers,
    groups,
    peers,
    rank_grid,
)


class Program:
    """A program that is written node by node."""

    def __init__(self) -> None:
        self.columns = NodeAppender("by hand")
        self.count = 0

    def _add(self, kind: NodeType, after: tuple[int, ...]) -> None:
        self.columns.add(self.count, f"n{self.count}", kind, (after, ()), (0, 0))
        self.count += 1

    def compute(self, kind: str, operations: int, size: int, *after: int) -> None:
        self.columns.attribute("num_ops", Wire.INT64, operations)
        self.columns.attribute("tensor_size", Wire.UINT64, size)
        self.columns.attribute("op_type", Wire.STRING, self.columns.text(kind))
        self._add(NodeType.COMP, after)

    def collective(self, kind: CollectiveType, degree: str, size: int, *after: int) -> None:
        self.columns.attribute("comm_size", Wire.INT64, size)
        self.columns.attribute("comm_type", Wire.INT64, kind)
        self.columns.attribute("pg_name", Wire.STRING, self.columns.text(degree))
        self._add(NodeType.COMM_COLL, after)

    def message(self, end: str, stage: int, size: int, *after: int) -> None:
        self.columns.attribute("comm_size", Wire.INT64, size)
        self.columns.attribute(end, Wire.INT32, stage)
        self._add(NodeType.COMM_SEND if end == "comm_dst" else NodeType.COMM_RECV, after)

    def trace(self) -> Trace:
        return self.columns.trace()


def test_operations_beyond_64_bits_in_sum_are_exact():
    program = Program()
    program.compute("M", 2**62, 1)
    program.compute("M", 2**62, 1)
    program.compute("E", 2**62 + 1, 1)
    found = StageFigures.from_trace(program.trace()).operators
    assert found["num_ops_by_op_type"] == {"M": 2**63, "E": 2**62 + 1}
    assert found["num_ops"] == 3 * 2**62 + 1


def test_a_program_of_communication_alone_has_no_operators():
    program = Program()
    program.collective(CollectiveType.ALL_TO_ALL, "ep", 12)
    found = StageFigures.from_trace(program.trace())
    assert found.operators["comp_by_op_type"] == {}
    assert found.operators["num_ops"] == 0
    assert found.operators["data_deps"] == 0
    assert found.of_rank({"ep": "3"}, [])["comm_elems"] == {"ALL_TO_ALL@pg3": 12}


TINY = StageFlags(
    model_type="gpt", num_stacks=2, batch=4, seq=8, dmodel=16, dff=32, head=2, kvhead=2, dvocal=24
)
GRID = replace(TINY, dp=2, tp=3, pp=2)


def test_the_grid_holds_each_rank_once_by_stage_and_degree():
    """Data parallel ranks are neighbors, the stage is farthest: rank = 6 pp + 2 tp + dp."""
    grid = rank_grid(GRID)
    assert grid.shape == (2, 2, 3, 1)  # pp, dp, tp, cp
    for stage, data, tensor, context in np.ndindex(grid.shape):
        assert grid[stage, data, tensor, context] == 6 * stage + 2 * tensor + data


def test_one_rank_is_a_grid_of_its_own():
    assert rank_grid(TINY).reshape(-1).tolist() == [0]
    assert {degree: found.tolist() for degree, found in groups(TINY).items()} == {
        "dp": [[0]], "tp": [[0]], "cp": [[0]],
    }  # fmt: skip
    assert [found.tolist() for found in peers(TINY)] == [[0]]


def test_groups_differ_in_their_own_degree_only():
    members = groups(GRID)
    assert members["dp"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert members["tp"].tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]


def test_a_summary_has_the_nodes_of_all_ranks_by_the_names_of_files():
    told = StageJob(replace(TINY, dp=2)).summary("run/gpt.%d.et")
    assert list(told["per_rank"]) == ["run/gpt.0.et", "run/gpt.1.et"]
    assert told["ranks"] == 2
    assert told["flags"]["dmodel"] == 16
    assert told["comm_groups"] == {"1": [0, 1], "2": [0], "3": [1], "4": [0], "5": [1]}
    flags = replace(TINY, dp=2, pp=2)
    job = StageJob(flags)
    told = job.summary()
    assert told["nodes"] == job.nodes == sum(f["nodes"] for f in told["per_rank"].values())
    assert job.nodes == 2 * sum(stage.num_nodes for stage in job.stages)


def test_the_workload_says_whose_model_it_is():
    workload = StageJob(replace(TINY, model_type="llama")).workload()
    assert workload.source == "STAGE's llama"
    assert workload.num_ranks == 1


SMALL = StageFlags(
    model_type="gpt", num_stacks=4, batch=8, seq=32, dmodel=64, dff=128, head=8, kvhead=4, dvocal=64
)
SMALL_MIXTURE = replace(SMALL, model_type="moe", experts=4)


def test_activation_recompute_has_no_effect():
    again = StageJob(replace(SMALL, activation_recompute=True)).summary()
    assert again["per_rank"] == StageJob(SMALL).summary()["per_rank"]


def _counted(workload: Workload, rank: int) -> dict[str, Any]:
    """Return the figures of a rank, counted in its own trace."""
    names = {name: name for name in workload.groups}
    return StageFigures.from_trace(workload.traces[rank]).of_rank(
        names, list(range(workload.num_ranks))
    )


@pytest.mark.parametrize(
    "flags",
    [
        replace(SMALL, dp=3, tp=2, pp=4, micro_batch=4),
        replace(SMALL_MIXTURE, dp=2, sp=2, ep=2, pp=2, weight_sharded=True),
    ],
)
def test_figures_of_every_rank_are_those_of_its_trace(flags):
    job = StageJob(flags)
    told, workload = job.summary("x-%d"), job.workload()
    assert list(told["per_rank"]) == [f"x-{rank}" for rank in range(flags.ranks)]
    for rank in range(flags.ranks):
        assert told["per_rank"][f"x-{rank}"] == _counted(workload, rank)
    assert told["comm_groups"] == {name: list(ranks) for name, ranks in workload.groups.items()}
    assert told["nodes"] == sum(trace.num_nodes for trace in workload.traces)


def test_a_rank_communicates_in_groups_that_hold_it():
    flags = replace(SMALL_MIXTURE, dp=2, tp=2, sp=2, ep=2, pp=2)
    workload = StageJob(flags).workload()
    for rank in (0, 7, 13, 31):
        trace = workload.traces[rank]
        text_N, _ = trace.texts("pg_name")
        used = {text_N[row] for row in (trace.type_N == NodeType.COMM_COLL).nonzero()[0].tolist()}
        assert len(used) == 4  # one of each degree
        assert all(rank in workload.groups[name] for name in used)


def test_each_rank_is_in_one_group_of_each_degree():
    flags = replace(SMALL_MIXTURE, dp=3, tp=2, sp=2, ep=4, pp=2)
    numbers = group_numbers(flags)
    first = 1
    for degree, rank_GM in groups(flags).items():
        assert sorted(rank_GM.reshape(-1).tolist()) == list(range(flags.ranks))
        assert rank_GM.shape[1] == flags.degrees[degree]
        for group, ranks in enumerate(rank_GM):
            assert set(numbers[degree][ranks].tolist()) == {first + group}
        first += len(rank_GM)
