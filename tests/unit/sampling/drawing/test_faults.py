"""What is wrong with finished jobs, as the choice among candidates counts it."""

from dataclasses import replace

from costed_jobs import costed_job, costed_jobs
from raw_graphs import chain

from layerdag.datasets.schema import GraphSchema
from layerdag.graph import DAG
from layerdag.sampling.drawing import FaultCounter
from layerdag.sampling.drawing._faults import SILENT, USUAL

ONE, TWO = {"world_size": "1"}, {"world_size": "2"}


def schema(ranks: str) -> GraphSchema:
    jobs = [replace(job, conditions={"world_size": ranks}) for job in costed_jobs([8, 16] * 10)]
    return GraphSchema.fit("trace", jobs, num_bins=2)


SCHEMA = schema("2")
QUIET = {"op": "aten::mm", "type": "COMP", "collective": "none", "group": "none"}


def job(**last: str) -> DAG:
    """Return a job with other words of its last node, an all-reduce."""
    plain = costed_job(8)
    words = {k: [*column[:-1], last.get(k, column[-1])] for k, column in plain.categories.items()}
    return SCHEMA.encode(replace(plain, categories=words))


def test_a_contradiction_is_a_fault_and_silence_several() -> None:
    jobs = [job(), job(group="none"), job(group="none", op="aten::mm"), job(**QUIET)]
    faults = FaultCounter(SCHEMA, communicate=True).counts(jobs, [TWO], 4)
    # The quiet node has bytes and no FLOPs, which is filled in for real jobs, too.
    assert faults == [0, 1, 2, SILENT]


def test_each_graph_is_judged_by_its_own_number_of_ranks() -> None:
    counter = FaultCounter(SCHEMA, communicate=True)
    assert counter.counts([job(), job(**QUIET)] * 2, [ONE, TWO], 2) == [1, 0, 0, SILENT]
    assert counter.counts([job(), job()], [ONE, TWO]) == [1, 0]


def test_silence_is_no_fault_where_training_jobs_were_silent() -> None:
    assert FaultCounter(SCHEMA, communicate=False).counts([job(**QUIET)], [TWO]) == [0]


def test_collectives_of_one_rank_are_no_fault_where_no_training_job_had_more() -> None:
    alone = FaultCounter(schema("1"), communicate=True)
    assert alone.counts([job()], [ONE]) == [0]
    assert set(USUAL) < set(alone.usual)


def test_graphs_that_are_no_jobs_have_none() -> None:
    flow = GraphSchema.fit("flow", [chain("g", "ab", label=1.0)] * 2)
    counter = FaultCounter(flow, communicate=False)
    assert counter.counts([flow.encode(chain("g", "ab", label=1.0))], [{}]) == [0]
