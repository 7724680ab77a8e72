"""Fitting the table of conditions, so that no training graph can be looked up in it.

A row per training graph would tell everybody who was trained on. So graphs are put into cells of
at least ``SHARED_BY`` by their categories; of the numbers of a cell, mean and spread over at least
``NUMBERS_BY`` graphs are kept, rounded.
"""

import numpy as np

from layerdag.datasets.schema._condition_table import ConditionCell, ConditionTable
from layerdag.graph import SHARED_BY

NUMBERS_BY = 20
"""Training graphs behind mean and spread of a cell, where there are as many."""
HALVED_BY = 40
"""Training graphs in each half of a cell that is halved."""
# Standard deviations of all training graphs to which means and spreads of cells are rounded.
MEAN_STEP = 0.5
SPREAD_STEP = 0.25


def fit_table(category_BM: np.ndarray, numeric_BC: np.ndarray) -> ConditionTable:
    """Learn the table from the encoded conditions of training graphs.

    Graphs with equal categories form a cell. Cells of fewer than ``SHARED_BY`` graphs are merged
    with the cell that differs in the fewest categories. Cells of twice ``HALVED_BY`` graphs or
    more are halved at the median of their most spread number, again and again; smaller ones take
    mean and spread from themselves and the most similar cells together.

    Args:
        category_BM: Codes, -1 for unknown.
        numeric_BC: Standardized numbers, NaN for unknown.

    Returns:
        The table; an empty one for fewer than ``SHARED_BY`` graphs, or without conditions.
    """
    if len(category_BM) < SHARED_BY or category_BM.shape[1] + numeric_BC.shape[1] == 0:
        return ConditionTable()
    wide = _merged(category_BM, NUMBERS_BY)
    cells, residuals = [], []
    for rows in _merged(category_BM, SHARED_BY):
        values = tuple(tuple(sorted(set(column))) for column in category_BM[rows].T.tolist())
        for part in _halved(rows, numeric_BC):
            of = part if len(part) >= NUMBERS_BY else _widest(part, wide)
            mean_C, spread_C = _moments(numeric_BC[of])
            residuals.append(numeric_BC[part] - mean_C)
            count = max(SHARED_BY, round(len(part) / SHARED_BY) * SHARED_BY)
            moments = tuple(mean_C.tolist()), tuple(spread_C.tolist())
            cells.append(ConditionCell(values, count, *moments))
    return ConditionTable(tuple(cells), _correlation(np.concatenate(residuals)))


def _merged(category_BM: np.ndarray, least: int) -> list[np.ndarray]:
    """Return the rows of each cell: equal categories, small cells merged with the most similar."""
    codes, cell_B = np.unique(category_BM, axis=0, return_inverse=True)
    rows = [np.flatnonzero(cell_B.ravel() == i) for i in range(len(codes))]
    sets = [[{code} for code in line] for line in codes.tolist()]
    while len(rows) > 1 and min(map(len, rows)) < least:
        small = min(range(len(rows)), key=lambda i: (len(rows[i]), i))
        own, own_rows = sets.pop(small), rows.pop(small)
        near = min(range(len(rows)), key=lambda i: _distance(own, sets[i], len(rows[i])))
        sets[near] = [a | b for a, b in zip(own, sets[near], strict=True)]
        rows[near] = np.sort(np.concatenate([own_rows, rows[near]]))
    return rows


def _distance(own: list[set[int]], other: list[set[int]], size: int) -> tuple[int, int, int]:
    """Return how unlike two cells are: differing categories, earlier ones more so; then size."""
    differing = [a != b for a, b in zip(own, other, strict=True)]
    weight = sum(len(differing) - i for i, unlike in enumerate(differing) if unlike)
    return sum(differing), weight, size


def _halved(rows: np.ndarray, numeric_BC: np.ndarray) -> list[np.ndarray]:
    """Halve at the median of the most spread number while both halves have enough graphs."""
    if len(rows) < 2 * HALVED_BY or not numeric_BC.shape[1]:
        return [rows]
    known_C = (~np.isnan(numeric_BC[rows])).sum(axis=0)
    if known_C.max() < 2 * HALVED_BY:
        return [rows]
    spread_C = np.where(known_C >= 2 * HALVED_BY, _moments(numeric_BC[rows])[1], -1)
    value_R = numeric_BC[rows, int(spread_C.argmax())]
    low = value_R <= np.nanmedian(value_R)
    if min(low.sum(), (~low).sum()) < HALVED_BY:
        return [rows]
    return [part for half in (rows[low], rows[~low]) for part in _halved(half, numeric_BC)]


def _widest(part: np.ndarray, wide: list[np.ndarray]) -> np.ndarray:
    """Return the merged cell that holds most of a small one, with the small one's own graphs."""
    most = max(wide, key=lambda rows: np.isin(part, rows).sum())
    return np.union1d(part, most)


def _moments(number_RC: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rounded mean and spread of each number; NaN and one step where too few have it."""
    known_C = (~np.isnan(number_RC)).sum(axis=0)
    enough_C = known_C >= SHARED_BY
    kept_RC = np.where(np.isnan(number_RC), 0.0, number_RC)
    mean_C = kept_RC.sum(axis=0) / np.maximum(known_C, 1)
    away_RC = np.where(np.isnan(number_RC), 0.0, number_RC - mean_C)
    spread_C = np.sqrt((away_RC**2).sum(axis=0) / np.maximum(known_C, 1))
    steps_C = np.maximum((spread_C / SPREAD_STEP).round(), 1.0)
    return (
        np.where(enough_C, (mean_C / MEAN_STEP).round() * MEAN_STEP, np.nan),
        np.where(enough_C, steps_C, 1.0) * SPREAD_STEP,
    )


def _correlation(residual_BC: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Return the correlation of numbers inside cells, to one digit, surely positive definite."""
    known_BC = np.nan_to_num(residual_BC)
    scale_C = np.maximum(np.sqrt((known_BC**2).mean(axis=0)), 1e-9)
    raw_CC = (known_BC / scale_C).T @ (known_BC / scale_C) / len(known_BC)
    shrink = 1.0
    while True:
        matrix_CC = np.round(raw_CC * shrink, 1)
        np.fill_diagonal(matrix_CC, 1.0)
        if not len(matrix_CC) or np.linalg.eigvalsh(matrix_CC)[0] > 0.05:
            return tuple(tuple(row) for row in matrix_CC.tolist())
        shrink *= 0.9
