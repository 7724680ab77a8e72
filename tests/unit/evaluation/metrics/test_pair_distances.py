"""Distances in blocks against those of scipy, with equal vectors and large features among them."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from layerdag.evaluation.metrics.descriptor_metrics import (
    neighbor_distances,
    squared_distances,
    within_radius,
)

CASES = {
    "plain": lambda rng: rng.normal(size=(70, 5)),
    "equal vectors": lambda rng: rng.normal(size=(9, 5))[rng.integers(9, size=70)],
    "a feature that few have": lambda rng: np.concatenate(
        [rng.normal(size=(70, 4)), 1e9 * (rng.random((70, 1)) < 0.1)], axis=1
    ),
    "large everywhere": lambda rng: 1e6 * rng.normal(size=(70, 20)),
}


@pytest.fixture(params=CASES)
def vectors(request: pytest.FixtureRequest, rng: np.random.Generator) -> np.ndarray:
    return CASES[request.param](rng)


@pytest.fixture(params=[1, 300, 1 << 20], autouse=True)
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layerdag.evaluation.metrics.descriptor_metrics._BLOCK", request.param)
    monkeypatch.setattr("layerdag.evaluation.metrics.descriptor_metrics._FEW_COLUMNS", 20)


def test_blocks_are_the_rows_of_the_matrix(vectors):
    x_XF, y_YF = vectors[:40], vectors[25:]
    rows = [d2.copy() for _, _, d2 in squared_distances(x_XF, y_YF, factor=-0.5)]
    wanted = -0.5 * cdist(x_XF, y_YF, "sqeuclidean")
    np.testing.assert_allclose(np.concatenate(rows), wanted, rtol=1e-9, atol=1e-9)


def test_the_upper_half_leaves_out_what_a_block_before_has(vectors):
    wanted = cdist(vectors, vectors, "sqeuclidean")
    seen = 0
    for first, last, d2 in squared_distances(vectors, vectors, upper=True):
        np.testing.assert_allclose(d2, wanted[first:last, first:], rtol=1e-9, atol=1e-9)
        seen = last
    assert seen == len(vectors)


def test_neighbors_are_those_of_the_whole_matrix(vectors):
    wanted = np.sort(cdist(vectors, vectors), axis=1)
    for neighbor in (1, 5):
        np.testing.assert_allclose(
            neighbor_distances(vectors, neighbor), wanted[:, neighbor], rtol=1e-12
        )


def test_balls_hold_what_lies_at_their_radius(vectors):
    x_XF, y_YF = vectors[:45], vectors[20:]
    x_radius, y_radius = neighbor_distances(x_XF, 2), neighbor_distances(y_YF, 2)
    around_x, around_y = (
        np.concatenate(blocks)
        for blocks in zip(*within_radius(x_XF, y_YF, x_radius, y_radius), strict=True)
    )
    # The second neighbors of both sets are among the vectors that both have: many are at the edge.
    between = cdist(x_XF, y_YF)
    off = 1 + 1e-12
    assert (around_x == (between <= off * x_radius[:, None])).all()
    assert (around_y == (between <= off * y_radius)).all()
