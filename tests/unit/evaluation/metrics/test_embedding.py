"""Random embeddings see structure and attributes, and nothing else."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics import random_embeddings
from layerdag.graph import DAG, random_dag

WIDTH = 4 * 35 + 2


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, rng.integers(1, 5, 5).tolist(), [4, 3]) for _ in range(count)]


def embedded(real: list[DAG], *others: list[DAG], seed: int = 0) -> list[np.ndarray]:
    return random_embeddings([GraphSet.of(dags) for dags in (real, real, *others)], seed)


def relabeled(rng: np.random.Generator, dag: DAG) -> DAG:
    return dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes)))


def reversed_edges(rng: np.random.Generator, dag: DAG) -> DAG:
    del rng
    return DAG.build(dag.x_NA, dag.edge_index_2E.flip(0))


def moved_attribute(rng: np.random.Generator, dag: DAG) -> DAG:
    x_NA = dag.x_NA.clone()
    x_NA[:, 1] = (x_NA[:, 1] + 1) % 3
    del rng
    return DAG.build(x_NA, dag.edge_index_2E)


def without_an_edge(rng: np.random.Generator, dag: DAG) -> DAG:
    del rng
    return DAG.build(dag.x_NA, dag.edge_index_2E[:, 1:])


def test_one_row_per_graph_and_the_same_for_the_same_seed(rng: np.random.Generator) -> None:
    real, made = graphs(rng, 6), graphs(rng, 4)
    first, again, other = (embedded(real, made, seed=seed) for seed in (0, 0, 1))
    assert [one.shape for one in first] == [(6, WIDTH), (6, WIDTH), (4, WIDTH)]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.allclose(first[2], other[2])
    np.testing.assert_array_equal(first[0], first[1])


def test_the_order_of_nodes_does_not_matter(rng: np.random.Generator) -> None:
    real = graphs(rng, 8)
    *_, plain, shuffled = embedded(real, real, [relabeled(rng, dag) for dag in real])
    np.testing.assert_allclose(plain, shuffled, atol=1e-9)


@pytest.mark.parametrize("change", [reversed_edges, moved_attribute, without_an_edge])
def test_every_change_of_a_graph_is_seen(
    change: Callable[[np.random.Generator, DAG], DAG], rng: np.random.Generator
) -> None:
    real = graphs(rng, 8)
    *_, plain, changed = embedded(real, real, [change(rng, dag) for dag in real])
    assert (np.abs(plain - changed).max(axis=1) > 1e-3).all()


def test_columns_are_standardized_by_the_real_graphs(rng: np.random.Generator) -> None:
    train, test, made = (GraphSet.of(graphs(rng, 30)) for _ in range(3))
    one, other, _ = random_embeddings([train, test, made])
    real = np.concatenate([one, other]) * np.sqrt(WIDTH)
    np.testing.assert_allclose(real.mean(axis=0), 0, atol=1e-9)
    spread = real.std(axis=0)
    assert np.logical_or(np.isclose(spread, 1), spread < 1).all()
    assert np.isclose(spread, 1).mean() > 0.9


def test_sets_share_their_weights(rng: np.random.Generator) -> None:
    real, made = graphs(rng, 5), graphs(rng, 3)
    *_, alone, among = embedded(real, made[:1], made)
    np.testing.assert_allclose(alone[0], among[0])
