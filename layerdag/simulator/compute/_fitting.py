"""What the fitted models share: columns of a CSV, and boosted trees of a logarithm."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from layerdag._runtime import read_whole
from layerdag.errors import ConfigError

MIN_ROWS = 20
MAX_CSV_BYTES = 64 << 20


def read_columns(path: str | Path, columns: tuple[str, ...]) -> np.ndarray:
    """Return the named columns, shape (S, C) float64.

    Raises:
        ConfigError: If the file is missing or too large, a column is missing, or a value is no
            number.
    """
    text = read_whole(Path(path), MAX_CSV_BYTES, ConfigError).decode(errors="replace")
    try:
        table: Any = np.genfromtxt(
            io.StringIO(text), delimiter=",", names=True, dtype=np.float64, ndmin=1
        )
    except ValueError as error:
        raise ConfigError(f"{path}: cannot be read as a CSV of numbers ({error}).") from None
    names = table.dtype.names or ()
    for column in columns:
        if column not in names:
            raise ConfigError(f"{path}: lacks the column '{column}'; found {', '.join(names)}.")
    return np.stack([table[column] for column in columns], axis=1)


def fit_log_latency(
    features_SF: np.ndarray, latency_us_S: np.ndarray, seed: int, **arguments: Any
) -> Any:
    """Return a regressor of the logarithm of the latency.

    The loss is the absolute error of the logarithm, so that short operators count as much as
    long ones.

    Args:
        features_SF: Features; NaN where one is unknown.
        latency_us_S: Latencies in microseconds.
        seed: Of the regressor.
        arguments: More arguments of ``HistGradientBoostingRegressor``.

    Raises:
        ConfigError: If there are fewer than 20 samples, or a latency is not a positive number.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    if len(latency_us_S) < MIN_ROWS:
        raise ConfigError(f"has {len(latency_us_S)} samples; at least {MIN_ROWS} are needed.")
    if not (np.isfinite(latency_us_S) & (latency_us_S > 0)).all():
        raise ConfigError("latencies must all be positive numbers.")
    regressor = HistGradientBoostingRegressor(
        loss="absolute_error",
        learning_rate=0.06,
        min_samples_leaf=5,
        random_state=seed,
        **arguments,
    )
    return regressor.fit(features_SF, np.log(latency_us_S))
