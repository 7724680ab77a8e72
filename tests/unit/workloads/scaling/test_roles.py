"""What each axis of the corpus and of symbolic jobs is taken for."""

from typing import Any

import pytest
from symbolic_jobs import GPT, LLAMA, MIXTURE, small

from layerdag.codec import rank_classes
from layerdag.errors import TraceError
from layerdag.traces import Workload, embedded_corpus, read_index, read_runs
from layerdag.workloads.scaling._program import Program
from layerdag.workloads.scaling._roles import Job
from layerdag.workloads.symbolic import ModelShape

EXPECTED = {
    "ddp": "data", "fsdp2": "data", "tp": "tensor",
    "ep": "expert", "a2a": "expert", "pp": "pipeline",
}  # fmt: skip


def folded(workload: Workload) -> Job:
    """Return a job as classes on a mesh."""
    programs = [Program.of(part.trace, part.ranks) for part in rank_classes(workload)]
    return Job.of(programs, dict(workload.groups), workload.source)


def test_the_plan_of_runs_of_the_corpus_is_found() -> None:
    corpus = embedded_corpus()
    records = [r for r in read_index(corpus) if r.strategy in EXPECTED and r.family != "bert"][::16]
    for run in read_runs(corpus, records):
        assert folded(run.workload()).kinds == (EXPECTED[run.record.strategy],), run.record.run


@pytest.mark.parametrize(
    ("shape", "plan", "kinds"),
    [
        (GPT, {"data": 2}, ("data",)),
        (LLAMA, {"tensor": 2, "sequence_parallel": True}, ("sequence",)),
        (LLAMA, {"tensor": 2, "data": 2, "zero": 3}, ("tensor", "data")),
        (GPT, {"context": 2, "data": 2}, ("sequence", "data")),
        (GPT, {"tensor": 2, "pipeline": 2, "data": 2}, ("tensor", "data", "pipeline")),
        (GPT, {"pipeline": 2, "data": 2}, ("data", "pipeline")),
        (MIXTURE, {"data": 4, "expert": 2}, ("expert", "data")),
        (GPT, {"tensor": 2, "phase": "prefill"}, ("tensor",)),
        (GPT, {"tensor": 1}, ()),
    ],
)
def test_the_plan_of_symbolic_jobs_is_found(
    shape: ModelShape, plan: dict[str, Any], kinds: tuple[str, ...]
) -> None:
    assert folded(small(shape, **plan).workload()).kinds == kinds


def test_an_unknown_group_is_refused() -> None:
    workload = small(GPT, data=2).workload()
    with pytest.raises(TraceError, match="group"):
        folded(Workload(tuple(workload.traces), {}, "job"))
