"""The settings of differentially private tuning, checked when they are made.

The node ``privacy`` of configs/train.yaml has the same keys.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from layerdag.errors import ConfigError

AUTO: Literal["auto"] = "auto"


@dataclass(frozen=True)
class Privacy:
    """What is promised, and how the few parameters are tuned.

    The defaults were chosen on public graphs alone (docs/dev/decisions.md, "Differential
    privacy"). Parameters are in units of how often the public graphs have a code.

    Attributes:
        epsilon: Bound of the privacy loss; infinity clips and adds no noise. None: no private
            tuning.
        delta: Probability with which the bound may fail; "auto" is half of one over the number of
            units, rounded down to one digit.
        unit: Whose whole contribution is protected: each "run" (one graph), or each "owner".
        owners: CSV file with the columns ``graph`` and ``owner``, for ``unit="owner"``.
        clip: Largest norm of a unit's gradient, of nats per node. About half were smaller on public
            graphs: were all clipped, every unit would count alike, whatever its size.
        steps: Steps of tuning; at the same epsilon the noise in the sum of all of them hardly
            depends on their number.
        sampling_rate: Probability with which a unit takes part in a step, on its own draw.
        learning_rate: Of a step, times the mean clipped gradient over ``clip``.
        momentum: Of the steps.
        rank: Of the low-rank adapters of the readouts; 0 tunes their biases alone.
        canaries: Canary graphs, each included with probability 1/2, to measure a lower bound of the
            privacy loss; even. They cost utility: for runs that audit, not for weights to share.
    """

    epsilon: float | None = None
    delta: float | Literal["auto"] = AUTO
    unit: Literal["run", "owner"] = "run"
    owners: Path | None = None
    clip: float = 0.05
    steps: int = 100
    sampling_rate: float = 0.25
    learning_rate: float = 1.0
    momentum: float = 0.9
    rank: int = 1
    canaries: int = 0

    def __post_init__(self) -> None:
        _require(self.epsilon is None or self.epsilon > 0, "epsilon", self.epsilon, "above 0")
        is_share = self.delta == AUTO or 0 < float(self.delta) < 1
        _require(is_share, "delta", self.delta, "between 0 and 1, or auto")
        for name in ("clip", "learning_rate"):
            value = getattr(self, name)
            _require(0 < value < math.inf, name, value, "above 0")
        _require(0 < self.sampling_rate <= 1, "sampling_rate", self.sampling_rate, "in (0, 1]")
        _require(0 <= self.momentum < 1, "momentum", self.momentum, "in [0, 1)")
        _require(self.steps >= 1, "steps", self.steps, "at least 1")
        _require(self.rank >= 0, "rank", self.rank, "at least 0")
        even = self.canaries >= 0 and self.canaries % 2 == 0
        _require(even, "canaries", self.canaries, "an even number")
        _require(
            (self.unit == "owner") == (self.owners is not None), "owners", self.owners,
            "a CSV file with privacy.unit=owner, and nothing with privacy.unit=run",
        )  # fmt: skip

    @property
    def is_on(self) -> bool:
        """Whether private tuning is asked for."""
        return self.epsilon is not None

    def delta_for(self, num_units: int) -> float:
        """Return delta as a number, for so many units."""
        if self.delta != AUTO:
            return float(self.delta)
        most = 1 / (2 * max(num_units, 2))
        digit = 10.0 ** math.floor(math.log10(most))
        return float(f"{math.floor(most / digit) * digit:.0e}")


def _require(holds: bool, name: str, found: object, wanted: str) -> None:
    """Raise ConfigError about ``privacy.<name>`` unless the bound holds."""
    if not holds:
        raise ConfigError(f"privacy.{name} must be {wanted}, found {found!r:.60}.")
