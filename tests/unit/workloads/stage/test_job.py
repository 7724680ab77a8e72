"""What is counted of a program, worked out by hand on a program of a few nodes."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from layerdag.traces.builder import NodeAppender
from layerdag.traces.trace import CollectiveType, NodeType, Trace, Wire, Workload
from layerdag.workloads.stage.flags import StageFlags
from layerdag.workloads.stage.job import (
    CommunicationCounts,
    StageFigures,
    StageJob,
    group_numbers,
    groups,
    peers,
    rank_grid,
    stage_of_rank,
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


@pytest.fixture(scope="module")
def figures() -> StageFigures:
    """Receive, two products, a sum, two all-reduces of dp, one gather of tp, send."""
    program = Program()
    program.message("comm_src", 0, 40)
    program.compute("M", 1000, 50, 0)
    program.compute("M", 300, 20, 0, 1)
    program.compute("A", 70, 70, 1, 2)
    program.collective(CollectiveType.ALL_REDUCE, "dp", 50, 1)
    program.collective(CollectiveType.ALL_REDUCE, "dp", 20, 2)
    program.collective(CollectiveType.ALL_GATHER, "tp", 9, 3)
    program.message("comm_dst", 2, 70, 3, 6)
    return StageFigures.from_program(program.trace())


def test_nodes_are_counted_by_what_they_do(figures: StageFigures) -> None:
    assert figures.operators["nodes"] == 8
    assert figures.operators["types"] == {"RECV": 1, "COMP": 3, "COLL": 3, "SEND": 1}
    assert figures.operators["data_deps"] == 1 + 2 + 2 + 1 + 1 + 1 + 2


def test_operations_add_up_by_operator(figures: StageFigures) -> None:
    assert figures.operators["comp_by_op_type"] == {"M": 2, "A": 1}
    assert figures.operators["num_ops_by_op_type"] == {"M": 1300, "A": 70}
    assert figures.operators["num_ops"] == 1370
    assert figures.operators["tensor_size_elems"] == 50 + 20 + 70


def test_communication_is_summed_by_kind_and_partner(figures: StageFigures) -> None:
    assert figures.communication == [
        CommunicationCounts("RECV<-", 0, 1, 40),
        CommunicationCounts("ALL_REDUCE@pg", "dp", 2, 70),
        CommunicationCounts("ALL_GATHER@pg", "tp", 1, 9),
        CommunicationCounts("SEND->", 2, 1, 70),
    ]


def test_a_rank_puts_its_own_groups_and_peers_in_place(figures: StageFigures) -> None:
    found = figures.of_rank({"dp": "4", "tp": "9"}, [1, 5, 13])
    assert found["comm_count"] == {
        "RECV<-1": 1, "ALL_REDUCE@pg4": 2, "ALL_GATHER@pg9": 1, "SEND->13": 1,
    }  # fmt: skip
    assert found["comm_elems"] == {
        "RECV<-1": 40, "ALL_REDUCE@pg4": 70, "ALL_GATHER@pg9": 9, "SEND->13": 70,
    }  # fmt: skip
    assert found["num_ops"] == figures.operators["num_ops"]


def test_figures_of_a_stage_stay_as_they_are_when_a_rank_is_asked_for(
    figures: StageFigures,
) -> None:
    before = dict(figures.operators)
    figures.of_rank({"dp": "1", "tp": "2"}, [0, 1, 2])
    assert figures.operators == before
    assert "comm_count" not in figures.operators


def test_operations_beyond_64_bits_in_sum_are_exact() -> None:
    program = Program()
    program.compute("M", 2**62, 1)
    program.compute("M", 2**62, 1)
    program.compute("E", 2**62 + 1, 1)
    found = StageFigures.from_program(program.trace()).operators
    assert found["num_ops_by_op_type"] == {"M": 2**63, "E": 2**62 + 1}
    assert found["num_ops"] == 3 * 2**62 + 1


def test_a_program_of_communication_alone_has_no_operators() -> None:
    program = Program()
    program.collective(CollectiveType.ALL_TO_ALL, "ep", 12)
    found = StageFigures.from_program(program.trace())
    assert found.operators["comp_by_op_type"] == {}
    assert found.operators["num_ops"] == 0
    assert found.operators["data_deps"] == 0
    assert found.of_rank({"ep": "3"}, [])["comm_elems"] == {"ALL_TO_ALL@pg3": 12}


def test_kinds_of_collectives_are_kept_apart_in_one_group() -> None:
    program = Program()
    for kind in (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER):
        program.collective(kind, "dp", 5)
    found = StageFigures.from_program(program.trace()).of_rank({"dp": "1"}, [])
    assert found["comm_count"] == {"ALL_REDUCE@pg1": 1, "REDUCE_SCATTER@pg1": 1}


TINY = StageFlags(
    model_type="gpt", num_stacks=2, batch=4, seq=8, dmodel=16, dff=32, head=2, kvhead=2, dvocal=24
)
GRID = replace(TINY, dp=2, tp=3, pp=2)
MIXTURE = replace(TINY, model_type="moe", experts=4, dp=2, tp=2, sp=2, ep=2)


def test_the_grid_holds_each_rank_once_by_stage_and_degree() -> None:
    """Data parallel ranks are neighbors, the stage is farthest: rank = 6 pp + 2 tp + dp."""
    grid = rank_grid(GRID)
    assert grid.shape == (2, 2, 3, 1)  # pp, dp, tp, cp
    for stage, data, tensor, context in np.ndindex(grid.shape):
        assert grid[stage, data, tensor, context] == 6 * stage + 2 * tensor + data


def test_one_rank_is_a_grid_of_its_own() -> None:
    assert rank_grid(TINY).reshape(-1).tolist() == [0]
    assert {degree: found.tolist() for degree, found in groups(TINY).items()} == {
        "dp": [[0]], "tp": [[0]], "cp": [[0]],
    }  # fmt: skip
    assert stage_of_rank(TINY).tolist() == [0]
    assert [found.tolist() for found in peers(TINY)] == [[0]]


def test_groups_differ_in_their_own_degree_only() -> None:
    members = groups(GRID)
    assert members["dp"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert members["tp"].tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]


@pytest.mark.parametrize("flags", [GRID, MIXTURE, replace(MIXTURE, pp=2)])
def test_two_groups_of_different_degrees_share_at_most_one_rank(flags: StageFlags) -> None:
    found = groups(flags)
    for one, rows in found.items():
        for other, columns in found.items():
            if one < other:
                shared = [len(set(a) & set(b)) for a in rows.tolist() for b in columns.tolist()]
                assert max(shared) == 1
                assert sum(shared) == flags.ranks  # each rank: one group of either degree


def test_no_group_spans_two_stages() -> None:
    flags = replace(MIXTURE, pp=2)
    stages = stage_of_rank(flags)
    for rank_GM in groups(flags).values():
        assert (stages[rank_GM] == stages[rank_GM[:, :1]]).all()


def test_numbers_of_groups_go_on_from_degree_to_degree() -> None:
    """12 ranks: 6 groups of dp, 4 of tp, 12 of cp are numbers 1 to 6, 7 to 10, 11 to 22."""
    found = group_numbers(GRID)
    assert found["dp"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert found["tp"].tolist() == [7, 8, 7, 8, 7, 8, 9, 10, 9, 10, 9, 10]
    # stage slowest, then dp, then tp: 11 + 6 pp + 3 dp + tp of rank 6 pp + 2 tp + dp
    assert found["cp"].tolist() == [11, 14, 12, 15, 13, 16, 17, 20, 18, 21, 19, 22]


def test_a_partner_of_a_partner_is_oneself() -> None:
    stages, partner = stage_of_rank(GRID), peers(GRID)
    for rank in range(GRID.ranks):
        for stage, ranks in enumerate(partner):
            assert stages[ranks[rank]] == stage
            assert partner[stages[rank]][ranks[rank]] == rank


def test_stages_are_blocks_of_equal_size() -> None:
    assert stage_of_rank(replace(TINY, dp=3, pp=2)).tolist() == [0, 0, 0, 1, 1, 1]


def test_expert_ranks_of_a_dense_model_are_tensor_ranks() -> None:
    dense = replace(TINY, tp=2, ep=2)
    assert set(groups(dense)) == {"dp", "tp", "cp"}
    assert groups(dense)["tp"].tolist() == [[0, 1, 2, 3]]


def test_a_summary_is_found_by_the_names_of_files() -> None:
    told = StageJob(replace(TINY, dp=2)).summary("run/gpt.%d.et")
    assert list(told["per_rank"]) == ["run/gpt.0.et", "run/gpt.1.et"]
    assert told["ranks"] == 2
    assert told["flags"]["dmodel"] == 16
    assert told["comm_groups"] == {"1": [0, 1], "2": [0], "3": [1], "4": [0], "5": [1]}


def test_nodes_of_a_summary_are_those_of_all_ranks() -> None:
    flags = replace(TINY, dp=2, pp=2)
    job = StageJob(flags)
    told = job.summary()
    assert told["nodes"] == job.nodes == sum(f["nodes"] for f in told["per_rank"].values())
    assert job.nodes == 2 * sum(stage.num_nodes for stage in job.stages)


def test_ranks_of_a_stage_differ_in_groups_and_peers_only() -> None:
    told = StageJob(replace(TINY, dp=2, pp=2)).summary()["per_rank"]
    ranks = [told[f"w.{rank}.et"] for rank in range(4)]
    for one, other in ((0, 1), (2, 3)):
        for key in ranks[one].keys() - {"comm_count", "comm_elems"}:
            assert ranks[one][key] == ranks[other][key]
        assert sorted(ranks[one]["comm_count"].values()) == sorted(
            ranks[other]["comm_count"].values()
        )
    assert "SEND->2" in ranks[0]["comm_count"]
    assert "SEND->3" in ranks[1]["comm_count"]


def test_the_workload_says_whose_model_it_is() -> None:
    workload = StageJob(replace(TINY, model_type="llama")).workload()
    assert workload.source == "STAGE's llama"
    assert workload.num_ranks == 1


SMALL = StageFlags(
    model_type="gpt", num_stacks=4, batch=8, seq=32, dmodel=64, dff=128, head=8, kvhead=4, dvocal=64
)
GATED = replace(SMALL, model_type="llama", mixed_precision=True)
LAWS_MIXTURE = replace(SMALL, model_type="moe", experts=4)


def _operations(flags: StageFlags) -> Counter[str]:
    """Return the operations of all ranks by ``op_type``."""
    total: Counter[str] = Counter()
    for found in StageJob(flags).figures:
        for kind, operations in found.operators["num_ops_by_op_type"].items():
            total[kind] += flags.ranks_per_stage * operations
    return total


def _count(flags: StageFlags, key: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for found in StageJob(flags).figures:
        total.update(found.operators[key])
    return total


@pytest.mark.parametrize("model", [SMALL, GATED, LAWS_MIXTURE])
@pytest.mark.parametrize("degree", ["dp", "tp", "sp", "pp"])
def test_matrix_products_are_shared_by_all_ranks(model: StageFlags, degree: str) -> None:
    assert _operations(replace(model, **{degree: 4}))["M"] == _operations(model)["M"]


def test_all_degrees_together_share_matrix_products() -> None:
    plan = replace(GATED, dp=2, tp=2, sp=2, pp=4, micro_batch=4, weight_sharded=True)
    assert _operations(plan)["M"] == _operations(GATED)["M"]


@pytest.mark.parametrize("model", [SMALL, GATED, LAWS_MIXTURE])
def test_stages_have_the_operators_of_the_model(model: StageFlags) -> None:
    whole, cut = model, replace(model, pp=4)
    assert _count(cut, "comp_by_op_type") == _count(whole, "comp_by_op_type")
    assert _operations(cut) == _operations(whole)


@pytest.mark.parametrize("model", [SMALL, GATED, LAWS_MIXTURE])
def test_micro_batches_repeat_operators_on_fewer_sequences(model: StageFlags) -> None:
    one, four = (
        _count(model, "comp_by_op_type"),
        _count(replace(model, micro_batch=2), "comp_by_op_type"),
    )
    assert four["M"] == 4 * one["M"]
    assert four["E"] == 4 * one["E"]
    assert four["A"] - one["A"] == 3 * (one["A"] - 6)  # six updates: layers and embeddings
    assert _operations(replace(model, micro_batch=2))["M"] == _operations(model)["M"]


def test_sharded_weights_change_communication_only() -> None:
    plain = replace(SMALL, dp=4)
    sharded = replace(plain, weight_sharded=True)
    for kind in ("M", "E", "SLICE"):
        assert _operations(sharded)[kind] == _operations(plain)[kind]
    assert _count(sharded, "comp_by_op_type") == _count(plain, "comp_by_op_type")
    # gathered twice, scattered once in each of four layers, in place of one all-reduce
    assert _count(sharded, "types")["COLL"] - _count(plain, "types")["COLL"] == 4 * 2


def test_a_gather_doubles_with_the_batch_and_a_gradient_does_not() -> None:
    def elements(batch: int) -> dict[str, int]:
        (found,) = StageJob(replace(SMALL, dp=2, tp=2, batch=batch)).figures
        return {f"{c.kind}{c.whom}": c.elements for c in found.communication}

    small, large = elements(8), elements(16)
    assert large["ALL_GATHER@pgtp"] == 2 * small["ALL_GATHER@pgtp"]
    assert large["ALL_REDUCE@pgdp"] == small["ALL_REDUCE@pgdp"]


def test_activation_recompute_has_no_effect() -> None:
    again = StageJob(replace(SMALL, activation_recompute=True)).summary()
    assert again["per_rank"] == StageJob(SMALL).summary()["per_rank"]


def _counted(workload: Workload, rank: int) -> dict[str, Any]:
    """Return the figures of a rank, counted in its own trace."""
    names = {name: name for name in workload.groups}
    return StageFigures.from_program(workload.traces[rank]).of_rank(
        names, list(range(workload.num_ranks))
    )


@pytest.mark.parametrize(
    "flags",
    [
        replace(SMALL, dp=3, tp=2, pp=4, micro_batch=4),
        replace(LAWS_MIXTURE, dp=2, sp=2, ep=2, pp=2, weight_sharded=True),
    ],
)
def test_figures_of_every_rank_are_those_of_its_trace(flags: StageFlags) -> None:
    job = StageJob(flags)
    told, workload = job.summary("x-%d"), job.workload()
    assert list(told["per_rank"]) == [f"x-{rank}" for rank in range(flags.ranks)]
    for rank in range(flags.ranks):
        assert told["per_rank"][f"x-{rank}"] == _counted(workload, rank)
    assert told["comm_groups"] == {name: list(ranks) for name, ranks in workload.groups.items()}
    assert told["nodes"] == sum(trace.num_nodes for trace in workload.traces)


def test_a_rank_communicates_in_groups_that_hold_it() -> None:
    flags = replace(LAWS_MIXTURE, dp=2, tp=2, sp=2, ep=2, pp=2)
    workload = StageJob(flags).workload()
    for rank in (0, 7, 13, 31):
        trace = workload.traces[rank]
        text_N, _ = trace.texts("pg_name")
        used = {text_N[row] for row in (trace.type_N == NodeType.COMM_COLL).nonzero()[0].tolist()}
        assert len(used) == 4  # one of each degree
        assert all(rank in workload.groups[name] for name in used)


def test_each_rank_is_in_one_group_of_each_degree() -> None:
    flags = replace(LAWS_MIXTURE, dp=3, tp=2, sp=2, ep=4, pp=2)
    numbers = group_numbers(flags)
    first = 1
    for degree, rank_GM in groups(flags).items():
        assert sorted(rank_GM.reshape(-1).tolist()) == list(range(flags.ranks))
        assert rank_GM.shape[1] == flags.degrees[degree]
        for group, ranks in enumerate(rank_GM):
            assert set(numbers[degree][ranks].tolist()) == {first + group}
        first += len(rank_GM)
