"""The contract of every surrogate: predict a number from a DAG, and save as plain arrays."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.errors import UsageError
from layerdag.graph import DAG

REACH = 0.5


@dataclass(frozen=True)
class TargetScale:
    """Turns targets into standardized numbers and back; positive targets go through the logarithm.

    Attributes:
        log: True where the logarithm is standardized instead of the value.
        mean: Mean of the (log) training targets.
        std: Their standard deviation.
        low: Least standardized training target.
        high: Greatest standardized training target.
    """

    log: bool
    mean: float
    std: float
    low: float = -np.inf
    high: float = np.inf

    @classmethod
    def fit(cls, target_B: np.ndarray, log: bool | None = None) -> "TargetScale":
        """Measure the scale of training targets.

        Args:
            target_B: The targets.
            log: Whether the logarithm is standardized; by default where all are positive.

        Raises:
            UsageError: If there are fewer than two targets, or one is not finite.
        """
        if target_B.size < 2 or not np.isfinite(target_B).all():
            raise UsageError(
                f"A surrogate needs at least two graphs with finite targets, found "
                f"{target_B.size} graphs of which {int((~np.isfinite(target_B)).sum())} have none; "
                "label the graphs."
            )
        log = bool((target_B > 0).all()) if log is None else log
        value_B = np.log(target_B) if log else target_B
        mean, std = float(value_B.mean()), float(max(value_B.std(), 1e-8))
        low, high = (float((edge - mean) / std) for edge in (value_B.min(), value_B.max()))
        return cls(log, mean, std, low, high)

    def standardize(self, target_B: np.ndarray) -> np.ndarray:
        """Return standardized targets."""
        value_B = np.log(np.maximum(target_B, 1e-300)) if self.log else target_B
        return (value_B - self.mean) / self.std

    def restore(self, standard_B: np.ndarray) -> np.ndarray:
        """Return targets in their own unit, at most ``REACH`` deviations beyond those seen.

        Without this limit one wild extrapolation, once exponentiated, outweighs all other graphs.
        """
        limited_B = np.clip(standard_B, self.low - REACH, self.high + REACH)
        value_B = limited_B * self.std + self.mean
        return np.exp(value_B) if self.log else value_B


class SurrogateModel(ABC):
    """A fitted model that predicts one number per graph, in the unit of the training targets."""

    @property
    @abstractmethod
    def family(self) -> str:
        """Name of the family, as files and reports know it."""

    @abstractmethod
    def predict(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return one prediction a graph, float64 (B,)."""

    def spread(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return how unsure the model is of each graph, positive, in any unit, float64 (B,).

        Intervals are widened by it. By default all graphs are alike.
        """
        return np.ones(len(dags))

    def shares_arrays(self, other: "SurrogateModel") -> bool:
        """Return whether another model has the very same arrays, so that a file holds them once."""
        del other
        return False

    @abstractmethod
    def config(self) -> Mapping[str, object]:
        """Return everything but the arrays, as JSON-serializable data."""

    @abstractmethod
    def arrays(self) -> Mapping[str, np.ndarray]:
        """Return the learned arrays by name."""
