"""How good predictions are: correlations and errors, with weights for the bootstrap."""

import numpy as np
from scipy.stats import rankdata

from layerdag.evaluation.metrics import Goal, Metric

SCORES = (
    Metric("pearson", "linear correlation of prediction and target", Goal.HIGHER, -1.0, 1.0),
    Metric("pearson_log", "linear correlation of the logarithms", Goal.HIGHER, -1.0, 1.0),
    Metric("spearman", "rank correlation of prediction and target", Goal.HIGHER, -1.0, 1.0),
    Metric("kendall", "Kendall's tau-b of prediction and target", Goal.HIGHER, -1.0, 1.0),
    Metric("mae", "mean absolute error in the unit of the target", Goal.LOWER),
    Metric("mape", "mean absolute error relative to the target", Goal.LOWER),
)


def scores(
    target_B: np.ndarray, predicted_B: np.ndarray, weights_RB: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Return every score for each row of weights, shape (R,); one row of ones by default.

    Weights say how often each graph is counted. Ranks are those of the whole set, so that the
    Spearman score of a resample is exact only for equal weights. A correlation with a constant is
    NaN, and so is that of the logarithms where a number is not positive; MAPE leaves out targets
    of 0. Where targets span decades, the plain Pearson score hangs on the few largest.
    """
    if weights_RB is None:
        weights_RB = np.ones((1, target_B.size))
    error_B = np.abs(predicted_B - target_B)
    nonzero_B = target_B != 0
    relative_B = error_B[nonzero_B] / np.abs(target_B[nonzero_B])
    return {
        "pearson": _pearson(target_B, predicted_B, weights_RB),
        "pearson_log": _pearson(_log(target_B), _log(predicted_B), weights_RB),
        "spearman": _pearson(rankdata(target_B), rankdata(predicted_B), weights_RB),
        "kendall": _kendall(target_B, predicted_B, weights_RB),
        "mae": _mean(error_B, weights_RB),
        "mape": _mean(relative_B, weights_RB[:, nonzero_B]),
    }


def _log(value_B: np.ndarray) -> np.ndarray:
    """Return logarithms, all NaN where one number is not positive."""
    return np.log(value_B) if (value_B > 0).all() else np.full(value_B.size, np.nan)


def _mean(value_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return weighted means, NaN where there is no weight."""
    total_R = weights_RB.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((weights_RB @ value_B) / total_R)


def _pearson(x_B: np.ndarray, y_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return weighted Pearson correlations."""
    x_RB = x_B - _mean(x_B, weights_RB)[:, None]
    y_RB = y_B - _mean(y_B, weights_RB)[:, None]
    cross_R = (weights_RB * x_RB * y_RB).sum(axis=1)
    norm_R = np.sqrt((weights_RB * x_RB**2).sum(axis=1) * (weights_RB * y_RB**2).sum(axis=1))
    # What rounding leaves of a constant is no spread, whatever the unit of the numbers.
    rounding = 1e-12 * x_B.size * float(np.abs(x_B).max() * np.abs(y_B).max())
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(norm_R > rounding, cross_R / norm_R, np.nan))


def _kendall(x_B: np.ndarray, y_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return weighted Kendall tau-b: sign agreement over pairs, corrected for ties."""
    x_BB = np.sign(x_B[:, None] - x_B[None, :])
    y_BB = np.sign(y_B[:, None] - y_B[None, :])

    def pairs(matrix_BB: np.ndarray) -> np.ndarray:
        return np.einsum("rb,rb->r", weights_RB @ matrix_BB, weights_RB)

    norm_R = np.sqrt(pairs(np.abs(x_BB)) * pairs(np.abs(y_BB)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(norm_R > 0, pairs(x_BB * y_BB) / norm_R, np.nan))
