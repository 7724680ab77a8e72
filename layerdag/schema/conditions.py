"""Conditions of graphs, numeric and categorical, and their k-anonymous table.

A request that leaves conditions open is completed from a table of the training graphs: a mixture of
cells, each with some categories and the distribution of each number.

A row per training graph would reveal the graph. So cells hold at least ``SHARED_BY`` graphs with
similar categories; mean and spread of their numbers are those of at least ``NUMBERS_BY`` graphs,
rounded, and quantiles have ``SHARED_BY`` graphs between neighbors. A small cell takes them from
similar cells, moved by what its categories add elsewhere. Normal scores of the numbers are
correlated (a Gaussian copula: Nelsen, An Introduction to Copulas, 2006), so that draws have the
distribution of training graphs, and an outlier is one rank.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from layerdag.dag.program_numbers import SHARED_BY
from layerdag.errors import VocabularyError
from layerdag.graph.attributed_graph import LABEL, Condition
from layerdag.runtime.settings import did_you_mean
from layerdag.schema.attributes import require_words

UNKNOWN = -1

_NORMAL = NormalDist()
# Of a fitted correlation, so that numbers can be drawn from it.
_LEAST_EIGENVALUE = 0.02
_MOST = 1 << 53
# A request far from a cell moves the open numbers no further than one this many spreads away.
_FARTHEST = 3.0


@dataclass(frozen=True)
class ConditionCell:
    """Training graphs that are alike.

    Attributes:
        values: Codes of each category, -1 for unknown.
        count: Number of graphs, rounded.
        mean: Of each standardized number, rounded; None if too few graphs have it.
        spread: Standard deviation of each number, rounded.
        quantiles: Of each number, ascending pairs of the share of graphs below and the value;
            empty for a normal distribution around the mean, as in earlier versions.
    """

    values: tuple[tuple[int, ...], ...]
    count: int
    mean: tuple[float | None, ...]
    spread: tuple[float, ...]
    quantiles: tuple[tuple[tuple[float, float], ...], ...] = ()

    @property
    def mean_C(self) -> np.ndarray:
        """Means, NaN for None."""
        return np.array(self.mean, dtype=np.float64)


@dataclass(frozen=True)
class ConditionTable:
    """A mixture over cells: categories at random among a cell's, numbers by its quantiles.

    ``correlation`` is that of normal scores inside a cell, rounded. Without conditions, or with too
    few graphs, there are no cells.
    """

    cells: tuple[ConditionCell, ...]
    correlation: tuple[tuple[float, ...], ...]

    def narrowed(self, categories: Sequence[int], numbers: Sequence[int]) -> "ConditionTable":
        """Return the table of some conditions, by their places; without any it is empty."""
        if not self.cells or (not categories and not numbers):
            return NO_TABLE
        cells = tuple(
            ConditionCell(
                tuple(cell.values[i] for i in categories),
                cell.count,
                tuple(cell.mean[i] for i in numbers),
                tuple(cell.spread[i] for i in numbers),
                tuple(cell.quantiles[i] for i in numbers) if cell.quantiles else (),
            )
            for cell in self.cells
        )
        correlation = tuple(tuple(self.correlation[i][j] for j in numbers) for i in numbers)
        return ConditionTable(cells, correlation)

    def draws(
        self, wanted_M: np.ndarray, given_C: np.ndarray, rngs: Iterable[np.random.Generator]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all conditions that fit some given ones, for each source of randomness.

        Codes (M,) are -1 and standardized numbers (C,) NaN where they are open, or unknown to the
        cell. If no cell has all given categories, those with the most are drawn from.
        """
        weight_K = np.exp(self._log_weights(wanted_M, given_C))
        weight_K /= weight_K.sum()
        for rng in rngs:
            cell = self.cells[int(rng.choice(len(self.cells), p=weight_K))]
            code_M = [
                code if code in values and code != UNKNOWN else int(rng.choice(values))
                for code, values in zip(wanted_M.tolist(), cell.values, strict=True)
            ]
            yield np.array(code_M, dtype=np.int64), self._numbers(cell, given_C, rng)

    def holds(self, category_BM: np.ndarray, numeric_BC: np.ndarray) -> np.ndarray:
        """Return whether a cell has the categories of each row, and its numbers nearby, bool (B,).

        Nearby is within 3 spreads of the mean; unknown numbers fit.
        """
        found_B = np.zeros(len(category_BM), dtype=bool)
        for cell in self.cells:
            fits_BM = [
                np.isin(column, values)
                for column, values in zip(category_BM.T, cell.values, strict=True)
            ]
            away_BC = np.abs(numeric_BC - cell.mean_C) / np.array(cell.spread)
            near_BC = np.isnan(away_BC) | (away_BC <= _FARTHEST)
            found_B |= np.all([*fits_BM, near_BC.all(axis=1)], axis=0)
        return found_B

    def log_density(self, category_BM: np.ndarray, numeric_BC: np.ndarray) -> np.ndarray:
        """Return the logarithm of the weight that the table gives to each row, float64 (B,).

        A category that no cell has beside the others costs as much as a number 8 spreads away.
        """
        total = sum(cell.count for cell in self.cells)
        rows = [
            np.logaddexp.reduce(
                [
                    math.log(cell.count / total)
                    + _log_normal(cell, self.correlation, number_C)
                    + sum(
                        -math.log(len(values)) if code in values else -32.0
                        for code, values in zip(code_M.tolist(), cell.values, strict=True)
                    )
                    for cell in self.cells
                ]
            )
            for code_M, number_C in zip(category_BM, numeric_BC, strict=True)
        ]
        return np.array(rows, dtype=np.float64)

    def _log_weights(self, wanted_M: np.ndarray, given_C: np.ndarray) -> np.ndarray:
        """Return log weights of the cells for a request, the largest 0, minus infinity for none."""
        fits_K = np.array(
            [
                sum(
                    code in values and code != UNKNOWN
                    for code, values in zip(wanted_M.tolist(), cell.values, strict=True)
                )
                for cell in self.cells
            ]
        )
        log_K = np.array(
            [
                math.log(cell.count) + _log_normal(cell, self.correlation, given_C)
                for cell in self.cells
            ]
        )
        log_K = np.where(fits_K == fits_K.max(), log_K, -np.inf)
        return log_K - log_K.max()

    def _numbers(
        self, cell: ConditionCell, given_C: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        mean_C, spread_C = cell.mean_C, np.array(cell.spread)
        noise_C = rng.standard_normal(len(mean_C))
        given = np.flatnonzero(~np.isnan(given_C) & ~np.isnan(mean_C))
        free = np.flatnonzero(np.isnan(given_C) & ~np.isnan(mean_C))
        matrix_CC = np.array(self.correlation).reshape(len(mean_C), len(mean_C))
        away = np.clip((given_C - mean_C)[given] / spread_C[given], -_FARTHEST, _FARTHEST)
        slope = np.linalg.solve(matrix_CC[np.ix_(given, given)], matrix_CC[np.ix_(given, free)]).T
        rest = matrix_CC[np.ix_(free, free)] - slope @ matrix_CC[np.ix_(given, free)]
        drawn_C = given_C.copy()
        scaled = slope @ away + np.linalg.cholesky(rest) @ noise_C[free]
        drawn_C[free] = mean_C[free] + spread_C[free] * scaled
        for number, score in zip(free.tolist(), scaled.tolist(), strict=True):
            if cell.quantiles:
                drawn_C[number] = _by_quantiles(cell.quantiles[number], score, drawn_C[number])
        return drawn_C

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data; fingerprints of data sets depend on its very types."""
        cells = [{**asdict(cell), "mean": list(cell.mean)} for cell in self.cells]
        for cell in cells:
            if not cell["quantiles"]:
                del cell["quantiles"]
        return {"cells": cells, "correlation": [list(row) for row in self.correlation]}

    def check(self, num_values: Sequence[int], num_numbers: int) -> None:
        """Raise ValueError unless the table fits these conditions and can be drawn from."""
        if not self.cells:
            return
        for cell in self.cells:
            _check_cell(cell, num_values, num_numbers)
        matrix_CC = np.array(self.correlation).reshape(num_numbers, num_numbers)
        if not np.isfinite(matrix_CC).all() or not np.allclose(matrix_CC, matrix_CC.T):
            raise ValueError("the correlation of the conditions must be finite and symmetric")
        if num_numbers and (
            (matrix_CC.diagonal() != 1).any() or np.linalg.eigvalsh(matrix_CC)[0] < 1e-3
        ):
            raise ValueError("the correlation of the conditions must be positive definite")


NO_TABLE = ConditionTable((), ())


def _check_cell(cell: ConditionCell, num_values: Sequence[int], num_numbers: int) -> None:
    if len(cell.values) != len(num_values) or not len(cell.mean) == len(cell.spread) == num_numbers:
        raise ValueError("a cell does not have one entry for each condition")
    for codes, size in zip(cell.values, num_values, strict=True):
        if not codes or not all(UNKNOWN <= code < size for code in codes):
            raise ValueError("a cell holds a code that its condition lacks")
    known = [m for m in cell.mean if m is not None]
    if not 1 <= cell.count < _MOST or not all(abs(m) < 1e6 for m in known):
        raise ValueError("a cell needs a count and finite means")
    if not all(0 < s < 1e6 for s in cell.spread):
        raise ValueError("a cell needs positive finite spreads")
    if cell.quantiles and len(cell.quantiles) != num_numbers:
        raise ValueError("a cell does not have quantiles for each number")
    for number in cell.quantiles:
        levels, values = ([row[part] for row in number] for part in (0, 1))
        if not all(0 < level < 1 for level in levels) or not all(abs(v) < 1e6 for v in values):
            raise ValueError("quantiles of a cell need levels between 0 and 1 and finite values")
        if levels != sorted(levels) or values != sorted(values):
            raise ValueError("quantiles of a cell must ascend")


def _by_quantiles(quantiles: tuple[tuple[float, float], ...], score: float, normal: float) -> float:
    """Return the value with a normal score; beyond the quantiles the normal one, or the last."""
    if not quantiles:
        return normal
    (first, low), (last, high) = quantiles[0], quantiles[-1]
    level = _NORMAL.cdf(score)
    if level < first:
        return min(normal, low)
    if level > last:
        return max(normal, high)
    return float(np.interp(level, *np.transpose(quantiles)))


def _log_normal(
    cell: ConditionCell, correlation: tuple[tuple[float, ...], ...], number_C: np.ndarray
) -> float:
    mean_C, spread_C = cell.mean_C, np.array(cell.spread)
    known = np.flatnonzero(~np.isnan(number_C) & ~np.isnan(mean_C))
    if not known.size:
        return 0.0
    part = np.array(correlation)[np.ix_(known, known)]
    away = (number_C - mean_C)[known] / spread_C[known]
    squared = float(away @ np.linalg.solve(part, away))
    return -0.5 * (squared + np.linalg.slogdet(part)[1]) - float(np.log(spread_C[known]).sum())


NUMBERS_BY = 20
"""Training graphs behind mean and spread of a cell, where there are as many."""
# Standard deviations of all training graphs to which means and spreads of cells are rounded.
MEAN_STEP = 0.5
SPREAD_STEP = 0.25
FINELY_BY, CORRELATION_STEPS = 200, (10, 20)
"""Correlations are rounded to tenths, and to twentieths where so many programs stand behind them:
scores of one graph among 200 are at most 2.8 and move a correlation by less than a twentieth."""


def fit_table(
    category_BM: np.ndarray, numeric_BC: np.ndarray, program_B: np.ndarray | None = None
) -> ConditionTable:
    """Learn the table from the encoded conditions of training graphs, -1 and NaN for unknown.

    Graphs with equal categories form a cell. Cells of fewer than ``SHARED_BY`` graphs are merged
    with the cell that differs in the fewest categories. Cells of fewer than ``NUMBERS_BY`` share
    numbers with the most similar cells, moved by the main effects of differing categories.
    ``program_B`` numbers the program of each graph, of which only distinct ones count. The table is
    empty for fewer than ``SHARED_BY`` graphs, or without conditions.
    """
    program_B = np.arange(len(category_BM)) if program_B is None else program_B
    few = _count(program_B) < SHARED_BY
    if few or category_BM.shape[1] + numeric_BC.shape[1] == 0:
        return NO_TABLE
    wide = _merged(category_BM, NUMBERS_BY, program_B)
    effect_BC = _main_effects(category_BM, numeric_BC, program_B)
    cells, scores = [], []
    for rows in _merged(category_BM, SHARED_BY, program_B):
        values = tuple(tuple(sorted(set(column))) for column in category_BM[rows].T.tolist())
        of, number_RC = rows, numeric_BC[rows]
        if _count(program_B[rows]) < NUMBERS_BY:
            of = _widest(rows, wide)
            number_RC = numeric_BC[of] - effect_BC[of] + effect_BC[rows].mean(axis=0)
        mean_C, spread_C = _moments(number_RC, program_B[of])
        scores.append(_normal_scores(numeric_BC[rows]))
        count = max(SHARED_BY, round(len(rows) / SHARED_BY) * SHARED_BY)
        quantiles = tuple(_quantiles(column_R, program_B[of]) for column_R in number_RC.T)
        mean = tuple(None if math.isnan(m) else m for m in mean_C.tolist())
        cells.append(ConditionCell(values, count, mean, tuple(spread_C.tolist()), quantiles))
    correlation = _correlation(np.concatenate(scores), _count(program_B))
    return ConditionTable(tuple(cells), correlation)


def _count(program_R: np.ndarray) -> int:
    return len(np.unique(program_R))


def _merged(category_BM: np.ndarray, least: int, program_B: np.ndarray) -> list[np.ndarray]:
    codes, cell_B = np.unique(category_BM, axis=0, return_inverse=True)
    rows = [np.flatnonzero(cell_B.ravel() == i) for i in range(len(codes))]
    sets = [[{code} for code in line] for line in codes.tolist()]
    counts = [_count(program_B[row_R]) for row_R in rows]
    while len(rows) > 1 and min(counts) < least:
        small = min(range(len(rows)), key=lambda i: (counts[i], i))
        own, own_rows, _ = sets.pop(small), rows.pop(small), counts.pop(small)
        near = min(range(len(rows)), key=lambda i: _distance(own, sets[i], len(rows[i])))
        sets[near] = [a | b for a, b in zip(own, sets[near], strict=True)]
        rows[near] = np.sort(np.concatenate([own_rows, rows[near]]))
        counts[near] = _count(program_B[rows[near]])
    return rows


def _distance(own: list[set[int]], other: list[set[int]], size: int) -> tuple[int, int, int]:
    """Return how unlike two cells are: differing categories, earlier ones more so; then size."""
    differing = [a != b for a, b in zip(own, other, strict=True)]
    weight = sum(len(differing) - i for i, unlike in enumerate(differing) if unlike)
    return sum(differing), weight, size


def _known(number_RC: np.ndarray, program_R: np.ndarray) -> np.ndarray:
    return np.array([_count(program_R[~np.isnan(column_R)]) for column_R in number_RC.T])


def _widest(part: np.ndarray, wide: list[np.ndarray]) -> np.ndarray:
    most = max(wide, key=lambda rows: np.isin(part, rows).sum())
    return np.union1d(part, most)


def _main_effects(
    category_BM: np.ndarray, numeric_BC: np.ndarray, program_B: np.ndarray
) -> np.ndarray:
    """Return what the categories of each row add to the mean of its numbers, (B, C).

    Found by least squares. Values of fewer than ``NUMBERS_BY`` programs add nothing.
    """
    shared = [
        category_BM[:, m] == code
        for m in range(category_BM.shape[1])
        for code in np.unique(category_BM[:, m])
        if _count(program_B[category_BM[:, m] == code]) >= NUMBERS_BY
    ]
    effect_BC = np.zeros(numeric_BC.shape)
    if not shared:
        return effect_BC
    value_BK = np.column_stack(shared).astype(np.float64)
    for c, number_B in enumerate(numeric_BC.T):
        known_B = ~np.isnan(number_B)
        if known_B.any():
            away_B = number_B[known_B] - number_B[known_B].mean()
            # The smallest of all solutions: strategy and number of ranks tell the same in part.
            effect_BC[:, c] = value_BK @ np.linalg.lstsq(value_BK[known_B], away_B, rcond=None)[0]
    return effect_BC


def _moments(number_RC: np.ndarray, program_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rounded mean and spread of each number; NaN and one step where too few have it."""
    known_C = (~np.isnan(number_RC)).sum(axis=0)
    enough_C = _known(number_RC, program_R) >= SHARED_BY
    kept_RC = np.where(np.isnan(number_RC), 0.0, number_RC)
    mean_C = kept_RC.sum(axis=0) / np.maximum(known_C, 1)
    away_RC = np.where(np.isnan(number_RC), 0.0, number_RC - mean_C)
    spread_C = np.sqrt((away_RC**2).sum(axis=0) / np.maximum(known_C, 1))
    steps_C = np.maximum((spread_C / SPREAD_STEP).round(), 1.0)
    return (
        np.where(enough_C, (mean_C / MEAN_STEP).round() * MEAN_STEP, np.nan),
        np.where(enough_C, steps_C, 1.0) * SPREAD_STEP,
    )


def _quantiles(value_R: np.ndarray, program_R: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Return quantiles of a number over programs, and the share of graphs below each.

    Graphs at a quantile count half. None where fewer than two have ``SHARED_BY`` programs beyond.
    """
    known_R = ~np.isnan(value_R)
    value_R, program_R = value_R[known_R], program_R[known_R]
    if _count(program_R) < 2 * SHARED_BY:
        return ()
    quantile_Q = np.unique(np.round(_shared_quantiles(_of_programs(value_R, program_R)), 2))
    near_R = value_R.round(2)[:, None]
    level_Q = ((near_R < quantile_Q).mean(axis=0) + (near_R <= quantile_Q).mean(axis=0)) / 2
    level_Q = np.clip(level_Q.round(2), 0.01, 0.99)
    return tuple(zip(level_Q.tolist(), quantile_Q.tolist(), strict=True))


def _normal_scores(number_RC: np.ndarray) -> np.ndarray:
    """Return normal scores of the ranks of each number inside a cell; NaN for unknown."""
    score_RC = np.full(number_RC.shape, np.nan)
    for number_R, score_R in zip(number_RC.T, score_RC.T, strict=True):
        known_R = ~np.isnan(number_R)
        _, inverse_R, count_Q = np.unique(
            number_R[known_R], return_inverse=True, return_counts=True
        )
        # Equal numbers share the mean of their ranks.
        level_Q = (np.cumsum(count_Q) - count_Q / 2) / max(known_R.sum(), 1)
        score_R[known_R] = np.array([_NORMAL.inv_cdf(level) for level in level_Q.tolist()])[
            inverse_R
        ]
    return score_RC


def _correlation(score_BC: np.ndarray, programs: int) -> tuple[tuple[float, ...], ...]:
    known_BC = np.nan_to_num(score_BC)
    scale_C = np.maximum(np.sqrt((known_BC**2).mean(axis=0)), 1e-9)
    raw_CC = (known_BC / scale_C).T @ (known_BC / scale_C) / len(known_BC)
    steps = CORRELATION_STEPS[programs >= FINELY_BY]
    shrink = 1.0
    while True:
        matrix_CC = np.round(raw_CC * shrink * steps) / steps
        np.fill_diagonal(matrix_CC, 1.0)
        if not len(matrix_CC) or np.linalg.eigvalsh(matrix_CC)[0] > _LEAST_EIGENVALUE:
            return tuple(tuple(row) for row in matrix_CC.tolist())
        shrink *= 1 - 1 / steps


# exp of more is no float.
_LARGEST_LOG = 700.0
# Standard deviations within which the scale of a checkpoint must give numbers.
_ROOM = 40.0
# Positive values spread over more than this ratio are standardized on a log scale.
LOG_SPREAD = 20.0
MOST_QUANTILES = 21


@dataclass(frozen=True)
class NumericCondition:
    """A graph-level number, standardized by the training data.

    ``mean`` (to a hundredth of ``std``) and ``std`` (3 digits) are those of the training values, or
    of their natural logarithms if ``log``. ``quantiles`` are at most 21, evenly spaced, of 3
    digits, with ``SHARED_BY`` graphs beyond the outer ones and between neighbors; the median
    alone if there are too few graphs.
    """

    name: str
    mean: float
    std: float
    log: bool
    quantiles: tuple[float, ...]

    def draw_range(self) -> tuple[float, float]:
        """Return the smallest and largest value that several training graphs reach."""
        return self.quantiles[0], self.quantiles[-1]

    @classmethod
    def fit(
        cls, name: str, values: Sequence[float], program_B: np.ndarray | None = None
    ) -> "NumericCondition":
        """Learn the scale from training values; those that are not finite are unknown."""
        value_B = np.asarray(values, dtype=np.float64)
        known_B = np.isfinite(value_B)
        program_B = np.arange(value_B.size) if program_B is None else program_B
        value_B, program_B = value_B[known_B], program_B[known_B]
        if not value_B.size:
            return cls(name, mean=0.0, std=1.0, log=False, quantiles=(0.0,))
        log = bool(value_B.min() > 0 and value_B.max() / value_B.min() > LOG_SPREAD)
        scaled_B = np.log(value_B) if log else value_B
        std = float(f"{max(float(scaled_B.std()), 1e-6):.3g}")
        unit = 10.0 ** (math.floor(math.log10(std)) - 2)
        mean = round(float(scaled_B.mean()) / unit) * unit
        return cls(name, mean, std, log, _shared_quantiles(_of_programs(value_B, program_B)))

    def check(self) -> None:
        """Raise ValueError unless the scale gives numbers."""
        if not self.quantiles or not np.isfinite([self.mean, self.std, *self.quantiles]).all():
            raise ValueError("mean, std and quantiles must be finite")
        if self.std <= 0:
            raise ValueError("std must be positive")
        if abs(self.mean) + _ROOM * self.std > (_LARGEST_LOG if self.log else 1e300):
            raise ValueError(f"values of {_ROOM:g} deviations from the mean must be numbers")

    def encode(self, value: Condition | None) -> float:
        """Return the standardized value, NaN for None.

        Raises VocabularyError if the value is no finite number, or not positive on a log scale.
        """
        if value is None:
            return math.nan
        try:
            number = float(value)
            scaled = ((math.log(number) if self.log else number) - self.mean) / self.std
            if math.isinf(scaled):
                raise ValueError("not finite")
            return scaled
        except (ValueError, TypeError, OverflowError):
            wanted = "a positive number" if self.log else "a number"
            raise VocabularyError(
                f"Condition '{self.name}' must be {wanted}, found {value!r}; most training "
                f"graphs have {self.quantiles[0]:.4g} to {self.quantiles[-1]:.4g}."
            ) from None

    def decode(self, scaled: float) -> float:
        """Return the value in its own unit for a standardized one."""
        number = scaled * self.std + self.mean
        return math.exp(min(number, _LARGEST_LOG)) if self.log else number


def _of_programs(value_B: np.ndarray, program_B: np.ndarray) -> np.ndarray:
    if _count(program_B) == value_B.size:
        return value_B
    order_B = np.argsort(program_B, kind="stable")
    starts = np.unique(program_B[order_B], return_index=True)[1]
    return np.array([np.median(run) for run in np.split(value_B[order_B], starts[1:])])


def _shared_quantiles(value_B: np.ndarray) -> tuple[float, ...]:
    outside = min(SHARED_BY, (value_B.size + 1) // 2) - 1
    count = max(1, min(MOST_QUANTILES, value_B.size // SHARED_BY))
    positions = np.linspace(outside, value_B.size - 1 - outside, count)
    levels = positions / max(value_B.size - 1, 1) if count > 1 else 0.5
    return tuple(float(f"{q:.3g}") for q in np.atleast_1d(np.quantile(value_B, levels)))


@dataclass(frozen=True)
class CategoryCondition:
    """A graph-level category; a value's code is its position."""

    name: str
    values: tuple[str, ...]

    def check(self) -> None:
        """Raise ValueError unless the words can be those of a vocabulary."""
        require_words(self.values)

    def encode(self, value: Condition | None) -> int:
        """Return the code, -1 for None.

        Raises VocabularyError if the category is unknown; names the nearest.
        """
        if value is None:
            return -1
        word = str(value)
        if word not in self.values:
            raise VocabularyError(
                f"Condition '{self.name}' has no value '{word}'.{did_you_mean(word, self.values)} "
                f"Known: {', '.join(self.values)}."
            )
        return self.values.index(word)


def fit_conditions(
    rows: Sequence[Mapping[str, Condition]],
    program_B: np.ndarray | None = None,
) -> tuple[tuple[NumericCondition, ...], tuple[CategoryCondition, ...]]:
    """Return the conditions of training graphs; one that any graph gives in words is a category.

    The label is a number in any case: as a category it would keep the exact label of every graph.
    Raises VocabularyError if a label is no number.
    """
    program_B = np.arange(len(rows)) if program_B is None else program_B
    names = dict.fromkeys(name for row in rows for name in row)
    found = {name: [row[name] for row in rows if name in row] for name in names}
    texts = {name for name, values in found.items() if any(isinstance(v, str) for v in values)}
    texts -= {LABEL}
    having = {name: np.array([name in row for row in rows], dtype=bool) for name in names}
    numeric = tuple(
        NumericCondition.fit(name, [_number(name, v) for v in values], program_B[having[name]])
        for name, values in found.items()
        if name not in texts
    )
    category = tuple(
        CategoryCondition(name, tuple(sorted({str(v) for v in values})))
        for name, values in found.items()
        if name in texts
    )
    return numeric, category


def _number(name: str, value: Condition) -> float:
    try:
        return float(value)
    except ValueError:
        raise VocabularyError(
            f"Condition '{name}' must be a number, found '{value}'; leave it out where it is not "
            "known."
        ) from None
