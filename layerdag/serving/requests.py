"""Requests to a serving engine: when they come, how long they are, what they share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.errors import ConfigError

MOST_REQUESTS = 10_000_000
MOST_TOKENS = 10_000_000
"""Longest prompt or answer."""


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests in the order of their arrival.

    Attributes:
        arrival_s: Seconds since the start, ascending, float64 (N,).
        input_tokens: Tokens of the prompts, int64 (N,).
        output_tokens: Tokens of the answers, int64 (N,).
        hashes: Hashes of the prompt's blocks of ``hash_tokens`` tokens, from the first one on; two
            equal hashes are equal prefixes. Empty where nothing is known.
        hash_tokens: Tokens of such a block.

    Raises:
        ConfigError: If a length is not positive, a time is negative or out of order, or there is no
            request.
    """

    arrival_s: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    hashes: Sequence[Sequence[int]] = ()
    hash_tokens: int = 512

    def __post_init__(self) -> None:
        count = len(self.arrival_s)
        if not count or not len(self.input_tokens) == len(self.output_tokens) == count:
            raise ConfigError(
                f"requests: {count} arrivals, {len(self.input_tokens)} input and "
                f"{len(self.output_tokens)} output lengths; give at least one request, and one of "
                "each for every request."
            )
        if not (np.isfinite(self.arrival_s) & (self.arrival_s >= 0)).all():
            raise ConfigError("requests: arrivals must be seconds of at least 0.")
        if (np.diff(self.arrival_s) < 0).any():
            raise ConfigError("requests: arrivals must be in ascending order.")
        for name in ("input_tokens", "output_tokens"):
            lengths = getattr(self, name)
            if (lengths < 1).any():
                at = int(np.argmax(lengths < 1))
                raise ConfigError(
                    f"requests: request {at} has {name} {int(lengths[at])}; it must be at least 1."
                )
        if self.hashes and (len(self.hashes) != count or self.hash_tokens < 1):
            raise ConfigError(
                f"requests: {len(self.hashes)} lists of hashes of {self.hash_tokens} tokens for "
                f"{count} requests; give one list for each, and at least 1 token."
            )

    def __len__(self) -> int:
        return len(self.arrival_s)
