"""Single jobs that a report shows."""

import dataclasses
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from random_jobs import random_job
from simulator_traces import all_reduce, comp, recv, workload

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.evaluation.metrics.base import AttributeView, MetricResult, SimilarityRow
from layerdag.evaluation.metrics.whole_programs import JOB_METRICS
from layerdag.evaluation.similarity import QualityReport
from layerdag.privacy.copies import Novelty
from layerdag.report import gather
from layerdag.report.content import ReportContent, SummaryRow
from layerdag.report.gather import (
    SimulatedWorkloads,
    attribute_shares,
    job_rows,
    simulate_stage,
    simulation_parts,
    structure_distributions,
    summary_rows,
    systems,
)
from layerdag.sampling.generated import GeneratedGraph
from layerdag.simulator.config import Topology
from layerdag.statistics import Interval
from layerdag.surrogates.scoring import SCORES
from layerdag.surrogates.targets import Labeled
from layerdag.surrogates.training_sets import REAL, SHUFFLED, SYNTHETIC
from layerdag.surrogates.tstr import Score, TransferReport, TransferRow


@pytest.fixture(scope="module")
def data() -> GraphDataset:
    jobs = [random_job(seed, 2, layers=4) for seed in range(8)]
    return GraphDataset.build("jobs", "trace", {"train": jobs[:5], "test": jobs[5:]}, num_bins=2)


def test_samples_stand_beside_real_jobs_with_their_operators(data):
    sample = data.graphs["test"][0]
    (pair,) = gather.neighbors_of(data, [sample])
    assert pair.compared == 8
    # The sample is one of the real jobs, which is found again.
    assert pair.distance == pytest.approx(0, abs=1e-6)
    assert (pair.sample.title, pair.real.title) == ("Sample", "Nearest real graph")
    assert pair.sample.label_N == pair.real.label_N


def test_a_real_job_and_a_sample_run_on_the_same_cluster(data):
    real, sample = gather.timelines_of(data, data.graphs["test"], data.graphs["train"])
    assert real.title.startswith("A real job")
    assert sample.title.startswith("A sample")
    for job in (real, sample):
        assert job.ranks == 2
        ends = [float(lane.end_ms_S.max()) for lane in job.lanes]
        assert max(ends) == pytest.approx(job.duration_ms)
        assert all((lane.start_ms_S <= lane.end_ms_S).all() for lane in job.lanes)
        assert all(len(lane.kind_S) == lane.start_ms_S.size for lane in job.lanes)


def test_lanes_tell_computation_from_communication(data):
    (job,) = gather.timelines_of(data, (), data.graphs["train"])
    names = {lane.name for lane in job.lanes}
    assert "rank 0 computes" in names
    for lane in job.lanes:
        alone = set(lane.kind_S) == {"communication"}
        assert alone is lane.name.endswith("communicates")


def test_a_sample_without_real_jobs_stands_alone(data):
    assert len(gather.timelines_of(data, (), data.graphs["train"])) == 1
    assert gather.timelines_of(data, data.graphs["test"], ()) == ()


def test_what_has_no_operators_is_not_drawn(data):
    kept = [a for a in data.schema.attributes if a.name != "op"]
    bare = data.replaced(schema=replace(data.schema, attributes=tuple(kept)))
    assert not gather.can_be_drawn(bare)
    assert gather.neighbors_of(bare, data.graphs["test"]) == ()
    assert gather.timelines_of(bare, data.graphs["test"], data.graphs["train"]) == ()


def test_times_are_milliseconds(data):
    (job,) = gather.timelines_of(data, (), data.graphs["train"][:1])
    lane = job.lanes[0]
    assert np.all(lane.end_ms_S <= job.duration_ms + 1e-9)
    assert job.duration_ms < 1e6


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::_foreach_add_", "optimizer"),
        ("aten::_fused_adam_", "optimizer"),
        ("aten::addmm", "matrix product"),
        ("aten::convolution_backward", "matrix product"),
        ("aten::_scaled_dot_product_attention", "matrix product"),
        ("aten::embedding", "data movement"),
        ("aten::copy_", "data movement"),
        ("aten::native_layer_norm", "reduction"),
        ("aten::_log_softmax", "reduction"),
        ("aten::relu", "element-wise"),
        ("mm.qkv.B.dx", "matrix product"),
        ("sum", "other"),  # without a namespace there is no name to go by
        ("mine::comm_patch", "other"),
    ],
)
def test_operators_are_colored_by_what_they_do(operator, kind):
    assert gather.kind_of(operator, "COMP") == kind


