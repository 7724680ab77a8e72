"""Laws of neighborhood novelty and repetition."""

from collections import Counter

import numpy as np
import torch
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.evaluation.metrics.base import AttributeView, SimilarityRow
from layerdag.evaluation.metrics.neighborhoods import NEIGHBORHOOD_METRICS
from layerdag.evaluation.similarity import compare
from layerdag.graph.topology import neighborhood_colors

OP = (AttributeView("op"),)
SEEDS = st.integers(0, 2**32 - 1)


def graphs(seed: int, count: int = 5, codes: int = 3) -> list[DAG]:
    rng = np.random.default_rng(seed)
    return [
        random_dag(rng, rng.integers(1, 4, rng.integers(1, 6)).tolist(), [codes])
        for _ in range(count)
    ]


def relabeled(dag: DAG, rng: np.random.Generator) -> DAG:
    """The same graph with its nodes and edges in another order."""
    position_N = torch.from_numpy(rng.permutation(dag.num_nodes))
    x_NA = torch.empty_like(dag.x_NA)
    x_NA[position_N] = dag.x_NA
    order_E = torch.from_numpy(rng.permutation(dag.num_edges))
    return DAG.build(x_NA, position_N[dag.edge_index_2E][:, order_E])


def twice(dag: DAG) -> DAG:
    """Two copies of a graph side by side, as one graph."""
    edges = [dag.edge_index_2E, dag.edge_index_2E + dag.num_nodes]
    return DAG.build(torch.cat([dag.x_NA, dag.x_NA]), torch.cat(edges, dim=1))


def found(train: list[DAG], test: list[DAG], generated: list[DAG]) -> dict[str, SimilarityRow]:
    report = compare(train, test, generated, OP, metrics=NEIGHBORHOOD_METRICS, replicates=2)
    return {row.metric.name.removeprefix("neighborhood_"): row for row in report.rows}


def figures(rows: dict[str, SimilarityRow]) -> dict[str, tuple[float, float]]:
    return {name: (row.generated.value, row.reference.value) for name, row in rows.items()}


@given(SEEDS)
@tried(12)
def test_the_order_of_nodes_and_edges_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    sets = [graphs(seed + part) for part in range(3)]
    shuffled = [[relabeled(dag, rng) for dag in dags] for dags in sets]
    assert figures(found(*sets)) == figures(found(*shuffled))


@given(SEEDS)
@tried(12)
def test_a_set_compared_with_itself_has_nothing_new(seed):
    dags = graphs(seed)
    rows = found(dags, dags, dags)
    for radius in (1, 2, 3):
        assert figures(rows)[f"novelty:{radius}"] == (0.0, 0.0)
        generated, real = figures(rows)[f"repetition:{radius}"]
        assert generated == real


@given(SEEDS)
@tried(12)
def test_a_wider_view_finds_more_that_is_new_and_less_that_repeats(seed):
    values = figures(found(graphs(seed), graphs(seed + 1), graphs(seed + 2)))
    for near, far in ((1, 2), (2, 3)):
        for side in (0, 1):
            assert values[f"novelty:{near}"][side] <= values[f"novelty:{far}"][side]
            assert values[f"repetition:{near}"][side] >= values[f"repetition:{far}"][side]


@given(SEEDS)
@tried(12)
def test_more_training_graphs_leave_less_that_is_new(seed):
    train, made = graphs(seed), graphs(seed + 1)
    few, many = found(train[:2], made, made), found(train, made, made)
    for radius in (1, 2, 3):
        name = f"novelty:{radius}"
        assert figures(many)[name][0] <= figures(few)[name][0]


@given(SEEDS)
@tried(12)
def test_a_graph_twice_in_one_repeats_everywhere(seed):
    dags = graphs(seed)
    rows = found(dags, dags, [twice(dag) for dag in dags])
    for radius in (1, 2, 3):
        generated, real = figures(rows)[f"repetition:{radius}"]
        assert generated == 1.0 >= real
        assert figures(rows)[f"novelty:{radius}"] == (0.0, 0.0)


@given(SEEDS, st.integers(0, 3))
@tried(40)
def test_colors_are_equal_exactly_where_sorted_multisets_of_neighbors_are(seed, radius):
    (dag,) = graphs(seed, 1)
    color_N = neighborhood_colors(dag.x_NA[:, 0].numpy(), dag.edge_index_2E.numpy(), radius)[-1]
    by_name = Counter(zip(color_N.tolist(), nested(dag, radius), strict=True))
    assert len(by_name) == len(set(color_N.tolist())) == len(set(nested(dag, radius)))


def nested(dag: DAG, radius: int) -> list[object]:
    """Colors by the definition: nested tuples instead of hashes."""
    colors: list[object] = dag.x_NA[:, 0].tolist()
    parents: list[list[int]] = [[] for _ in colors]
    children: list[list[int]] = [[] for _ in colors]
    for source, target in dag.edge_index_2E.T.tolist():
        parents[target].append(source)
        children[source].append(target)
    for _ in range(radius):
        colors = [
            (
                color,
                tuple(sorted((colors[i] for i in before), key=repr)),
                tuple(sorted((colors[i] for i in after), key=repr)),
            )
            for color, before, after in zip(colors, parents, children, strict=True)
        ]
    return colors
