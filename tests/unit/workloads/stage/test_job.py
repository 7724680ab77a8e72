"""Ranks, groups and partners of a job, and the figures of all its ranks."""

from dataclasses import replace

import numpy as np
import pytest

from layerdag.workloads.stage import StageFlags, StageJob
from layerdag.workloads.stage._job import (
    group_numbers,
    groups,
    peers,
    rank_grid,
    stage_of_rank,
)

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