def test_whatever_communicates_is_communication():
    assert gather.kind_of("aten::addmm", "COMM_COLL") == "communication"


def test_vocabularies_name_every_code_of_every_attribute(data):
    found = gather.vocabularies(data)
    assert [len(words) for words in found] == [a.num_codes for a in data.schema.attributes]
    names = [a.name for a in data.schema.attributes]
    assert "COMM_COLL" in found[names.index("type")]
    # Numbers in bins have no words: their codes stand for themselves.
    assert found[names.index("duration")][:2] == ("0", "1")


def test_pictures_carry_operator_and_kind_of_each_node(data):
    dag = data.graphs["test"][0]
    picture = gather.picture_of(data, dag, "a job")
    graph = data.schema.decode(dag)
    assert picture.title == "a job"
    assert list(picture.label_N) == graph.categories["op"]
    assert [kind == "communication" for kind in picture.class_N] == [
        word != "COMP" for word in graph.categories["type"]
    ]


def test_samples_become_workloads_and_repairs_are_added_up(data):
    dags = data.graphs["test"]
    samples = [
        GeneratedGraph(f"sample-{i}", i, dag, False, data.schema) for i, dag in enumerate(dags)
    ]
    found = gather.decoded_jobs(sample.graph for sample in samples)
    assert [job.source for job in found.workloads] == ["sample-0", "sample-1", "sample-2"]
    alone = [gather.decoded_jobs([sample.graph]) for sample in samples]
    assert found.repairs == sum((Counter(one.repairs) for one in alone), Counter())
    assert found.completions == sum((Counter(one.completions) for one in alone), Counter())
    assert found.completions.keys() <= {"communication_order_added", "start_without_time"}


NODES = [comp(0, 100), all_reduce(1, 2**20, (0,))]
FINE = workload(NODES, NODES)
ALONE = workload([comp(0, 7)])
STUCK = workload([recv(0, 1, 8)], [comp(0, 1)])


def expected_ns(topology: Topology, gigabytes: float, latency_ns: float) -> int:
    """Return 100 us of compute, and a ring of two ranks with half the bytes in each message."""
    hops = 2 if topology is Topology.SWITCH else 1
    message = int(hops * latency_ns + 2**19 / (gigabytes * 2**30 / 1e9))
    return 100_000 + 30 + 2 * message


def test_every_system_runs_every_job_and_failures_are_told():
    found = simulate_stage([FINE, STUCK, ALONE], "simulating")
    assert found.makespan_ns.shape == (len(systems()), 2)
    assert found.makespan_ns[:, 0].tolist() == [
        expected_ns(*system) for system in systems().values()
    ]
    assert found.makespan_ns[:, 1].tolist() == [7000] * 4
    assert found.num_ranks.tolist() == [2, 1]
    [told] = found.failed
    assert "waits for rank 1" in told
    shares = 1 - 100_000 / found.makespan_ns[:, 0]
    np.testing.assert_allclose(found.exposed_fraction[:, 0], shares)
    assert found.exposed_fraction[:, 1].tolist() == [0.0] * 4


def test_times_are_geometric_means_over_jobs_of_several_ranks():
    real = SimulatedWorkloads(
        np.array([[1e6, 4e6, 1e9]] * 4), np.zeros((4, 3)), np.array([2, 4, 1]), ()
    )
    made = SimulatedWorkloads(np.array([[2e6, 3e6]] * 4), np.ones((4, 2)), np.array([2, 1]), ())
    drawn, times = simulation_parts(real, made)
    assert times is not None
    assert times.real == pytest.approx((2.0,) * 4)
    assert times.synthetic == pytest.approx((2.0,) * 4)
    makespan, share = drawn
    assert makespan.title.endswith(next(iter(systems())))
    assert [sample.values.tolist() for sample in makespan.samples] == [[1, 4, 1000], [2, 3]]
    assert [sample.values.tolist() for sample in share.samples] == [[0, 0, 0], [1, 1]]
    assert makespan.log
    assert not share.log


