"""Distances of all pairs of vectors, block by block, so that memory does not grow with pairs.

A matrix product finds all squared distances of a block, but for the last digits: |x|^2 - 2 x y +
|y|^2 loses what cancels. Where a comparison depends on them, as for graphs that are equal, the
pairs in question are computed again by the definition.

Letters: X and Y vectors, F features.
"""

from collections.abc import Iterator

import numpy as np
from scipy.spatial.distance import cdist

_BLOCK = 1 << 20
"""Pairs of a block: 8 MB of distances."""
_LARGE = 100.0
_MOST_LARGE = 16
_LOST = 1e-12
"""How far a squared distance may be off, relative to itself and to squared lengths of vectors."""
_PAIRS_AT_ONCE = 1 << 15
_FEW_COLUMNS = 1024


def squared_distances(
    x_XF: np.ndarray, y_YF: np.ndarray, *, factor: float = 1.0, upper: bool = False
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield squared Euclidean distances but for the last digits, in blocks of rows.

    Features that are large somewhere, as one is that all real graphs share and few samples have
    not, would cost the others their digits; their differences are squared one by one.

    Args:
        x_XF: Vectors of the rows.
        y_YF: Vectors of the columns.
        factor: What the distances are multiplied by.
        upper: Leave out the columns before the first row of a block, of a symmetric matrix.

    Yields:
        First and last row of a block, and its distances, valid until the next one is asked for.
    """
    large_F = np.maximum(np.abs(x_XF).max(axis=0), np.abs(y_YF).max(axis=0)) > _LARGE
    if large_F.sum() > _MOST_LARGE:
        for first, last in _blocks(len(x_XF), len(y_YF)):
            yield (
                first,
                last,
                factor * cdist(x_XF[first:last], y_YF[first * upper :], "sqeuclidean"),
            )
        return
    left, right = _factors(x_XF[:, ~large_F], y_YF[:, ~large_F], factor)
    room = np.empty(min(max(_BLOCK, len(y_YF)), len(x_XF) * len(y_YF)))
    for first, last in _blocks(len(x_XF), len(y_YF)):
        begin = first if upper else 0
        shape = last - first, len(y_YF) - begin
        d2_XY = room[: shape[0] * shape[1]].reshape(shape)
        np.matmul(left[first:last], right[begin:].T, out=d2_XY)
        for feature in np.flatnonzero(large_F):
            d2_XY += factor * (x_XF[first:last, feature, None] - y_YF[begin:, feature]) ** 2
        yield first, last, d2_XY


def _factors(x_XF: np.ndarray, y_YF: np.ndarray, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Return two matrices whose product is ``factor`` times the squared distances."""
    x_X1, y_Y1 = (np.einsum("nf,nf->n", z, z)[:, None] for z in (x_XF, y_YF))
    left = np.concatenate([-2 * factor * x_XF, factor * x_X1, np.full_like(x_X1, factor)], axis=1)
    return left, np.concatenate([y_YF, np.ones_like(y_Y1), y_Y1], axis=1)


def _blocks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield first and last row of blocks of a matrix, each of bounded size."""
    step = max(1, _BLOCK // max(columns, 1))
    for first in range(0, rows, step):
        yield first, min(first + step, rows)


def neighbor_distances(x_XF: np.ndarray, neighbor: int) -> np.ndarray:
    """Return the distance of each vector to its nearest (1), second (2), ... neighbor, shape (X,).

    Args:
        x_XF: More than ``neighbor`` vectors.
        neighbor: Which one, a small number.
    """
    lost = _lost(x_XF, x_XF)
    found = []
    for first, last, d2_XY in squared_distances(x_XF, x_XF):
        # The nearest of all is the vector itself, at distance 0. Among some of the columns the
        # neighbor is no nearer than among all.
        some_XY = d2_XY[:, :: max(1, d2_XY.shape[1] // _FEW_COLUMNS)]
        bound_X = np.partition(some_XY, neighbor, axis=1)[:, neighbor] * (1 + _LOST) + 2 * lost
        row, column = np.nonzero(d2_XY <= bound_X[:, None])
        exact = _exact(x_XF, x_XF, first + row, column)
        order = np.lexsort((exact, row))
        start_X = np.searchsorted(row, np.arange(last - first))
        found.append(exact[order][start_X + neighbor])
    return np.concatenate(found)


def inside_balls(
    x_XF: np.ndarray, y_YF: np.ndarray, x_radius_X: np.ndarray, y_radius_Y: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for blocks of ``x`` after each other, which ``y`` lie in a ball and in whose ball.

    Args:
        x_XF: Centers of balls.
        y_YF: Centers of others.
        x_radius_X: Radius of the balls of ``x``.
        y_radius_Y: Radius of the balls of ``y``.

    Yields:
        Whether each ``y`` lies in the ball of each ``x`` of the block, and the other way around.
    """
    lost = _lost(x_XF, y_YF)
    for first, last, d2_XY in squared_distances(x_XF, y_YF):
        x_block, radius_X1 = x_XF[first:last], x_radius_X[first:last, None]
        yield (
            _within(d2_XY, radius_X1, lost, x_block, y_YF),
            _within(d2_XY, y_radius_Y[None, :], lost, x_block, y_YF),
        )


def _within(
    d2_XY: np.ndarray, radius: np.ndarray, lost: float, x_XF: np.ndarray, y_YF: np.ndarray
) -> np.ndarray:
    """Return whether distances are at most the radius of their row or column."""
    is_within_XY = d2_XY <= radius**2 * (1 - _LOST) - lost
    row, column = np.nonzero((d2_XY <= radius**2 * (1 + _LOST) + lost) & ~is_within_XY)
    limit = np.broadcast_to(radius, d2_XY.shape)[row, column]
    is_within_XY[row, column] = _exact(x_XF, y_YF, row, column) <= limit
    return is_within_XY


def _exact(x_XF: np.ndarray, y_YF: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Return the distances of some pairs by the definition, equal for equal pairs."""
    found_P = np.empty(row.size)
    for first in range(0, row.size, _PAIRS_AT_ONCE):
        part = slice(first, first + _PAIRS_AT_ONCE)
        away_PF = x_XF[row[part]] - y_YF[column[part]]
        found_P[part] = np.sqrt(np.einsum("pf,pf->p", away_PF, away_PF))
    return found_P


def _lost(x_XF: np.ndarray, y_YF: np.ndarray) -> float:
    """Return how far squared distances may be off for what cancels in the matrix product."""
    small = (np.clip(z, -_LARGE, _LARGE) for z in (x_XF, y_YF))
    return _LOST * max(float(np.einsum("nf,nf->n", z, z).max(initial=0)) for z in small)
