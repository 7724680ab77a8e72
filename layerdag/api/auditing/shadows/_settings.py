"""How many shadow models an audit trains, and for how long."""

from dataclasses import dataclass
from pathlib import Path

from layerdag.errors import UsageError

LEAST_SHADOWS = 16
"""Shadow models below which the likelihood ratio is not looked at."""
BUDGET = 600.0
"""Seconds for all shadow models, unless steps or seconds are named."""


@dataclass(frozen=True)
class ShadowSettings:
    """Shadow models of an audit.

    Attributes:
        count: Number of models, at least 16.
        steps: Most optimizer steps of each. None is as many passes over its graphs as the audited
            checkpoint made over its own.
        budget: Wall-clock seconds for training all of them, an equal share for each; None is ten
            minutes, or no limit where ``steps`` says how long.
        init: The checkpoint that the audited one started from, where it is not the shipped one.
        folder: Where their losses are kept, so that a stopped audit goes on; None keeps nothing.
        seed: Of halves, weights and order.

    Raises:
        UsageError: If a value is out of bounds, or both limits are named.
    """

    count: int = LEAST_SHADOWS
    steps: int | None = None
    budget: float | None = None
    init: str | Path | None = None
    folder: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < LEAST_SHADOWS:
            raise UsageError(
                f"An audit needs at least {LEAST_SHADOWS} shadow models, found {self.count}: fewer "
                "cannot tell how likely a graph is without having been trained on."
            )
        if self.steps is not None and self.budget is not None:
            raise UsageError(
                "Shadow models are limited by steps or by seconds, and both were named; leave one "
                "of them out."
            )
        if self.steps is not None and self.steps < 1:
            raise UsageError(f"Shadow models need at least 1 step each, found {self.steps}.")
        if self.budget is not None and not 0 < self.budget < float("inf"):
            raise UsageError(f"Shadow models need a budget above 0 seconds, found {self.budget:g}.")
        if self.seed < 0:
            raise UsageError(f"The seed of shadow models must not be negative, found {self.seed}.")

    @property
    def seconds(self) -> float | None:
        """Seconds that training one model may take; None for no limit."""
        if self.budget is None and self.steps is not None:
            return None
        return (BUDGET if self.budget is None else self.budget) / self.count