def test_without_parallel_jobs_on_both_sides_there_are_no_times():
    parallel, single = simulate_stage([FINE], "a"), simulate_stage([ALONE], "b")
    drawn, times = simulation_parts(parallel, single)
    assert (len(drawn), times) == (2, None)


def test_where_one_side_did_not_run_nothing_is_drawn():
    assert simulation_parts(simulate_stage([FINE], "a"), simulate_stage([STUCK], "b")) == ((), None)


def test_surrogates_see_no_duration(data, monkeypatch):
    seen: list[Labeled] = []
    nothing = TransferReport((), (), 0, ())

    def called(*parts: object, **_: object) -> TransferReport:
        seen.extend(parts[:3])
        return nothing

    monkeypatch.setattr(gather, "evaluate_tstr", called)
    labeled = {
        split: tuple(_with_label(dag, float(i)) for i, dag in enumerate(dags))
        for split, dags in data.graphs.items()
    }
    with_labels = GraphDataset.of_splits("jobs", data.schema, labeled, data.names)
    samples = [GeneratedGraph("s", 0, _with_label(data.graphs["test"][0], 7.0), False, data.schema)]
    gather.transferred(with_labels, samples)
    column = [a.name for a in data.schema.attributes].index("duration")
    real, synthetic, test = seen
    assert [part.target_B.tolist() for part in seen] == [[0, 1, 2, 3, 4], [7], [0, 1, 2]]
    for part in (real, synthetic, test):
        assert all((dag.x_NA[:, column] == 0).all() for dag in part.dags)
    # Only that column is hidden, and the data set itself keeps it.
    assert (data.graphs["train"][0].x_NA[:, column] != 0).any()
    kept = [i for i in range(len(data.schema.attributes)) if i != column]
    assert (real.dags[0].x_NA[:, kept] == data.graphs["train"][0].x_NA[:, kept]).all()


def _with_label(dag: DAG, label: float) -> DAG:
    return dataclasses.replace(dag, conditions={**dag.conditions, "label": label})


OP = (AttributeView("op"), AttributeView("size", ordered=True))


def chain(*codes: int) -> DAG:
    steps = torch.arange(len(codes) - 1)
    x_NA = torch.tensor([[code, 0] for code in codes])
    return DAG.build(x_NA, torch.stack([steps, steps + 1]))


TRAIN, TEST, SYNTHETIC_ = [chain(0, 0, 1)], [chain(0, 1)], [chain(1, 1), chain(1, 2)]


def test_shares_are_of_all_nodes_and_unknown_codes_are_numbered():
    (shares,) = attribute_shares(TRAIN, TEST, SYNTHETIC_, OP, [["add", "mul"], []])
    assert shares.title == "op"  # the ordered attribute has distributions instead
    assert shares.labels == ("add", "mul", "code 2")
    assert [source for source, _ in shares.shares] == ["real train", "real test", "synthetic"]
    values = [share.tolist() for _, share in shares.shares]
    assert values == [pytest.approx([2 / 3, 1 / 3, 0]), [0.5, 0.5, 0], [0, 0.75, 0.25]]


def test_distributions_count_graphs_or_nodes_by_value():
    found = {one.title: one for one in structure_distributions(TRAIN, TEST, SYNTHETIC_, OP)}
    assert len(found) == 8
    sizes = next(one for title, one in found.items() if "nodes" in title and one.log)
    train, test, synthetic = sizes.samples
    assert (train.source, test.source, synthetic.source) == ("real train", "real test", "synthetic")

    def held(sample) -> dict[float, float]:
        weights = sample.weights / sample.weights.sum()
        pairs = zip(sample.values.tolist(), weights.tolist(), strict=True)
        return {value: weight for value, weight in pairs if weight}

    assert [held(sample) for sample in sizes.samples] == [{3: 1}, {2: 1}, {2: 1}]
    assert sum(one.log for one in found.values()) == 2  # nodes and edges


def rows_of(content: ReportContent, **changes: object) -> dict[str, SummaryRow]:
    given = {
        "structure": content.structure,
        "real_structure": content.real_structure,
        "novelty": content.novelty,
        "similarity": content.similarity,
        "transfer": content.transfer,
    }
    return {row.what: row for row in summary_rows(**(given | changes))}


