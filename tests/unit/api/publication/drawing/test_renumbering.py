"""Other numbers for nodes that have those of a single real run."""

import numpy as np
import pytest
import torch
from costed_jobs import costed_job, costed_jobs
from hypothesis import given, strategies as st

from layerdag.api.publication.drawing._renumbering import Renumbering, keys_of
from layerdag.codec import AttributedGraph
from layerdag.datasets.schema import GraphSchema
from layerdag.datasets.schema.costs import COST_NAMES
from layerdag.graph import DAG
from layerdag.sampling import GeneratedGraph
from layerdag.sampling.numbers import NumberAssigner

JOBS = costed_jobs([8, 16, 32] * 20 + [48, 56])
SCHEMA = GraphSchema.fit("trace", JOBS, num_bins=4)


def sampled(width: int, seed: int = 3) -> GeneratedGraph:
    """Return a job with the numbers that samples get."""
    dag = SCHEMA.encode(costed_job(width, label=1e-6))
    first = GeneratedGraph("drawn", seed, dag, False, SCHEMA)
    return first.with_numbers(NumberAssigner(SCHEMA).numbers(dag, seed))


def private(*graphs: AttributedGraph, nodes: slice = slice(None)) -> Renumbering:
    """Return what avoids all numbers of some nodes of these graphs."""
    keys = np.concatenate([keys_of(graph)[nodes] for graph in graphs])
    return Renumbering(SCHEMA, np.unique(keys[keys != 0]))


@given(st.sampled_from([8, 16, 32, 48]), st.integers(0, 50), st.integers(0, 4))
def test_no_node_keeps_numbers_of_a_single_run(width: int, seed: int, node: int) -> None:
    sample = sampled(width, seed)
    renumbering = private(sample.graph, nodes=slice(node, node + 1))
    assert renumbering.hits(sample.graph).any()
    for trial in range(4):
        changed = renumbering.again(sample, trial)
        assert not renumbering.hits(changed.graph).any()


def test_durations_are_changed_before_costs() -> None:
    sample = sampled(32)
    changed = private(sample.graph, nodes=slice(0, 1)).again(sample, 0)
    for name in COST_NAMES:
        np.testing.assert_array_equal(changed.graph.numbers[name], sample.graph.numbers[name])
    before_N, after_N = sample.graph.numbers["duration"], changed.graph.numbers["duration"]
    hit_N = np.array([True, False, False, True, False])  # two products of one size
    assert (after_N[hit_N] != before_N[hit_N]).all()
    assert (np.abs(np.log(after_N / before_N)) < 0.11).all()
    np.testing.assert_allclose(after_N[~hit_N], before_N[~hit_N], rtol=1e-6)


def test_structure_and_names_stay() -> None:
    sample = sampled(16)
    changed = private(sample.graph).again(sample, 1)
    assert changed.graph.categories == sample.graph.categories
    assert torch.equal(changed.dag.edge_index_2E, sample.dag.edge_index_2E)
    assert changed.seed == sample.seed


def test_the_sample_and_the_trial_alone_decide() -> None:
    sample = sampled(48)
    renumbering = private(sample.graph)
    first, again = (renumbering.again(sample, 1) for _ in range(2))
    for name, value_N in first.graph.numbers.items():
        np.testing.assert_array_equal(value_N, again.graph.numbers[name])


def test_codes_are_those_of_the_new_numbers() -> None:
    sample = sampled(48)
    changed = private(sample.graph).again(sample, 1)
    assert torch.equal(SCHEMA.codes(changed.decoded).x_NA, changed.dag.x_NA)


@pytest.mark.parametrize("trial", range(6))
def test_graphs_without_costs_draw_in_their_bins_and_then_beside(trial: int) -> None:
    rng = np.random.default_rng(0)
    graphs = [
        AttributedGraph(
            name=f"flow-{i}",
            categories={"op": ["a", "b", "c"]},
            numbers={"value": rng.uniform(1, 1000, 3)},
            edge_index_2E=np.array([[0, 1], [1, 2]]),
            edge_type_E=np.zeros(2, dtype=np.int64),
        )
        for i in range(20)
    ]
    schema = GraphSchema.fit("flow", graphs, num_bins=4)
    dag: DAG = schema.encode(graphs[0])
    sample = GeneratedGraph("drawn", 1, dag, False, schema)
    keys = keys_of(sample.graph)
    renumbering = Renumbering(schema, np.unique(keys[:1]))
    changed = renumbering.again(sample, trial)
    assert not renumbering.hits(changed.graph).any()
    assert torch.equal(changed.dag.x_NA[1:], dag.x_NA[1:])
    same_bin = torch.equal(changed.dag.x_NA, dag.x_NA)
    assert same_bin is (trial < 2)
