"""What training graphs were like, as a table that names none of them (``condition_fit.py``).

A request that leaves conditions open is completed from it: drawing from the table is drawing from a
mixture of cells, each with some categories and with numbers that are normal around its means.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

UNKNOWN = -1

_MOST = 1 << 53
# A request far from a cell moves the open numbers no further than one this many spreads away.
_FARTHEST = 3.0


@dataclass(frozen=True)
class ConditionCell:
    """Training graphs that are alike.

    Attributes:
        values: Codes of each category that these graphs have; -1 is unknown.
        count: Number of graphs, rounded.
        mean: Of each standardized number, rounded; NaN where too few graphs have one.
        spread: Standard deviation of each number, rounded, positive.
    """

    values: tuple[tuple[int, ...], ...]
    count: int
    mean: tuple[float, ...]
    spread: tuple[float, ...]


@dataclass(frozen=True)
class ConditionTable:
    """A mixture over cells: categories at random among a cell's, numbers normal around its mean.

    Attributes:
        cells: Empty where there are too few graphs, or no conditions.
        correlation: Of the numbers inside a cell, the same for all, to one digit.
    """

    cells: tuple[ConditionCell, ...] = ()
    correlation: tuple[tuple[float, ...], ...] = ()

    def narrowed(self, categories: Sequence[int], numbers: Sequence[int]) -> "ConditionTable":
        """Return the table of some conditions, by their places; without any it is empty."""
        if not self.cells or (not categories and not numbers):
            return ConditionTable()
        cells = tuple(
            ConditionCell(
                tuple(cell.values[i] for i in categories),
                cell.count,
                tuple(cell.mean[i] for i in numbers),
                tuple(cell.spread[i] for i in numbers),
            )
            for cell in self.cells
        )
        correlation = tuple(tuple(self.correlation[i][j] for j in numbers) for i in numbers)
        return ConditionTable(cells, correlation)

    def draws(
        self, wanted_M: np.ndarray, given_C: np.ndarray, rngs: Iterable[np.random.Generator]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield, for each source of randomness, all conditions that go with some given ones.

        Args:
            wanted_M: Code of each given category, -1 for open ones. Where no cell has all of them,
                those with the most are drawn from.
            given_C: Given standardized numbers, NaN for open ones.
            rngs: Sources of randomness.

        Yields:
            Codes (M,) and numbers (C,), -1 and NaN where the cell does not know them.
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

        Nearby is within 3 spreads of the mean; what is unknown on either side is no obstacle.
        """
        found_B = np.zeros(len(category_BM), dtype=bool)
        for cell in self.cells:
            fits_BM = [
                np.isin(column, values)
                for column, values in zip(category_BM.T, cell.values, strict=True)
            ]
            away_BC = np.abs(numeric_BC - np.array(cell.mean)) / np.array(cell.spread)
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
        """Draw the open numbers of a cell from their distribution beside the given ones."""
        mean_C, spread_C = np.array(cell.mean), np.array(cell.spread)
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
        return drawn_C

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data; None stands for NaN."""
        cells = [
            {**asdict(cell), "mean": [None if math.isnan(m) else m for m in cell.mean]}
            for cell in self.cells
        ]
        return {"cells": cells, "correlation": [list(row) for row in self.correlation]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ConditionTable":
        """Rebuild from ``to_dict``. Raises KeyError, TypeError or ValueError if malformed."""
        cells = tuple(
            ConditionCell(
                tuple(tuple(_code(code) for code in values) for values in cell["values"]),
                int(cell["count"]),
                tuple(math.nan if m is None else float(m) for m in cell["mean"]),
                tuple(float(s) for s in cell["spread"]),
            )
            for cell in data["cells"]
        )
        return cls(cells, tuple(tuple(float(c) for c in row) for row in data["correlation"]))

    def check(self, num_values: Sequence[int], num_numbers: int) -> None:
        """Raise ValueError unless the table fits conditions and can be drawn from.

        Args:
            num_values: Number of values of each category.
            num_numbers: Number of numeric conditions.
        """
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


def _check_cell(cell: ConditionCell, num_values: Sequence[int], num_numbers: int) -> None:
    """Raise ValueError unless a cell has codes that exist and numbers that can be drawn."""
    if len(cell.values) != len(num_values) or not len(cell.mean) == len(cell.spread) == num_numbers:
        raise ValueError("a cell does not have one entry for each condition")
    for codes, size in zip(cell.values, num_values, strict=True):
        if not codes or not all(UNKNOWN <= code < size for code in codes):
            raise ValueError("a cell holds a code that its condition lacks")
    known = [m for m in cell.mean if not math.isnan(m)]
    if not 1 <= cell.count < _MOST or not all(abs(m) < 1e6 for m in known):
        raise ValueError("a cell needs a count and finite means")
    if not all(0 < s < 1e6 for s in cell.spread):
        raise ValueError("a cell needs positive finite spreads")


def _code(value: Any) -> int:
    """Return a whole number, or raise TypeError."""
    if type(value) is not int:
        raise TypeError(f"a code must be a whole number, found {value!r:.40}")
    return value


def _log_normal(
    cell: ConditionCell, correlation: tuple[tuple[float, ...], ...], number_C: np.ndarray
) -> float:
    """Return the log density of the known numbers in a cell."""
    mean_C, spread_C = np.array(cell.mean), np.array(cell.spread)
    known = np.flatnonzero(~np.isnan(number_C) & ~np.isnan(mean_C))
    if not known.size:
        return 0.0
    part = np.array(correlation)[np.ix_(known, known)]
    away = (number_C - mean_C)[known] / spread_C[known]
    squared = float(away @ np.linalg.solve(part, away))
    return -0.5 * (squared + np.linalg.slogdet(part)[1]) - float(np.log(spread_C[known]).sum())
