"""Requests that a process makes: when they come, and how long they are."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from layerdag.errors import ConfigError
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.settings import did_you_mean
from layerdag.serving.requests import MOST_REQUESTS, MOST_TOKENS, Requests

Process = Literal["poisson", "gamma", "constant"]
PROCESSES: tuple[Process, ...] = ("poisson", "gamma", "constant")
"""Gaps between arrivals: exponential; gamma with a coefficient of variation; all equal."""
LENGTHS = "N, uniform:LOW-HIGH, lognormal:MEDIAN,SIGMA or exponential:MEAN"


@dataclass(frozen=True)
class Arrivals:
    """A process that makes requests.

    Attributes:
        rate: Requests per second; 0 for all at once, as a limit on concurrency needs them.
        requests: How many.
        inputs: Tokens of prompts, as ``LENGTHS`` says.
        outputs: Tokens of answers.
        process: One of ``PROCESSES``.
        variation: Coefficient of variation of the gaps of a gamma process; above 1 is burstier
            than Poisson.
        seed: Of all draws.

    Raises:
        ConfigError: If a number is not possible or a word is not known.
    """

    rate: float = 1.0
    requests: int = 1000
    inputs: str = "1024"
    outputs: str = "256"
    process: Process = "poisson"
    variation: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.process not in PROCESSES:
            raise ConfigError(
                f"arrivals: there is no process '{self.process}'."
                f"{did_you_mean(self.process, PROCESSES)} Known are {', '.join(PROCESSES)}."
            )
        if not 0 <= self.rate < float("inf"):
            raise ConfigError(f"arrivals: rate is {self.rate}; give requests per second.")
        if not 1 <= self.requests <= MOST_REQUESTS:
            raise ConfigError(
                f"arrivals: {self.requests} requests; give 1 to {MOST_REQUESTS:,} of them."
            )
        if not 0 < self.variation < float("inf"):
            raise ConfigError(f"arrivals: variation is {self.variation}; it must be positive.")

    def draw(self) -> Requests:
        """Return the requests; equal seeds give equal ones.

        Raises:
            ConfigError: If a length is not of its form.
        """
        gaps = self._gaps(numpy_generator(self.seed, "serving", "arrivals"))
        inputs, outputs = (
            lengths_of(text, self.requests, numpy_generator(self.seed, "serving", name))
            for name, text in (("inputs", self.inputs), ("outputs", self.outputs))
        )
        arrival_s = np.cumsum(gaps)
        return Requests(arrival_s - arrival_s[0], inputs, outputs)

    def _gaps(self, generator: np.random.Generator) -> np.ndarray:
        if not self.rate:
            return np.zeros(self.requests)
        mean = 1 / self.rate
        if self.process == "constant":
            return np.full(self.requests, mean)
        if self.process == "poisson":
            return generator.exponential(mean, self.requests)
        shape = 1 / self.variation**2
        return generator.gamma(shape, mean / shape, self.requests)


def lengths_of(text: str, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return lengths in tokens, at least 1 each, int64 (count,).

    Raises:
        ConfigError: If the text is not of the form of ``LENGTHS``.
    """
    name, _, rest = text.partition(":")
    try:
        if not rest:
            drawn = np.full(count, float(name))
        elif name == "uniform":
            low, high = (int(part) for part in rest.split("-"))
            drawn = generator.integers(low, high, count, endpoint=True).astype(np.float64)
        elif name == "lognormal":
            median, sigma = (float(part) for part in rest.split(","))
            drawn = median * np.exp(sigma * generator.standard_normal(count))
        elif name == "exponential":
            drawn = generator.exponential(float(rest), count)
        else:
            raise ValueError
    except ValueError:
        raise ConfigError(f"arrivals: '{text}' is no length; write {LENGTHS}.") from None
    if not (drawn <= MOST_TOKENS).all() or (not rest and drawn[0] < 1):
        raise ConfigError(
            f"arrivals: '{text}' gives lengths below 1 or above {MOST_TOKENS:,} tokens."
        )
    return np.maximum(np.rint(drawn), 1).astype(np.int64)
