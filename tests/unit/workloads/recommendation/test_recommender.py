"""DLRM: parameters, tables, all-to-all bytes, invariance under splitting, refusals."""

import dataclasses
from typing import Any

import pytest

import layerdag as ld
from layerdag.errors import ConfigError, UsageError
from layerdag.evaluation.rules import check_workload
from layerdag.simulator import Cluster, simulate
from layerdag.workloads.recommendation import RECOMMENDERS, RecommenderShape, recommender_job

TINY = RecommenderShape("tiny", (1000, 10, 500, 7), (3, 1, 2, 1), 16, 5, (32, 16), (64, 1), 2, 8)


def test_dlrm_v2_has_the_published_tables() -> None:
    """204,184,588 rows of 128 numbers: MLPerf's reference for multi-hot Criteo."""
    shape = RECOMMENDERS["dlrm-v2"]
    assert len(shape.rows) == 26
    assert shape.table_parameters == 204_184_588 * 128
    bottom = 14 * 512 + 513 * 256 + 257 * 128
    top = 3457 * 1024 + 1025 * 1024 + 1025 * 512 + 513 * 256 + 257
    cross = 3 * (2 * 27 * 128 * 512 + 27 * 128)
    assert shape.parameters == shape.table_parameters + bottom + cross + top


def test_the_front_door_knows_recommendation_models() -> None:
    assert ld.workload("dlrm-v2", data=4, batch=64).num_ranks == 4
    assert ld.workload(TINY, data=2, batch=64).num_ranks == 2
    with pytest.raises(UsageError, match="There is no recommendation model 'dlrm-v3'"):
        recommender_job("dlrm-v3")


def test_every_table_is_on_one_rank_and_large_ones_apart() -> None:
    tables = recommender_job("dlrm-v2", data=8, batch=64).tables
    assert sorted(table for held in tables for table in held) == list(range(26))
    large = [sum(RECOMMENDERS["dlrm-v2"].rows[t] == 40_000_000 for t in held) for held in tables]
    assert max(large) == 1


@pytest.mark.parametrize(("data", "micro_batches"), [(1, 2), (2, 1), (4, 2)])
def test_splitting_changes_no_operation(data: int, micro_batches: int) -> None:
    whole = recommender_job(TINY, batch=64).summary()
    split = recommender_job(TINY, batch=64, data=data, micro_batches=micro_batches).summary()
    assert split["matrix_flops"] == whole["matrix_flops"]
    matrices = [n * m for n, m in (*TINY.bottom_layers, *TINY.cross_matrices, *TINY.top_layers)]
    assert whole["matrix_flops"] == 64 * (6 * sum(matrices) - 2 * matrices[0])


@pytest.mark.parametrize(("phase", "exchanges"), [("training", 2), ("inference", 1)])
def test_samples_bring_their_rows_home_and_gradients_back(phase: str, exchanges: int) -> None:
    found = recommender_job(TINY, batch=64, data=4, phase=phase).summary()["communication"]
    rows = 64 * len(TINY.rows) * TINY.width * 2
    indices = 64 * sum(TINY.look_ups) * 8
    assert found["all_to_all:data"] == {
        "count": 4 * (exchanges + 1), "bytes": exchanges * rows + indices
    }  # fmt: skip
    sums = {"count": 4, "bytes": 4 * TINY.dense_parameters * 2}
    assert found.get("all_reduce:data") == (sums if phase == "training" else None)


def test_ranks_together_hold_all_tables_once_and_dense_layers_each() -> None:
    held = recommender_job(TINY, batch=64, data=4).summary()["memory"]
    weights = TINY.table_parameters + 4 * TINY.dense_parameters
    assert sum(rank["weights"] for rank in held) == 2 * weights


def test_a_job_is_valid_and_runs_to_its_end() -> None:
    made = recommender_job("dlrm-v2", data=8, batch=8192, micro_batches=2)
    workload = made.workload()
    assert [f for f in check_workload(workload) if f.rule.severity.name == "ERROR"] == []
    result = simulate(workload, Cluster.preset("small"), compute="h100")
    assert result.num_nodes == made.summary()["nodes"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tensor": 2}, "is split over data ranks only"),
        ({"phase": "decode"}, "has no KV cache for decode"),
        ({"data": 8}, "4 tables, each whole on one rank, do not fill 8 data ranks"),
        ({"data": 3}, "64 samples cannot be split evenly over 3"),
        ({"sequence": 3}, "has no setting 'sequence'"),
    ],
)
def test_plans_that_make_no_sense_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        recommender_job(TINY, **{"batch": 64, **settings})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"look_ups": (1,)}, "1 numbers of look-ups for 4 tables"),
        ({"bottom": (32,)}, "ends with width 32, rows have 16"),
        ({"rank": 0}, "must be whole and at least 1"),
    ],
)
def test_impossible_shapes_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        dataclasses.replace(TINY, **change)
