"""Jobs that are derived from programs."""

import numpy as np
import pytest
import torch

import layerdag as ld
from layerdag.errors import CaptureError, UsageError
from layerdag.programs.forward_program import Program
from layerdag.sampling.step_derivation import derive_drawn_job, derive_job
from layerdag.schema.plan_tables import PlanColumn, PlannedStep, PlanTables
from layerdag.simulator.compute import MeasuredCompute, PredictedCompute
from layerdag.traces.trace import NodeType


@pytest.fixture(scope="module")
def program() -> Program:
    """A program without a pair of products that tensor ranks could share."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Flatten(0))

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x).square().mean()

    return ld.program(Loss(), (torch.randn(4, 6),), name="small")


def column(setting: str, *values: int | str, strategy: str = "") -> PlanColumn:
    return PlanColumn("mlp", strategy, setting, values, (5,) * len(values))


def test_operators_of_a_derived_job_have_the_times_of_the_compute_model(program):
    compute = PredictedCompute(lambda trace, rows: np.full(len(rows), 7.25))
    job = derive_job(program, PlannedStep("mlp", "data", {"data": 4}), compute)
    bare = derive_job(program, PlannedStep("mlp", "data", {"data": 4}))
    for timed, untimed in zip(job.workload.traces, bare.workload.traces, strict=True):
        rows = np.flatnonzero(timed.type_N == NodeType.COMP)
        assert (MeasuredCompute().replayed_ns(timed, rows) == 7250).all()
        assert not untimed.integers("duration_ns")[1].any()
        for name in ("num_ops", "tensor_size", "comm_size"):  # all else is as before
            assert (timed.integers(name)[0] == untimed.integers(name)[0]).all()
        assert timed.names() == untimed.names()
    assert job.graph.conditions["strategy"] == "data"
    assert job.graph.conditions["world_size"] == "4"
    assert np.nanmax(job.graph.numbers["duration"]) == 7250


def test_a_plan_that_does_not_fit_is_drawn_again(program):
    plans = PlanTables((
        column("strategy", "tensor", "fsdp"),
        column("tensor", 2, strategy="tensor"), column("fsdp", 2, strategy="fsdp"),
    ))  # fmt: skip
    for seed in range(4):
        job = derive_drawn_job(program, "mlp", plans, seed)
        assert job.plan.settings == {"fsdp": 2}
    again = derive_drawn_job(program, "mlp", plans, 3)
    assert again.workload.traces[1].names() == job.workload.traces[1].names()


def test_if_no_plan_fits_the_reason_is_said(program):
    plans = PlanTables((column("strategy", "tensor"), column("tensor", 2, strategy="tensor")))
    with pytest.raises(UsageError, match="no pair of linear layers"):
        derive_drawn_job(program, "mlp", plans, 0)


def test_an_operator_that_fails_is_no_fault_of_the_plan_and_is_told(program, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("no kernel")

    plans = PlanTables((column("strategy", "fsdp"), column("fsdp", 2, strategy="fsdp")))
    monkeypatch.setattr(torch.Tensor, "backward", fail)
    with pytest.raises(
        CaptureError, match=r"^small: .* cannot be captured .* no kernel\. A capture"
    ):
        derive_drawn_job(program, "mlp", plans, 0)
