"""Jobs with other numbers of layers: equal to what the symbolic generator makes; refusals."""

from dataclasses import replace
from typing import Any

import pytest
from same_jobs import assert_same, operators
from symbolic_jobs import GPT, LLAMA, MIXTURE, small

from layerdag.errors import TraceError, UsageError
from layerdag.simulator import Cluster, simulate
from layerdag.traces import Workload, read_index, read_runs
from layerdag.traces.analysis import match_communication
from layerdag.workloads.scaling import scale
from layerdag.workloads.scaling._blocks import number_steps, renumbered
from layerdag.workloads.symbolic import ModelShape


def made(shape: ModelShape, layers: int, **plan: Any) -> Workload:
    """Return a job of a model of so many layers."""
    return small(replace(shape, layers=layers), **plan).workload()


PLANS: list[tuple[ModelShape, dict[str, Any]]] = [
    (GPT, {"data": 2}),
    (LLAMA, {"data": 2, "zero": 3}),
    (MIXTURE, {"data": 2, "zero": 1}),
    (LLAMA, {"data": 2, "tensor": 2}),
    (GPT, {"data": 2, "recompute": "full"}),
    (GPT, {"tensor": 2, "phase": "prefill"}),
]


@pytest.mark.parametrize(("shape", "plan"), PLANS)
def test_more_layers_are_what_the_symbolic_generator_makes(
    shape: ModelShape, plan: dict[str, Any]
) -> None:
    assert_same(scale(made(shape, 2, **plan), layers=8).workload, made(shape, 8, **plan), 2)


def test_stages_of_a_pipeline_share_the_layers() -> None:
    plan: dict[str, Any] = {"data": 2, "pipeline": 2, "micro_batches": 2}
    grown = scale(made(LLAMA, 6, **plan), layers=9, layers_now=6).workload
    assert_same(grown, made(LLAMA, 9, **plan))
    assert match_communication(grown).mismatches == ()


def test_layers_and_ranks_change_together() -> None:
    grown = scale(made(LLAMA, 2, data=2, zero=3), layers=5, data=8)
    assert_same(grown.workload, made(LLAMA, 5, data=8, batch=32, zero=3))
    assert (grown.found["layers"]["before"], grown.found["layers"]["after"]) == (2, 5)
    assert simulate(grown.workload, Cluster.preset("small"), compute="h100").makespan_ns > 0


def test_fewer_layers_are_left() -> None:
    assert_same(scale(made(GPT, 6, data=2), layers=3).workload, made(GPT, 3, data=2))


def test_measured_jobs_get_the_layers_of_their_twins() -> None:
    names = ["0798_gpt_tp_ws2.deep6", "0719_mlp_fsdp2_ws2.deep8"]
    twins = {r.run: r for r in read_index("data/twins") if r.run in names}
    sources = [r for r in read_index("data") if r.run in {name.split(".")[0] for name in names}]
    of_run = {run.record.run: run.workload() for run in read_runs("data", sources)}
    for run in read_runs("data/twins", twins.values()):
        depth = int(run.record.hyper["depth"])
        grown = scale(of_run[run.record.run.split(".")[0]], layers=depth).workload
        assert operators(grown.traces[0]) == operators(run.traces[0]), run.record.run
        assert simulate(grown, Cluster.preset("small")).makespan_ns > 0


def test_a_job_of_one_layer_is_refused() -> None:
    with pytest.raises(UsageError, match="A job of one layer does not tell"):
        scale(made(GPT, 1, data=2), layers=4)
    with pytest.raises(UsageError, match="no blocks of operators repeat 7 times"):
        scale(made(GPT, 2, data=2), layers=4, layers_now=7)


def test_fewer_layers_than_stages_are_refused() -> None:
    with pytest.raises(UsageError, match="1 layers do not fill 2 pipeline stages"):
        scale(made(LLAMA, 6, data=2, pipeline=2), layers=1)


def test_an_optimizer_on_weights_of_unknown_share_is_refused() -> None:
    """Without gradient sums nothing tells how many weights a layer has."""
    with pytest.raises(TraceError, match=r"\(adam\) works on all layers at once"):
        scale(made(GPT, 2), layers=4)


def test_a_sum_over_norms_of_all_layers_is_refused() -> None:
    """Its size does not tell how much of it each layer has."""
    with pytest.raises(TraceError, match=r"\(gradients.norms\) works on all layers at once"):
        scale(made(GPT, 2, data=2, tensor=2, sequence_parallel=True), layers=4)


def test_micro_batches_are_not_taken_for_layers() -> None:
    plan: dict[str, Any] = {"data": 2, "pipeline": 2, "micro_batches": 4, "schedule": "gpipe"}
    with pytest.raises(UsageError, match="Say with --layers-now"):
        scale(made(LLAMA, 4, **plan), layers=8)
    assert_same(
        scale(made(LLAMA, 4, **plan), layers=8, layers_now=4).workload, made(LLAMA, 8, **plan)
    )


def test_numbers_in_names_go_on() -> None:
    assert number_steps(["a.0.B1", "a.1.B1", "a.2.B1"]) == [(0, 1), (1, 0)]
    assert number_steps(["a.0", "b.1"]) == []
    assert number_steps(["a.0", "a.1", "a.5"]) == []
    assert renumbered("a.0.B1", [7, 1]) == "a.7.B1"
