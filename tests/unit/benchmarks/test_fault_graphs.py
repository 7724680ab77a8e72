"""Each fault inside a graph changes what it says, by the fraction asked for, and nothing else."""

import numpy as np
import pytest
import torch
from benchmark_faults import DURATION, SCHEMA, graphs, job
from table_records import chain

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.evaluation.metrics.repeated_blocks import repeated_blocks
from layerdag.schema.attributes import NumericAttribute

BY_GRAPH = {
    "rewired_keeping_degrees": graphs.rewired_keeping_degrees,
    "rewired": graphs.rewired,
    "attributes_shuffled": graphs.attributes_shuffled,
    "numbers_shuffled": graphs.numbers_shuffled([1, 2]),
    "durations_scaled": graphs.durations_scaled(DURATION, SCHEMA.attributes[DURATION]),
    "blocks_not_repeating": graphs.blocks_not_repeating,
}


def _edges(dag: DAG) -> set[tuple[int, ...]]:
    return set(map(tuple, dag.edge_index_2E.T.tolist()))


def _rows(dag: DAG) -> list[list[float]]:
    return sorted(torch.cat([dag.x_NA, dag.u_NA], dim=1).tolist())


def _degrees(dag: DAG) -> list[tuple[float, ...]]:
    """Return row, in-degree and out-degree of all nodes, in an order without places."""
    one = GraphSet.from_dags([dag])
    return sorted(
        (*row, ins, outs)
        for row, ins, outs in zip(
            torch.cat([dag.x_NA, dag.u_NA], dim=1).tolist(),
            one.in_degree_N.tolist(),
            one.out_degree_N.tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize("name", BY_GRAPH)
def test_strength_0_changes_nothing_and_any_other_gives_a_sound_graph(name):
    dag = job(np.random.default_rng(0))
    same = BY_GRAPH[name](dag, 0.0, np.random.default_rng(1))
    assert _edges(same) == _edges(dag)
    assert torch.equal(same.x_NA, dag.x_NA)
    for strength in (0.2, 1.0):
        spoiled = BY_GRAPH[name](dag, strength, np.random.default_rng(1)).check()
        assert (spoiled.num_nodes, spoiled.num_edges) == (dag.num_nodes, dag.num_edges)
        assert spoiled.conditions == dag.conditions
        assert bool((spoiled.layer_N.diff() >= 0).all())


def test_swapped_edges_keep_all_degrees_of_all_nodes():
    dag = job(np.random.default_rng(2), blocks=8)
    spoiled = graphs.rewired_keeping_degrees(dag, 0.5, np.random.default_rng(3))
    assert _degrees(spoiled) == _degrees(dag)
    assert _pairs(spoiled) != _pairs(dag)


def _pairs(dag: DAG) -> list[tuple[int, ...]]:
    operator = dag.x_NA[:, 0]
    return sorted(map(tuple, operator[dag.edge_index_2E].T.tolist()))


def test_rewiring_moves_the_fraction_of_the_edges_asked_for():
    # All nodes in one chain: the order of layers is fixed as long as it is not cut.
    spoiled = graphs.rewired(chain(41), 0.25, np.random.default_rng(4))
    assert spoiled.num_edges == 40
    assert GraphSet.from_dags([spoiled]).out_degree_N.max() > 1
    # Degrees: each of the ten moved edges changes at most two nodes' out-degree.
    changed = (GraphSet.from_dags([spoiled]).out_degree_N != 1).sum()
    assert 5 <= changed <= 20


def test_shuffled_attributes_are_those_of_the_same_nodes():
    dag = job(np.random.default_rng(5))
    spoiled = graphs.attributes_shuffled(dag, 1.0, np.random.default_rng(6))
    assert _rows(spoiled) == _rows(dag)
    assert _edges(spoiled) == _edges(dag)
    assert not torch.equal(spoiled.x_NA, dag.x_NA)


def test_shuffled_numbers_leave_operators_and_other_columns_where_they_are():
    dag = job(np.random.default_rng(7))
    spoiled = graphs.numbers_shuffled([1, 2])(dag, 1.0, np.random.default_rng(8))
    assert torch.equal(spoiled.x_NA[:, [0, 3]], dag.x_NA[:, [0, 3]])
    assert sorted(spoiled.x_NA[:, 1:3].tolist()) == sorted(dag.x_NA[:, 1:3].tolist())
    assert not torch.equal(spoiled.x_NA[:, 1:3], dag.x_NA[:, 1:3])


def test_scaled_durations_are_longer_by_the_fraction():
    dag = job(np.random.default_rng(9))
    attribute = SCHEMA.attributes[DURATION]
    assert isinstance(attribute, NumericAttribute)
    spoiled = graphs.durations_scaled(DURATION, attribute)(dag, 0.5, np.random.default_rng(0))
    before, after = (
        attribute.decode(one.x_NA[:, DURATION].numpy(), one.u_NA[:, DURATION].numpy())
        for one in (dag, spoiled)
    )
    np.testing.assert_allclose(after, np.minimum(before * 1.5, 1000), rtol=0.05)
    assert torch.equal(spoiled.x_NA[:, :DURATION], dag.x_NA[:, :DURATION])


def test_blocks_that_do_not_repeat_have_the_same_nodes_and_edges():
    dag = job(np.random.default_rng(10), blocks=8)
    assert repeated_blocks(GraphSet.from_dags([dag]))[0].count == 8
    spoiled = graphs.blocks_not_repeating(dag, 1.0, np.random.default_rng(11))
    assert _rows(spoiled) == _rows(dag)
    assert _edges(spoiled) == _edges(dag)
    assert sum(block.count for block in repeated_blocks(GraphSet.from_dags([spoiled]))) < 6


def test_an_edited_graph_differs_in_the_fraction_of_its_nodes_and_at_least_one():
    rng = np.random.default_rng(12)
    dag, donors = job(rng, "gpt"), [job(rng, "cnn") for _ in range(3)]
    for strength, changed in ((0.0, 1), (0.2, round(0.2 * dag.num_nodes))):
        spoiled = graphs.edited(dag, strength, np.random.default_rng(13), donors)
        # No operator of one family is one of the other.
        assert int((spoiled.x_NA[:, 0] < 8).sum()) == changed
