"""Counts of nodes by depth are those of all nodes at once, however graphs come."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from random_graphs import random_dag

import layerdag as ld
from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import UsageError
from layerdag.evaluation.validity import (
    GRAPH_RULES,
    DepthCounts,
    Proportion,
    StructureTally,
    check_structure,
    novelty,
    vun,
)
from layerdag.validation.rules import Severity


@pytest.fixture
def dags(rng: np.random.Generator) -> list[DAG]:
    return [random_dag(rng, rng.integers(1, 5, 1 + i % 6).tolist(), [3, 2]) for i in range(20)]


@pytest.mark.parametrize("at_once", [1, 3, 20])
def test_structure_is_the_same_however_graphs_come(dags, at_once):
    training = GraphStatistics.measure(dags[:3], GraphSizes(attributes=(3, 2)))
    tally = StructureTally(training)
    for first in range(0, len(dags), at_once):
        valid_B = tally.add(dags[first : first + at_once])
    found, known = tally.report(), check_structure(dags, training)
    assert found.findings == known.findings
    assert len(known.findings) > 0
    assert found.pass_rate == known.pass_rate
    assert [vars(row) for row in found.by_depth] == [vars(row) for row in known.by_depth]
    assert found.valid_B.tolist() == known.valid_B.tolist()
    assert found.valid_B[-len(valid_B) :].tolist() == valid_B.tolist()


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_bins_end_at_the_quantiles_of_the_nodes(dags, rows):
    layer_N = np.concatenate([dag.layer_N.numpy() for dag in dags])
    counts = DepthCounts(rows)
    counts.add(layer_N, {"layer-consistent": layer_N % 2 == 1})
    found = list(counts.rows())

    cuts = np.quantile(layer_N, np.linspace(0, 1, rows + 1)[1:], method="higher")
    assert [row.last_layer for row in found] == np.unique(cuts).tolist()
    for row in found:
        inside_N = layer_N[(layer_N >= row.first_layer) & (layer_N <= row.last_layer)]
        assert (row.nodes, row.consistent) == (inside_N.size, 1 - (inside_N % 2 == 1).mean())
        assert row.seen is None


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


def test_real_layered_graphs_break_no_error_rule(good, training):
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
def test_each_rule_finds_its_broken_graph_and_only_that(name, good, training):
    alone = check_structure([good[0], BROKEN[name]], training, names=["good", "bad"])
    found = [f for f in alone.findings if f.rule.id == name]
    assert [(f.where, f.count) for f in found] == [("bad", 1)]
    assert alone.pass_rate[name] == 0.5
    assert alone.valid_B[0]
    assert alone.valid_B[1] == (GRAPH_RULES[name].severity.value == "warning")


def test_a_kind_that_never_starts_a_graph_is_reported_where_it_does():
    training = GraphStatistics.measure([_dag([(0, 1)], [0, 1])], GraphSizes(attributes=(2, 2)))
    report = check_structure([_dag([(0, 1)], [1, 1])], training)
    assert [(f.rule.id, f.node) for f in report.findings] == [("source-seen", 0)]


def test_a_finding_names_the_first_node_and_counts_the_rest(training):
    report = check_structure([_dag([(0, 1), (1, 2)], [0, 9, 9])], training)
    finding = next(f for f in report.findings if f.rule.id == "attribute-range")
    assert (finding.node, finding.count) == (1, 2)
    assert "graph 0: node 1" in finding.sentence()
    assert "and 1 more" in finding.sentence()


def test_drift_shows_in_the_row_of_its_depth():
    chain = [(i, i + 1) for i in range(9)]
    drifting = _dag([*chain, (0, 10)], [0] * 11)  # node 10 is listed last but lies in layer 1
    report = check_structure([drifting], depth_rows=2)
    assert report.by_depth[0].consistent < 1
    assert report.by_depth[-1].consistent == 1


@pytest.mark.parametrize("with_training", [False, True])
def test_rules_on_training_limits_are_applied_with_statistics_only(with_training, good, training):
    report = check_structure(good, training if with_training else None)
    on_training = {"attribute-range", "arity-seen", "source-seen"}
    assert (on_training & report.pass_rate.keys() == on_training) == with_training
    assert all((row.seen is not None) == with_training for row in report.by_depth)


def test_graphs_without_nodes_alone_have_no_depth():
    report = check_structure([BROKEN["not-empty"]])
    assert report.by_depth == ()
    assert report.validity == 0.0
    assert {finding.rule.id for finding in report.findings} >= {"not-empty"}


def test_a_cyclic_graph_does_not_keep_the_others_from_being_checked(good):
    report = check_structure([BROKEN["acyclic"], *good, BROKEN["layer-consistent"]])
    assert report.valid_B.tolist() == [False, *[True] * len(good), False]
    assert report.validity == pytest.approx(len(good) / (len(good) + 2))
    broken = {(f.rule.id, f.where) for f in report.findings if f.rule.severity.value == "error"}
    assert broken == {("acyclic", "graph 0"), ("layer-consistent", f"graph {len(good) + 1}")}
    # The nodes of a cyclic graph have no layer and count in no bin.
    assert sum(row.nodes for row in report.by_depth) == 4 + sum(dag.num_nodes for dag in good)


def _random_graph(rng: np.random.Generator) -> DAG:
    """A graph that may be wrong in any way, more often in none."""
    nodes = int(rng.integers(0, 7))
    count = int(rng.integers(0, 8))
    source, target = rng.integers(0, max(nodes, 1), (2, count))
    if rng.random() < 0.7:
        source, target = np.minimum(source, target), np.maximum(source, target)
        keep = source != target
        source, target = source[keep], target[keep]
    edges = torch.from_numpy(np.stack([source, target]))
    if rng.random() < 0.2 and edges.shape[1]:
        edges[0, 0] = nodes + 2
    x_NA = torch.from_numpy(rng.integers(0, 3 + (rng.random() < 0.2), (nodes, 1)))
    u_NA = torch.from_numpy(rng.random((nodes, 1)).astype(np.float32))
    if rng.random() < 0.2 and nodes:
        u_NA[0] = float(rng.choice([-0.1, 1.0, np.nan]))
    plain = DAG.build(torch.zeros(nodes, 1, dtype=torch.int64), torch.zeros(2, 0).long())
    types = torch.zeros(edges.shape[1], dtype=torch.int64)
    return replace(plain, x_NA=x_NA, u_NA=u_NA, edge_index_2E=edges, edge_type_E=types)


def _broken_by_hand(dag: DAG) -> set[str]:
    """The rules that a graph breaks without training limits, by loops over nodes and edges."""
    nodes = range(dag.num_nodes)
    listed = list(zip(*dag.edge_index_2E.tolist(), strict=True))
    edges = [(a, b) for a, b in listed if a in nodes and b in nodes]
    broken = {"edge-range"} if len(edges) < len(listed) else set()
    if len(set(edges)) < len(edges):
        broken.add("no-double-edge")
    if not dag.num_nodes:
        broken.add("not-empty")
    if any(not 0 <= u < 1 for row in dag.u_NA.tolist() for u in row):
        broken.add("position-range")
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(nodes)
    if dag.num_nodes and nx.number_weakly_connected_components(graph) > 1:
        broken.add("connected")
    if not nx.is_directed_acyclic_graph(graph):
        return broken | {"acyclic"}
    layer = {n: i for i, level in enumerate(nx.topological_generations(graph)) for n in level}
    if any(layer[a] > layer[b] for a in nodes for b in range(a + 1, dag.num_nodes)):
        broken.add("layer-consistent")
    return broken


def test_findings_are_those_of_loops_over_nodes_and_edges(rng):
    dags = [_random_graph(rng) for _ in range(150)]
    report = check_structure(dags)
    wanted = [_broken_by_hand(dag) for dag in dags]
    found = [{f.rule.id for f in report.findings if f.where == f"graph {i}"} for i in range(150)]
    assert found == wanted
    errors = {name for name, rule in GRAPH_RULES.items() if rule.severity.value == "error"}
    assert report.valid_B.tolist() == [not broken & errors for broken in wanted]
    for name, share in report.pass_rate.items():
        assert share == pytest.approx(sum(name not in broken for broken in wanted) / 150)
    # Every rule is broken by some graph and kept by another.
    assert all(0 < share < 1 for share in report.pass_rate.values())


def test_limits_of_training_are_those_of_the_kind(training):
    """A kind may have as many parents as any node of it, and one more is too many."""
    most = [max(degree for degree, _ in pairs) for pairs in training.in_degrees]
    for kind, limit in enumerate(most):
        for parents in (limit, limit + 1):
            edges = [(i, parents) for i in range(parents)]
            sources = next(k for k, pairs in enumerate(training.in_degrees) if pairs[0][0] == 0)
            star = _dag(edges, [sources] * parents + [kind])
            star = replace(star, x_NA=star.x_NA.clamp(max=torch.tensor([9, 1])))
            found = {f.rule.id for f in check_structure([star], training).findings}
            assert ("arity-seen" in found) is (parents > limit)


def test_no_graph_at_all_is_refused():
    with pytest.raises(UsageError):
        check_structure([])


def test_every_rule_speaks_in_a_sentence_and_has_an_example_that_breaks_it():
    # A kind that never starts a graph has a test of its own.
    assert set(BROKEN) | {"source-seen"} == set(GRAPH_RULES)
    for rule in GRAPH_RULES.values():
        assert rule.what[0].isupper()
        assert rule.what.endswith(".")
        assert rule.remedy.endswith(".")


def test_what_training_graphs_may_lack_is_a_warning():
    warnings = {name for name, rule in GRAPH_RULES.items() if rule.severity is Severity.WARNING}
    assert warnings == {"arity-seen", "source-seen", "connected"}


def chain(*kinds: int) -> DAG:
    edges = torch.tensor([range(len(kinds) - 1), range(1, len(kinds))], dtype=torch.int64)
    return DAG.build(torch.tensor(kinds)[:, None], edges)


def test_counts_of_valid_unique_novel_and_all_three():
    samples = [chain(0, 1), chain(1, 1, 1), chain(1, 1, 1), chain(2, 2)]
    found = vun([chain(0, 1), chain(0, 0)], samples, held_out=[chain(0, 0), chain(3, 3)])
    counts = [found.valid.count, found.unique.count, found.novel.count, found.vun.count]
    assert counts == [4, 3, 3, 2]
    assert found.novel_real == Proportion(1, 2)
    assert found.to_dict()["vun"]["fraction"] == 0.5


def test_the_order_of_nodes_makes_no_graph_new():
    backward = DAG.build(torch.tensor([[1], [0]]), torch.tensor([[1], [0]]))
    assert novelty([chain(0, 1)], [backward]) == Proportion(0, 1)


def test_a_cycle_is_neither_valid_nor_unique_nor_novel():
    cycle = DAG.build(torch.tensor([[0], [0]]), torch.tensor([[0, 1], [1, 0]]))
    found = vun([chain(0, 1)], [cycle, chain(2, 2)])
    assert [found.valid.count, found.unique.count, found.novel.count, found.vun.count] == [1] * 4


def test_rules_of_the_user_and_rules_by_name():
    samples = [chain(0, 1), chain(0, 1, 2)]
    assert vun([chain(5, 5)], samples, ["acyclic", lambda dag: dag.num_nodes == 2]).vun.count == 1
    with pytest.raises(UsageError, match=r"no rule 'acylic'.*Did you mean 'acyclic'"):
        vun([chain(5, 5)], samples, ["acylic"])


def test_graphs_of_networkx_are_taken_where_a_data_set_says_what_codes_are():
    data = ld.load_dataset("latent_preferential", num_train=5, num_val=2, num_test=2)
    graphs = []
    for dag in data.graphs["train"]:
        words = data.schema.decode(dag).categories
        graph = nx.DiGraph()
        for node in range(dag.num_nodes):
            graph.add_node(node, **{name: column[node] for name, column in words.items()})
        graph.add_edges_from(dag.edge_index_2E.T.tolist())
        graphs.append(graph)
    assert vun(data, graphs).novel.count == 0
    graphs[0].nodes[0][data.schema.attributes[0].name] = "no such word"
    assert vun(data, graphs).valid.count == 4
    with pytest.raises(UsageError, match="Only a data set says"):
        vun([chain(0, 1)], graphs)


def test_an_interval_lies_between_0_and_1():
    low, high = Proportion(0, 20).interval.low, Proportion(20, 20).interval.high
    assert (low, high) == (0, 1)
    assert str(Proportion(1, 2)) == "50.0% [9%, 91%]"


def test_an_empty_set_and_an_unknown_attribute_are_refused():
    with pytest.raises(UsageError, match="one set is empty"):
        vun([chain(0, 1)], [])
    data = ld.load_dataset("latent_preferential", num_train=5, num_val=2, num_test=2)
    with pytest.raises(UsageError, match="There is no node attribute 'durtion'"):
        vun(data, list(data.graphs["test"]), without=["durtion"])
