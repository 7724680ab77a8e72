"""What a checkpoint promises about the runs it was tuned on."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Guarantee:
    """Differential privacy of the weights, as recorded in ``meta.json``.

    Attributes:
        epsilon: Bound of the privacy loss; None if no noise was added: then nothing is promised.
        delta: Probability with which the bound may fail.
        unit: "run" or "owner".
        neighbors: Between which data sets the bound holds.
        accountant: What computed it.
        noise_multiplier: Standard deviation of the noise over the clipping norm.
        sampling_rate: Probability with which a unit takes part in a step.
        steps: Of tuning.
        clip: Largest norm of a unit's gradient.
        trained_parameters: Number of parameters that were tuned.
        noise: Generator of noise and samples, and where its key comes from.
        lower_bound: Of epsilon, measured with canaries; None if none took part.
    """

    epsilon: float | None
    delta: float
    unit: str
    neighbors: str
    accountant: str
    noise_multiplier: float
    sampling_rate: float
    steps: int
    clip: float
    trained_parameters: int
    noise: str
    lower_bound: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as JSON-serializable data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object) -> "Guarantee | None":
        """Return what ``to_dict`` made; None for nothing.

        Raises:
            TypeError, ValueError, KeyError: If an entry is missing or of another type.
        """
        if data is None:
            return None
        if not isinstance(data, Mapping):
            raise TypeError("privacy is no group of entries")
        values: dict[str, Any] = {
            **{name: str(data[name]) for name in ("unit", "neighbors", "accountant", "noise")},
            **{name: _number(data[name]) for name in ("delta", "noise_multiplier")},
            **{name: _number(data[name]) for name in ("sampling_rate", "clip")},
            **{name: int(_number(data[name])) for name in ("steps", "trained_parameters")},
            **{
                name: None if data[name] is None else _number(data[name])
                for name in ("epsilon", "lower_bound")
            },
        }
        return cls(**values)

    def __str__(self) -> str:
        """Return one sentence."""
        if self.epsilon is None:
            return "clipped, but without noise: nothing is promised"
        return (
            f"(epsilon = {self.epsilon:.3g}, delta = {self.delta:.1g}) differential privacy of "
            f"each {self.unit}, {self.accountant}"
        )


def _number(value: object) -> float:
    """Return a finite number. Raises TypeError or ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"found {value!r:.40} where a number belongs")
    if not math.isfinite(value):
        raise ValueError(f"found {value!r:.40} where a finite number belongs")
    return float(value)