def test_shares_of_graphs_stand_as_percentages_beside_those_of_real_ones(content):
    novel = Novelty(10, valid=1.0, unique=0.9, novel=0.8, vun=0.725, copied=0.2, copied_real=None)
    rows = rows_of(content, novelty=novel)
    assert rows["valid, unique and novel"] == SummaryRow(
        "valid, unique and novel",
        "72.5% [42%, 91%]",
        "",
        "20.0% copies; among real held-out graphs —",
    )
    assert rows["valid graphs"].synthetic == "100%"


def test_distances_have_their_ratio_and_the_one_at_equal_count(content):
    report = content.similarity
    rows = rows_of(content)
    nodes = report["nodes"]
    row = rows[f"W1 of {nodes.metric.description}"]
    assert float(row.synthetic.replace(",", "")) == pytest.approx(nodes.generated.value, rel=6e-3)
    assert float(row.real.replace(",", "")) == pytest.approx(nodes.reference.value, rel=6e-3)
    ratios = [r.ratio for r in report.rows if r.is_distance and r.ratio is not None]
    assert float(rows["median ratio"].synthetic) == pytest.approx(np.median(ratios), rel=0.06)
    assert rows["median ratio"].note.startswith(f"over {len(ratios)} metrics; largest ")


def test_without_any_distance_at_equal_count_its_median_is_missing(content):
    rows = tuple(
        replace(row, matched=0.0) if row.is_distance else row for row in content.similarity.rows
    )
    found = rows_of(content, similarity=replace(content.similarity, rows=rows))
    assert found["median ratio"].note.endswith("median at equal count —")


def test_without_any_ratio_there_is_no_median(content):
    rows = tuple(replace(row, ratio=None) for row in content.similarity.rows)
    assert "median ratio" not in rows_of(content, similarity=replace(content.similarity, rows=rows))


def taught(family: str, condition: str, value: float) -> TransferRow:
    score = Score(value, Interval(value, value), (value,))
    return TransferRow(family, condition, 20, {metric.name: score for metric in SCORES})


def test_a_surrogate_has_lines_only_where_both_real_and_synthetic_graphs_taught_it(content):
    both = [taught("boosting", REAL, 0.9), taught("boosting", SYNTHETIC, 0.8)]
    one = [taught("message passing", REAL, 0.5)]
    report = TransferReport((*both, *one), (), tested_on=12, seeds=(0,))
    rows = rows_of(content, transfer=report)
    assert rows["surrogate's Pearson (boosting)"] == SummaryRow(
        "surrogate's Pearson (boosting)", "0.800", "0.900", "tested on 12 real graphs"
    )
    assert rows["surrogate's Spearman (boosting)"].note == ""
    assert not any("message passing" in what for what in rows)
    floor = TransferReport((*both, taught("boosting", SHUFFLED, 0.125)), (), 12, (0,))
    note = rows_of(content, transfer=floor)["surrogate's Pearson (boosting)"].note
    assert note == "tested on 12 real graphs; with shuffled targets 0.12"
    assert not any("surrogate" in what for what in rows_of(content, transfer=None))


def _report(*rows: SimilarityRow) -> QualityReport:
    return QualityReport(rows, train=3, test=4, generated=2, seed=0, replicates=5)


def test_jobs_that_keep_rules_are_counted_beside_real_ones():
    rules, counts, _ = JOB_METRICS
    kept = SimilarityRow(
        MetricResult(rules, 0.5, breakdown={"kept": 1.0, "jobs": 2.0}),
        MetricResult(rules, 1.0, breakdown={"kept": 4.0, "jobs": 4.0}),
        None,
        None,
    )
    areas = SimilarityRow(
        MetricResult(counts, 0.8, Interval(0.7, 0.9)), MetricResult(counts, 0.5), None, None
    )
    first, second = job_rows(_report(kept, areas))
    assert (first.synthetic, first.real) == ("1 of 2", "4 of 4")
    assert second.synthetic.startswith("0.80 [0.7")
    assert second.real == "0.50"


def test_without_judged_jobs_there_are_no_such_rows():
    assert list(job_rows(_report(SimilarityRow.failed(JOB_METRICS[0], "no job")))) == []
    assert list(job_rows(_report())) == []
