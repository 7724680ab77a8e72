"""Learned latency of element-wise operators: gradient boosting over shapes, trained from a CSV.

Features are those published with SCALE-Sim's TPU branch: the first input's shape padded or
flattened to three dimensions, its size and the logarithm of the size.
"""

from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import ConfigError
from layerdag.simulator.compute._fitting import fit_log_latency, read_columns

COLUMNS = ("d0", "d1", "d2")


class ElementwiseLatency:
    """A fitted model; make one with ``fit`` or ``from_csv``."""

    def __init__(self, regressor: Any, num_samples: int) -> None:
        self._regressor = regressor
        self.num_samples = num_samples

    @classmethod
    def from_csv(
        cls, path: str | Path, target: str = "latency_us", seed: int = 0
    ) -> "ElementwiseLatency":
        """Fit to a CSV with the columns d0, d1, d2 and ``target`` (microseconds).

        Raises:
            ConfigError: If the file is missing, a column lacks, or a value is no number.
        """
        table_S4 = read_columns(path, (*COLUMNS, target))
        try:
            return cls.fit(table_S4[:, :3], table_S4[:, 3], seed)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @classmethod
    def fit(
        cls, shapes_S3: np.ndarray, latency_us_S: np.ndarray, seed: int = 0
    ) -> "ElementwiseLatency":
        """Fit to shapes and latencies.

        Raises:
            ConfigError: If there are fewer than 20 samples, or a value is not a positive number.
        """
        if not (np.isfinite(shapes_S3) & (shapes_S3 > 0)).all():
            raise ConfigError("shapes and latencies must all be positive numbers.")
        regressor = fit_log_latency(_features(shapes_S3), latency_us_S, seed)
        return cls(regressor, len(shapes_S3))

    def microseconds(self, shapes_S3: np.ndarray) -> np.ndarray:
        """Return the predicted latency of each shape, shape (S,)."""
        return np.exp(self._regressor.predict(_features(shapes_S3)))


def _features(shapes_S3: np.ndarray) -> np.ndarray:
    """Return d0, d1, d2, size and log2(size), shape (S, 5)."""
    size_S = shapes_S3.prod(axis=1)
    return np.column_stack([shapes_S3, size_S, np.log2(size_S)])


def three_dimensions(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return a shape as three sizes: ones in front, or all but the last two flattened."""
    if len(shape) > 3:
        shape = (int(np.prod(shape[:-2])), *shape[-2:])
    padded = (1,) * (3 - len(shape)) + tuple(shape)
    return padded[0], padded[1], padded[2]
