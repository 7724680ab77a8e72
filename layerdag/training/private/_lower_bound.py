"""A lower bound of the privacy loss from one run: Steinke, Nasr and Jagielski, arXiv 2305.08846.

Each of m canaries takes part or not by a coin of its own. An attacker who sees the weights guesses
some coins. Under (epsilon, delta) differential privacy the number of right guesses is bounded; if
more are right, epsilon was larger (Theorem 5.2 of the paper).
"""

from dataclasses import dataclass

import numpy as np

_LARGEST = 50.0
_HALVINGS = 40


@dataclass(frozen=True)
class LowerBound:
    """What an attacker found.

    Attributes:
        epsilon: Lower bound, 0 if nothing was found.
        canaries: Number of coins.
        guesses: Coins that were guessed.
        right: Guesses that were right.
        confidence: Probability with which the bound holds.
    """

    epsilon: float
    canaries: int
    guesses: int
    right: int
    confidence: float


def guess_half(score_M: np.ndarray, took_part_M: np.ndarray) -> tuple[int, int]:
    """Guess the coins of half of the canaries: the highest quarter in, the lowest quarter out.

    How many are guessed is fixed before the scores are seen.

    Args:
        score_M: Higher for canaries that seem to have taken part.
        took_part_M: Their coins.

    Returns:
        Number of guesses, and of right ones.
    """
    quarter = max(len(score_M) // 4, 1)
    order_M = np.argsort(score_M, kind="stable")
    right = took_part_M[order_M[-quarter:]].sum() + (~took_part_M[order_M[:quarter]]).sum()
    return 2 * quarter, int(right)


def lower_bound(
    canaries: int, guesses: int, right: int, delta: float, confidence: float = 0.95
) -> LowerBound:
    """Return the largest epsilon that the guesses refute.

    Args:
        canaries: Number of coins.
        guesses: Coins that were guessed; how many must not follow from the coins.
        right: Guesses that were right.
        delta: Of the promise.
        confidence: Of the bound.
    """
    low, high = 0.0, _LARGEST
    if p_value(canaries, guesses, right, 0.0, delta) >= 1 - confidence:
        return LowerBound(0.0, canaries, guesses, right, confidence)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        refuted = p_value(canaries, guesses, right, middle, delta) < 1 - confidence
        low, high = (middle, high) if refuted else (low, middle)
    return LowerBound(low, canaries, guesses, right, confidence)


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the probability of so many right guesses, at most, under (epsilon, delta)."""
    from scipy.stats import binom

    chance = 1 / (1 + np.exp(-epsilon))
    at_least = float(binom.sf(right - 1, guesses, chance))
    below_I = binom.pmf(right - np.arange(1, right + 1), guesses, chance).cumsum()
    slack = float(np.max(below_I / np.arange(1, right + 1), initial=0.0))
    return min(at_least + 2 * canaries * delta * slack, 1.0)
