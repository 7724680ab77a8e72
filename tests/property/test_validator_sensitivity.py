"""The validator judged: a worse generator must look worse, in the figure that is made for it."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from leak_figures import closer_to_training
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.evaluation.metrics.base import AttributeView
from layerdag.evaluation.metrics.descriptor_metrics import DESCRIPTORS
from layerdag.evaluation.metrics.kernels import KERNEL_METRICS
from layerdag.evaluation.metrics.neighborhoods import NEIGHBORHOOD_METRICS
from layerdag.evaluation.similarity import compare
from layerdag.privacy.copies import novelty

ATTRIBUTES = (AttributeView("op"), AttributeView("size", ordered=True))
COUNT = 80


def _real(rng: np.random.Generator) -> DAG:
    """Graphs whose second attribute follows the first, and the first the layer."""
    dag = random_dag(rng, rng.integers(1, 5, rng.integers(6, 11)).tolist(), [2, 2], extra_edges=0.5)
    layer_N = dag.layers().numpy()
    op_N = (layer_N + rng.integers(0, 2, layer_N.size)) % 4
    size_N = np.clip(op_N + rng.integers(0, 2, layer_N.size), 0, 4)
    x_NA = torch.from_numpy(np.stack([op_N, size_N], axis=1).astype(np.int64))
    return DAG.build(x_NA, dag.edge_index_2E)


def _shuffled_attribute(rng: np.random.Generator, dag: DAG) -> DAG:
    x_NA = dag.x_NA.clone()
    x_NA[:, 1] = x_NA[torch.from_numpy(rng.permutation(dag.num_nodes)), 1]
    return DAG.build(x_NA, dag.edge_index_2E)


def _moved_attributes(rng: np.random.Generator, dag: DAG) -> DAG:
    order = torch.from_numpy(rng.permutation(dag.num_nodes))
    return DAG.build(dag.x_NA[order], dag.edge_index_2E)


def _cut_short(rng: np.random.Generator, dag: DAG) -> DAG:
    del rng
    keep = int((dag.layers() < 5).sum())
    inside_E = (dag.edge_index_2E < keep).all(dim=0)
    return DAG.build(dag.x_NA[:keep], dag.edge_index_2E[:, inside_E])


def _without_extra_edges(rng: np.random.Generator, dag: DAG) -> DAG:
    del rng
    layer_N = dag.layers()
    source_E, target_E = dag.edge_index_2E
    direct_E = layer_N[target_E] - layer_N[source_E] == 1
    return DAG.build(dag.x_NA, dag.edge_index_2E[:, direct_E])


Harm = Callable[[np.random.Generator, DAG], DAG]
HARMS: dict[str, tuple[Harm, tuple[str, ...]]] = {
    "attributes of a node no longer fit together": (_shuffled_attribute, ("attribute_pairs",)),
    "operators stand at the wrong depth": (_moved_attributes, ("edge_bigrams",)),
    "graphs end too early": (_cut_short, ("layers", "nodes", "mmd:sizes", "mmd:embedding")),
    "long edges are missing": (_without_extra_edges, ("edge_span", "in_degree")),
}


@pytest.mark.parametrize("name", HARMS)
def test_the_more_graphs_are_harmed_the_larger_the_figure(name):
    harm, metrics = HARMS[name]
    rng = np.random.default_rng(5)
    train, test, drawn = ([_real(rng) for _ in range(COUNT)] for _ in range(3))
    reports = []
    computed = (*DESCRIPTORS, *KERNEL_METRICS)
    for share in (0.0, 0.5, 1.0):
        harmed = int(share * COUNT)
        generated = [harm(rng, dag) for dag in drawn[:harmed]] + drawn[harmed:]
        report = compare(train, test, generated, ATTRIBUTES, metrics=computed, replicates=50)
        reports.append(report)
    for metric in metrics:
        figures = [report[metric].generated.value for report in reports]
        assert figures[0] < figures[1] < figures[2], (metric, figures)
        worst = reports[-1][metric]
        assert worst.ratio_interval is not None
        assert worst.ratio_interval.low > 1, metric


def test_a_fair_generator_is_not_told_from_real_graphs():
    rng = np.random.default_rng(6)
    train, test, drawn = ([_real(rng) for _ in range(COUNT)] for _ in range(3))
    report = compare(train, test, drawn, ATTRIBUTES, replicates=50)
    ratios = np.array([row.ratio for row in report.rows if row.ratio is not None])
    assert 0.6 < np.median(ratios) < 1.7
    inside = [
        row.ratio_interval.low < 1 < row.ratio_interval.high
        for row in report.rows
        if row.ratio_interval is not None
    ]
    assert np.mean(inside) > 0.7


def test_a_collapsed_generator_is_valid_but_not_unique():
    rng = np.random.default_rng(7)
    train, test = ([_real(rng) for _ in range(COUNT)] for _ in range(2))
    collapsed = [_real(rng)] * COUNT
    novel = novelty(train, test, collapsed)
    assert novel.unique == pytest.approx(1 / COUNT)
    report = compare(train, test, collapsed, ATTRIBUTES, replicates=10)
    assert report["mmd:embedding"].ratio > 3


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_copies_show_in_novelty_and_nearness(share):
    rng = np.random.default_rng(8)
    train, held_out, fresh = ([_real(rng) for _ in range(COUNT)] for _ in range(3))
    copies = int(share * COUNT)
    generated = train[:copies] + fresh[copies:]
    assert novelty(train, held_out, generated).copied == pytest.approx(share, abs=0.05)
    near = closer_to_training(train, held_out, generated)
    assert near.dcr_share == pytest.approx(0.5 + share / 2, abs=0.15)


def _blocks(kinds: list[tuple[int, ...]]) -> DAG:
    """A chain of blocks: in each a node forks into three operators, which join in one."""
    ops = [op for first, *inner, last in kinds for op in (first, *inner, last)]
    edges = []
    for block in range(len(kinds)):
        begin = 5 * block
        edges += [(begin, begin + i) for i in (1, 2, 3)]
        edges += [(begin + i, begin + 4) for i in (1, 2, 3)]
        edges += [(begin - 1, begin)] if block else []
    x_NA = torch.tensor([[op, 0] for op in ops])
    return DAG.build(x_NA, torch.tensor(edges).T)


def _program(rng: np.random.Generator, own: int, num_blocks: int = 10) -> DAG:
    """Blocks of one kind, of which the first ``own`` are replaced by blocks that do not repeat."""
    usual = tuple(rng.integers(0, 6, 5).tolist())
    drawn = [tuple(rng.integers(0, 40, 5).tolist()) for _ in range(own)]
    return _blocks([*drawn, *[usual] * (num_blocks - own)])


def _neighborhoods(train: list[DAG], generated: list[DAG]) -> dict[str, float]:
    report = compare(train, train, generated, ATTRIBUTES, metrics=NEIGHBORHOOD_METRICS)
    return {
        row.metric.name.removeprefix("neighborhood_"): row.generated.value for row in report.rows
    }


def test_the_fewer_blocks_repeat_the_lower_the_repetition():
    rng = np.random.default_rng(9)
    train = [_program(rng, 0) for _ in range(20)]
    found = [
        _neighborhoods(train, [_program(rng, own) for _ in range(20)]) for own in (0, 2, 5, 8, 10)
    ]
    for radius in (1, 2, 3):
        repeated = [figures[f"repetition:{radius}"] for figures in found]
        assert repeated[0] > 0.6
        assert repeated[-1] < 0.2
        assert all(more > less for more, less in pairwise(repeated))


def test_the_more_operators_are_shuffled_the_more_neighborhoods_are_new():
    rng = np.random.default_rng(10)
    train = [_program(rng, 0) for _ in range(30)]

    def shuffled(dag: DAG, fraction: float) -> DAG:
        moved = rng.permutation(dag.num_nodes)[: round(fraction * dag.num_nodes)]
        x_NA = dag.x_NA.clone()
        x_NA[moved] = dag.x_NA[rng.permutation(moved)]
        return DAG.build(x_NA, dag.edge_index_2E)

    found = [
        _neighborhoods(train, [shuffled(dag, fraction) for dag in train])
        for fraction in (0.0, 0.1, 0.3, 0.6)
    ]
    for radius in (1, 2, 3):
        new = [figures[f"novelty:{radius}"] for figures in found]
        assert new[0] == 0.0
        assert all(less < more for less, more in pairwise(new)), new
