"""Repeated blocks held once."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from layered_jobs import layered_job
from random_jobs import random_job

from layerdag.codec import AttributedGraph, RankClassTrace, job_graph
from layerdag.codec.blocks import BLOCK, REPEATS, copies_of, rolled, unrolled
from layerdag.datasets.schema import GraphSchema
from layerdag.graph import graph_hash
from layerdag.traces import embedded_corpus, read_index, read_runs


def program_hash(graph: AttributedGraph) -> str:
    """Return a hash that does not depend on the order of nodes, without durations."""
    nothing_N = np.full(graph.num_nodes, np.nan)
    timeless = replace(graph, numbers={**graph.numbers, "duration": nothing_N})
    return graph_hash(GraphSchema.fit("trace", [timeless]).encode(timeless))


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_a_network_of_equal_layers_is_one_layer(count: int) -> None:
    small = rolled(layered_job(count))
    assert small.conditions[REPEATS] == count
    assert Counter(small.categories["op"])["aten::mm"] == 2
    assert small.num_nodes == 8
    assert small.conditions["num_nodes"] == 8


def test_rolled_networks_of_any_depth_are_the_same_graph() -> None:
    assert program_hash(rolled(layered_job(3))) == program_hash(rolled(layered_job(12)))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_unrolled_it_is_the_graph_again(count: int) -> None:
    whole = layered_job(count)
    assert program_hash(unrolled(rolled(whole), whole.edge_type_names)) == program_hash(whole)


def test_another_number_of_copies_is_the_network_of_that_depth() -> None:
    small = rolled(layered_job(3))
    deep = replace(small, conditions={**small.conditions, REPEATS: 12.0})
    assert program_hash(unrolled(deep, ("data", "control"))) == program_hash(layered_job(12))


def test_one_copy_has_the_mean_of_durations_so_that_their_sum_stays() -> None:
    whole = layered_job(4)
    small = rolled(whole)
    total = float((small.numbers["duration"] * copies_of(small)).sum())
    assert total == pytest.approx(float(whole.numbers["duration"].sum()))
    again = unrolled(small, whole.edge_type_names)
    assert again.numbers["duration"].sum() == pytest.approx(whole.numbers["duration"].sum())


def test_layers_that_differ_in_costs_are_no_copies() -> None:
    whole = layered_job(4)
    flops_N = whole.numbers["flops"] * np.arange(1, whole.num_nodes + 1)
    small = rolled(replace(whole, numbers={**whole.numbers, "flops": flops_N}))
    assert small.conditions[REPEATS] == 1
    assert small.num_nodes == whole.num_nodes
    assert set(small.categories[BLOCK]) == {"outside"}


def test_few_repeats_in_a_large_graph_are_chance() -> None:
    two, large = layered_job(2), layered_job(3)
    op = [f"aten::unlike{i}" for i in range(large.num_nodes)]
    op[:4] = ["aten::mm", "aten::relu"] * 2
    graph = replace(large, categories={**large.categories, "op": op})
    assert rolled(graph).conditions[REPEATS] == 1
    assert rolled(two).conditions[REPEATS] == 2


def test_edges_that_skip_copies_are_not_folded() -> None:
    """Each layer reads the output of the layer before the last."""
    whole = layered_job(6)
    relu = [i for i, op in enumerate(whole.categories["op"]) if op == "aten::relu"]
    skips = np.array([(a, b - 1) for a, b in zip(relu, relu[2:], strict=False)]).T
    graph = replace(
        whole,
        edge_index_2E=np.concatenate([whole.edge_index_2E, skips], axis=1),
        edge_type_E=np.concatenate([whole.edge_type_E, np.zeros(skips.shape[1], np.int64)]),
    )
    small = rolled(graph)
    assert program_hash(unrolled(small, graph.edge_type_names)) == program_hash(graph)
    assert Counter(small.categories["op"])["aten::relu"] == 6


def test_a_graph_with_a_cycle_stays_whole() -> None:
    whole = layered_job(2)
    graph = replace(
        whole,
        edge_index_2E=np.concatenate([whole.edge_index_2E, [[3], [0]]], axis=1),
        edge_type_E=np.append(whole.edge_type_E, 0),
    )
    assert rolled(graph).num_nodes == graph.num_nodes
    assert rolled(graph).conditions[REPEATS] == 1


@pytest.mark.parametrize("seed", range(20))
def test_random_jobs_are_themselves_again(seed: int) -> None:
    whole = random_job(seed, 1 + seed % 3, layers=8)
    again = unrolled(rolled(whole), whole.edge_type_names)
    assert program_hash(again) == program_hash(whole)


def corpus_graphs(step: int) -> list[AttributedGraph]:
    """Return every ``step``-th job of the embedded corpus."""
    records = read_index(embedded_corpus())[::step]
    return [
        job_graph(
            run.record.run,
            [
                RankClassTrace(trace, part.ranks)
                for trace, part in zip(run.traces, run.record.classes, strict=True)
            ],
            run.record.groups,
            {},
        )
        for run in read_runs(embedded_corpus(), records)
    ]


@pytest.mark.parametrize("step", [30, pytest.param(1, marks=pytest.mark.slow)])
def test_every_job_of_the_corpus_is_itself_again(step: int) -> None:
    graphs = corpus_graphs(step)
    for whole in graphs:
        again = unrolled(rolled(whole), whole.edge_type_names)
        assert program_hash(again) == program_hash(whole), whole.name
    assert sum(rolled(graph).conditions[REPEATS] > 1 for graph in graphs) > len(graphs) / 3


def test_single_nodes_that_repeat_are_blocks_where_that_is_wanted() -> None:
    whole = layered_job(3)
    size = 9
    chain = AttributedGraph(
        name="gathers",
        categories={name: [words[0]] * size for name, words in whole.categories.items()},
        numbers={name: np.full(size, 1.0) for name in whole.numbers},
        edge_index_2E=np.stack([np.arange(size - 1), np.arange(1, size)]),
        edge_type_E=np.zeros(size - 1, dtype=np.int64),
        edge_type_names=whole.edge_type_names,
    )
    assert rolled(chain).num_nodes == size
    small = rolled(chain, smallest=1)
    assert (small.num_nodes, small.conditions[REPEATS]) == (1, size)
    assert program_hash(unrolled(small, whole.edge_type_names)) == program_hash(chain)
