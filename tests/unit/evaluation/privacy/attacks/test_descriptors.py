"""Whole graphs as vectors: what they say, what they leave out, and what they do not depend on."""

import numpy as np
import pytest
import torch

from layerdag.evaluation import GraphSet
from layerdag.evaluation.privacy.attacks import Pool
from layerdag.evaluation.privacy.attacks._descriptors import (
    COMPONENTS,
    MOST_CODES,
    graph_descriptors,
    main_components,
    widths_of,
)
from layerdag.graph import DAG, random_dag


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, rng.integers(1, 5, 4).tolist(), [5, 3]) for _ in range(count)]


def path(*codes: int) -> DAG:
    size = len(codes)
    edges = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
    return DAG.build(torch.tensor(codes)[:, None], edges)


def test_the_widest_layer_is_counted_wherever_it_lies(rng: np.random.Generator) -> None:
    dags = [random_dag(rng, sizes, [3]) for sizes in ([7, 1, 2], [1, 2, 6], [1], [2, 2, 2, 2])]
    assert widths_of(GraphSet.of(dags)).tolist() == [7, 6, 1, 2]


def test_descriptors_do_not_depend_on_the_order_of_nodes(rng: np.random.Generator) -> None:
    dags = graphs(rng, 8)
    mixed = [dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes))) for dag in dags]
    first, second = (graph_descriptors(GraphSet.of(each), 5) for each in (dags, mixed))
    np.testing.assert_allclose(first, second, rtol=1e-6)


def test_rows_follow_the_order_of_graphs(rng: np.random.Generator) -> None:
    dags = graphs(rng, 8)
    order = rng.permutation(8)
    first = graph_descriptors(GraphSet.of(dags), 8)
    second = graph_descriptors(GraphSet.of([dags[i] for i in order]), 8)
    np.testing.assert_allclose(first[order], second, rtol=1e-6)


def test_equal_graphs_have_no_column_that_tells_them_apart() -> None:
    assert graph_descriptors(GraphSet.of([path(0, 1, 2)] * 3), 2).shape == (3, 0)


def test_the_order_of_operators_is_seen_at_the_edges_alone() -> None:
    there, back = path(0, 1, 2), path(2, 1, 0)
    found = graph_descriptors(GraphSet.of([there, back]), 2)
    # Sizes and counts of codes are equal; four pairs of neighbors are in one of both.
    assert found.shape == (2, 4)
    assert np.allclose(found.sum(axis=1), 2 * np.log(2))


def test_pairs_that_samples_alone_have_get_no_column() -> None:
    real = [path(0, 1, 2), path(0, 1, 2)]
    assert graph_descriptors(GraphSet.of([*real, path(2, 1, 0)]), 2).shape == (3, 2)
    assert graph_descriptors(GraphSet.of([*real, path(2, 1, 0)]), 3).shape == (3, 4)


def test_codes_beyond_the_last_column_share_it() -> None:
    last = MOST_CODES - 1
    dags = [path(last, last), path(last + 1, last + 700)]
    counts = graph_descriptors(GraphSet.of(dags), 0)
    assert counts.shape == (2, 0)  # no pairs are counted without real graphs


def test_components_keep_the_distances_of_standardized_columns(rng: np.random.Generator) -> None:
    x_BF = rng.normal(3, 5, (40, 6))
    z_BF = (x_BF - x_BF[:30].mean(axis=0)) / x_BF[:30].std(axis=0)
    found = main_components(x_BF, 30)
    assert found.shape == (40, 6)
    for i, j in ((0, 1), (3, 35), (38, 39)):
        assert np.linalg.norm(found[i] - found[j]) == pytest.approx(
            np.linalg.norm(z_BF[i] - z_BF[j])
        )
    spread_C = found[:30].std(axis=0)
    assert (np.diff(spread_C) <= 1e-9).all()


def test_samples_have_no_say_in_scale_and_axes(rng: np.random.Generator) -> None:
    real, samples = rng.normal(size=(20, 4)), rng.normal(size=(5, 4))
    near, far = (main_components(np.concatenate([real, samples * by]), 20) for by in (1, 1000))
    np.testing.assert_allclose(near[:20], far[:20])


def test_there_are_no_more_components_than_graphs_columns_or_the_limit(
    rng: np.random.Generator,
) -> None:
    assert main_components(rng.normal(size=(9, 50)), 5).shape == (9, 5)
    assert main_components(rng.normal(size=(60, 50)), 60).shape == (60, COMPONENTS)


def test_nothing_that_differs_is_one_column_of_zeros() -> None:
    assert main_components(np.ones((4, 3), dtype=np.float32), 3).tolist() == [[0.0]] * 4
    assert main_components(np.ones((4, 0), dtype=np.float32), 3).tolist() == [[0.0]] * 4
    # Of one real graph nothing differs either, whatever samples are like.
    assert main_components(np.arange(8.0).reshape(4, 2), 1).tolist() == [[0.0]] * 4
    pool = Pool([path(0, 1)], [path(0, 1)], [path(0, 1, 1)])
    assert np.isfinite(pool.components).all()
