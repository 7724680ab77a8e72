"""Jobs judged by the rules of whole steps, and told apart by trees."""

from dataclasses import replace

import numpy as np
import pytest
from changed_steps import on_all_ranks, renamed, rows_of, with_number
from small_programs import language

import layerdag as ld
from layerdag.datasets.conversion import attributed_graph
from layerdag.errors import DataError
from layerdag.evaluation.metrics.whole_programs import (
    MIN_JOBS,
    job_auroc,
    job_features,
    jobs_beside,
    judge_jobs,
    structures,
)
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.traces.trace import Workload


@pytest.fixture(scope="module")
def step() -> Workload:
    return ld.capture_model(*language()).workload()


@pytest.fixture(scope="module")
def faulty(step: Workload) -> Workload:
    trace = step.traces[0]
    row = rows_of(trace, "aten::mm")[0]
    return on_all_ranks(step, with_number(trace, row, "num_ops", 2 * 7919))


def data_of(step: Workload, faulty: Workload) -> ld.GraphDataset:
    """Return a data set of sound jobs, of which one test job is faulty."""
    graphs = [replace(faulty if at == 9 else step, source=f"job {at}") for at in range(10)]
    split = {"train": range(6), "val": [], "test": range(6, 10)}
    return ld.GraphDataset(graphs, split=split)


def test_jobs_are_judged_by_exact_numbers(step, faulty):
    found = judge_jobs([step, faulty, attributed_graph(step)])
    assert found.kept_B.tolist() == [True, False, True]
    assert found.shares()["product-shapes"] == pytest.approx(2 / 3)
    assert found.shares()["training-loss"] == 1
    rules = found.rule_features_BF()
    assert rules.shape[0] == 3
    assert ((rules == -1) | ((rules >= 0) & (rules <= 1))).all()
    assert rules[0].tolist() == rules[2].tolist() != rules[1].tolist()


def test_what_is_no_job_is_left_out(step):
    found = judge_jobs([step, "nowhere/at.all"])
    assert len(found.verdicts) == 1
    assert "nowhere" in found.left_out[0]


def test_of_many_jobs_some_are_drawn(step, monkeypatch):
    monkeypatch.setattr("layerdag.evaluation.metrics.whole_programs.MAX_JOBS", 4)
    assert len(judge_jobs([step] * 5).verdicts) == 4


def test_features_count_what_is_used_by_nothing(step):
    graph = attributed_graph(step)
    features = job_features(graph)
    assert np.isfinite(features).all()
    assert features[0] == pytest.approx(np.log(graph.num_nodes))
    ends = np.setdiff1d(np.arange(graph.num_nodes), graph.edge_index_2E[0])
    assert features[5] == pytest.approx(ends.size / graph.num_nodes)


def test_steps_of_other_frameworks_and_codes_alone_are_not_judged(step):
    job = attributed_graph(step)
    assert jobs_beside([job], [job], [step]) is not None
    assert jobs_beside([job], [job], []) is None
    dag = ld.GraphDataset([job, job]).train[0]
    assert jobs_beside([job], [job], [dag]) is None
    words = ["mm.up.0"] * job.num_nodes
    foreign = replace(job, categories={**job.categories, "op": words})
    assert jobs_beside([job], [foreign], [step]) is None
    flow = AttributedGraph(
        "flow", {"x": ["a"]}, {}, np.zeros((2, 0), dtype=int), np.zeros(0, dtype=int), ("data",), {}
    )
    assert jobs_beside([flow], [flow], [flow]) is None


def test_trees_tell_other_jobs_and_no_equal_ones_apart():
    rng = np.random.default_rng(0)
    real, equal, own = rng.normal(size=(60, 5)), rng.normal(size=(40, 5)), np.arange(100)
    alike = job_auroc(equal, real, own, seed=0, replicates=50)
    apart = job_auroc(equal + 3, real, own, seed=0, replicates=50)
    assert alike.shape == (51,)
    assert abs(alike[0] - 0.5) < 3 * alike[1:].std()
    assert apart[0] > 0.95
    assert job_auroc(equal, real, own, seed=0, replicates=5)[0] == alike[0]


def test_a_job_is_not_recognized_by_its_twin():
    """Both sets have sixty structures of the same law, each three times."""
    rng = np.random.default_rng(0)
    other, real = (np.repeat(rng.normal(size=(60, 5)), 3, axis=0) for _ in range(2))
    twins = job_auroc(other, real, np.arange(360), seed=0, replicates=20)
    whole = job_auroc(other, real, np.repeat(np.arange(120), 3), seed=0, replicates=20)
    assert twins[0] > 0.95
    assert abs(whole[0] - 0.5) < 3 * whole[1:].std() < 0.3


def test_jobs_of_other_sizes_have_one_structure(step, faulty):
    graphs = [attributed_graph(job) for job in (step, faulty)]
    larger = replace(graphs[0], numbers={k: 2 * v for k, v in graphs[0].numbers.items()})
    few = [graphs[0], larger]
    assert structures(few).tolist() == [0, 1]
    others = [
        replace(
            graphs[0],
            edge_index_2E=edges_2E,
            edge_type_E=graphs[0].edge_type_E[: edges_2E.shape[1]],
        )
        for edges_2E in (graphs[0].edge_index_2E[:, :n] for n in range(MIN_JOBS))
    ]
    assert structures([*others, *few])[-2:].tolist() == [MIN_JOBS, MIN_JOBS]


def test_few_jobs_tell_nothing():
    few = np.zeros((MIN_JOBS - 1, 3))
    with pytest.raises(DataError, match=f"at least {MIN_JOBS} jobs"):
        job_auroc(few, np.zeros((MIN_JOBS, 3)), np.arange(2 * MIN_JOBS - 1), seed=0, replicates=5)


def test_compare_counts_the_jobs_that_keep_all_rules(step, faulty):
    data = data_of(step, faulty)
    report = ld.compare(data, [step, faulty, faulty], replicates=5)
    row = report["whole_program_rules"]
    assert row.generated.value == pytest.approx(1 / 3)
    assert row.reference.value == pytest.approx(3 / 4)
    counts = row.generated.breakdown
    assert (counts["kept"], counts["jobs"]) == (1, 3)
    assert row.generated.interval is not None
    assert row.generated.interval.low < 1 / 3 < row.generated.interval.high
    assert counts["product-shapes"] == pytest.approx(1 / 3)
    classifier = report["job_classifier:rules"]
    assert "at least 20 jobs" in classifier.generated.error


def test_codes_alone_have_no_such_row(step, faulty):
    data = data_of(step, faulty)
    report = ld.compare(data, list(data.train), replicates=5)
    assert "whole_program_rules" not in [row.metric.name for row in report.rows]


def test_a_job_to_which_no_rule_applies_keeps_none(step):
    trace = step.traces[0]
    for row in range(trace.num_nodes):
        trace = renamed(trace, row, f"layer.{row}")
    found = judge_jobs([step, on_all_ranks(step, trace)])
    assert found.verdicts[1] == {}
    assert found.kept_B.tolist() == [True, False]
