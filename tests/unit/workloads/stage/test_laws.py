"""What must hold whatever the plan: work is shared, not made; figures are those of the traces."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from layerdag.traces import NodeType, Workload
from layerdag.workloads.stage import StageFlags, StageJob
from layerdag.workloads.stage._figures import StageFigures
from layerdag.workloads.stage._job import group_numbers, groups

SMALL = StageFlags(
    model_type="gpt", num_stacks=4, batch=8, seq=32, dmodel=64, dff=128, head=8, kvhead=4, dvocal=64
)
GATED = replace(SMALL, model_type="llama", mixed_precision=True)
MIXTURE = replace(SMALL, model_type="moe", experts=4)


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


@pytest.mark.parametrize("model", [SMALL, GATED, MIXTURE])
@pytest.mark.parametrize("degree", ["dp", "tp", "sp", "pp"])
def test_matrix_products_are_shared_by_all_ranks(model: StageFlags, degree: str) -> None:
    assert _operations(replace(model, **{degree: 4}))["M"] == _operations(model)["M"]


def test_all_degrees_together_share_matrix_products() -> None:
    plan = replace(GATED, dp=2, tp=2, sp=2, pp=4, micro_batch=4, weight_sharded=True)
    assert _operations(plan)["M"] == _operations(GATED)["M"]


@pytest.mark.parametrize("model", [SMALL, GATED, MIXTURE])
def test_stages_have_the_operators_of_the_model(model: StageFlags) -> None:
    whole, cut = model, replace(model, pp=4)
    assert _count(cut, "comp_by_op_type") == _count(whole, "comp_by_op_type")
    assert _operations(cut) == _operations(whole)


@pytest.mark.parametrize("model", [SMALL, GATED, MIXTURE])
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
    return StageFigures.of(workload.traces[rank]).of_rank(names, list(range(workload.num_ranks)))


@pytest.mark.parametrize(
    "flags",
    [
        replace(SMALL, dp=3, tp=2, pp=4, micro_batch=4),
        replace(MIXTURE, dp=2, sp=2, ep=2, pp=2, weight_sharded=True),
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
    flags = replace(MIXTURE, dp=2, tp=2, sp=2, ep=2, pp=2)
    workload = StageJob(flags).workload()
    for rank in (0, 7, 13, 31):
        trace = workload.traces[rank]
        text_N, _ = trace.texts("pg_name")
        used = {text_N[row] for row in (trace.type_N == NodeType.COMM_COLL).nonzero()[0].tolist()}
        assert len(used) == 4  # one of each degree
        assert all(rank in workload.groups[name] for name in used)


def test_each_rank_is_in_one_group_of_each_degree() -> None:
    flags = replace(MIXTURE, dp=3, tp=2, sp=2, ep=4, pp=2)
    numbers = group_numbers(flags)
    first = 1
    for degree, rank_GM in groups(flags).items():
        assert sorted(rank_GM.reshape(-1).tolist()) == list(range(flags.ranks))
        assert rank_GM.shape[1] == flags.degrees[degree]
        for group, ranks in enumerate(rank_GM):
            assert set(numbers[degree][ranks].tolist()) == {first + group}
        first += len(rank_GM)
