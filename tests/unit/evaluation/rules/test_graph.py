from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from layerdag._runtime import RenamedWarning
from layerdag.evaluation.rules import GRAPH_RULES, check_structure
from layerdag.graph import DAG, GraphSizes, GraphStatistics, random_dag


@pytest.fixture
def good(rng: np.random.Generator) -> list[DAG]:
    return [random_dag(rng, [1, 3, 4, 2], [3, 2]) for _ in range(6)]


@pytest.fixture
def training(good: list[DAG]) -> GraphStatistics:
    return GraphStatistics.measure(good, GraphSizes(attributes=(3, 2)))


def _dag(edges: list[tuple[int, int]], codes: list[int]) -> DAG:
    edge_index_2E = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    x_NA = torch.tensor(codes, dtype=torch.int64).reshape(-1, 1)
    return DAG.build(x_NA.repeat(1, 2), edge_index_2E)


def test_real_layered_graphs_break_no_error_rule(
    good: list[DAG], training: GraphStatistics
) -> None:
    report = check_structure(good, training)
    assert report.validity == 1.0
    assert all(report.pass_rate[name] == 1.0 for name in GRAPH_RULES if name != "connected")
    assert sum(row.nodes for row in report.by_depth) == sum(dag.num_nodes for dag in good)
    assert all(row.consistent == row.seen == 1.0 for row in report.by_depth)


BROKEN = {
    "acyclic": _dag([(0, 1), (1, 2), (2, 1)], [0, 0, 0]),
    # Node 2 is listed after node 1 of layer 1 but has no parent: it is in layer 0.
    "layer-consistent": _dag([(0, 1), (2, 3)], [0, 0, 0, 0]),
    "no-double-edge": _dag([(0, 1), (0, 1)], [0, 0]),
    "attribute-range": _dag([(0, 1)], [0, 7]),
    "position-range": replace(_dag([(0, 1)], [0, 0]), u_NA=torch.tensor([[0.0, 0.0], [1.0, 0.0]])),
    "edge-range": _dag([(0, 1), (0, 5)], [0, 0]),
    "not-empty": _dag([], []),
    "arity-seen": _dag([(i, 20) for i in range(20)], [0] * 21),
    "connected": _dag([], [0, 0]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_rule_finds_its_broken_graph_and_only_that(
    name: str, good: list[DAG], training: GraphStatistics
) -> None:
    alone = check_structure([good[0], BROKEN[name]], training, names=["good", "bad"])
    found = [f for f in alone.findings if f.rule.id == name]
    assert [(f.where, f.count) for f in found] == [("bad", 1)]
    assert alone.pass_rate[name] == 0.5
    assert alone.valid_B[0]
    assert alone.valid_B[1] == (GRAPH_RULES[name].severity.value == "warning")


def test_a_kind_that_never_starts_a_graph_is_reported_where_it_does() -> None:
    training = GraphStatistics.measure([_dag([(0, 1)], [0, 1])], GraphSizes(attributes=(2, 2)))
    report = check_structure([_dag([(0, 1)], [1, 1])], training)
    assert [(f.rule.id, f.node) for f in report.findings] == [("source-seen", 0)]


def test_a_finding_names_the_first_node_and_counts_the_rest(training: GraphStatistics) -> None:
    report = check_structure([_dag([(0, 1), (1, 2)], [0, 9, 9])], training)
    finding = next(f for f in report.findings if f.rule.id == "attribute-range")
    assert (finding.node, finding.count) == (1, 2)
    assert "graph 0: node 1" in finding.sentence()
    assert "and 1 more" in finding.sentence()


def test_drift_shows_in_the_row_of_its_depth() -> None:
    chain = [(i, i + 1) for i in range(9)]
    drifting = _dag([*chain, (0, 10)], [0] * 11)  # node 10 is listed last but lies in layer 1
    report = check_structure([drifting], depth_rows=2)
    assert report.by_depth[0].consistent < 1
    assert report.by_depth[-1].consistent == 1


@pytest.mark.parametrize("with_training", [False, True])
def test_rules_on_training_limits_are_applied_with_statistics_only(
    with_training: bool, good: list[DAG], training: GraphStatistics
) -> None:
    report = check_structure(good, training if with_training else None)
    on_training = {"attribute-range", "arity-seen", "source-seen"}
    assert (on_training & report.pass_rate.keys() == on_training) == with_training
    assert all((row.seen is not None) == with_training for row in report.by_depth)


def test_graphs_without_nodes_alone_have_no_depth() -> None:
    report = check_structure([BROKEN["not-empty"]])
    assert report.by_depth == ()
    assert report.validity == 0.0
    assert {finding.rule.id for finding in report.findings} >= {"not-empty"}


def test_a_cyclic_graph_does_not_keep_the_others_from_being_checked(good: list[DAG]) -> None:
    report = check_structure([BROKEN["acyclic"], *good, BROKEN["layer-consistent"]])
    assert report.valid_B.tolist() == [False, *[True] * len(good), False]
    assert report.validity == pytest.approx(len(good) / (len(good) + 2))
    broken = {(f.rule.id, f.where) for f in report.findings if f.rule.severity.value == "error"}
    assert broken == {("acyclic", "graph 0"), ("layer-consistent", f"graph {len(good) + 1}")}
    # The nodes of a cyclic graph have no layer and count in no bin.
    assert sum(row.nodes for row in report.by_depth) == 4 + sum(dag.num_nodes for dag in good)


def test_depth_bins_follow_one_another_and_hold_every_node(rng: np.random.Generator) -> None:
    dags = [random_dag(rng, rng.integers(1, 4, 12).tolist(), [3, 2]) for _ in range(4)]
    rows = check_structure(dags, depth_rows=4).by_depth
    assert len(rows) == 4
    assert (rows[0].first_layer, rows[-1].last_layer) == (0, 11)
    for before, after in pairwise(rows):
        assert after.first_layer == before.last_layer + 1
    assert sum(row.nodes for row in rows) == sum(dag.num_nodes for dag in dags)


def test_pass_rates_are_read_and_written_under_their_old_name(good: list[DAG]) -> None:
    report = check_structure(good)
    with pytest.warns(RenamedWarning, match="'share' is now called 'pass_rate'"):
        assert report.share == report.pass_rate
    assert report.to_dict()["share"] == report.pass_rate
    assert list(report.to_dict()) == ["graphs", "share", "valid_B", "findings", "by_depth"]
