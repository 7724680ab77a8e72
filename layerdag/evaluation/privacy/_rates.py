"""How many training graphs an attack finds while it accuses hardly any other graph.

The area under the ROC curve is a mean over all graphs; a generator that gives a few training graphs
away for sure, and nothing of the others, has an area near one half (Carlini et al., IEEE S&P 2022).
So the true-positive rate (TPR) at a low false-positive rate (FPR) stands beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.evaluation.metrics import Interval, bootstrap_weights
from layerdag.evaluation.privacy._verdict import Need

Scores = tuple[np.ndarray, np.ndarray]
"""Scores of members and of others."""

LOW_RATES = (0.01, 0.001)
CERTAIN = 0.001
"""Chance below which so many found members are no chance; many rates are looked at."""
REPLICATES = 500


@dataclass(frozen=True)
class DetectionRate:
    """The fraction of members that an attack finds at one false-positive rate.

    Attributes:
        false_positive_rate: At most so many of the non-members may be accused.
        true_positive_rate: Fraction of members found; None where it cannot be told, because so few
            non-members do not resolve the rate.
        interval: 95 % interval: the exact one of Clopper and Pearson, about the members, or that of
            the bootstrap, about members and threshold, whichever is wider.
        by_chance: Chance that a score that says nothing finds at least as many; exact.
        need: How many non-members it takes; None where there are enough.
    """

    false_positive_rate: float
    true_positive_rate: float | None
    interval: Interval | None
    by_chance: float | None
    need: Need | None

    @property
    def is_above_chance(self) -> bool:
        """Whether members are found beyond what chance does once in a thousand."""
        return self.by_chance is not None and self.by_chance < CERTAIN

    def in_words(self) -> str:
        """Return the rate as a clause."""
        at = f"TPR at {100 * self.false_positive_rate:g}% FPR"
        if self.true_positive_rate is None or self.interval is None:
            return f"{at} cannot be told ({self.need.in_words() if self.need else ''})"
        low, high = 100 * self.interval.low, 100 * self.interval.high
        return f"{at} {100 * self.true_positive_rate:.1f}% [{low:.1f}, {high:.1f}]"


def detection_rates(name: str, folds: Sequence[Scores], seed: int) -> tuple[DetectionRate, ...]:
    """Return the rate of each of ``LOW_RATES``, the mean over folds.

    Args:
        name: Of the attack, for the stream of the bootstrap.
        folds: Scores of the same members and of other others in each.
        seed: Of the bootstrap.
    """
    draws = _Draws(name, folds, seed)
    return tuple(_rate(folds, rate, draws) for rate in LOW_RATES)


def _rate(folds: Sequence[Scores], rate: float, draws: "_Draws") -> DetectionRate:
    """Return one rate; it cannot be told where a fold may not accuse a single non-member."""
    needed = math.ceil(1 / rate - 1e-9)
    smallest = min(other_H.size for _, other_H in folds)
    if smallest < needed:
        total = sum(other_H.size for _, other_H in folds)
        need = Need("held-out graphs", total, needed * len(folds))
        return DetectionRate(rate, None, None, None, need)
    found = [_found(member_T, other_H, rate) for member_T, other_H in folds]
    members = folds[0][0].size
    value = float(np.mean(found)) / members
    chances = [
        _by_chance(count, members, other_H.size, rate)
        for count, (_, other_H) in zip(found, folds, strict=True)
    ]
    # Folds share their members: twice the mean of dependent p-values is one (Vovk and Wang, 2020).
    chance = chances[0] if len(folds) == 1 else min(2 * float(np.mean(chances)), 1.0)
    exact = _clopper_pearson(value, members)
    low, high = np.quantile(draws.rates(rate), (0.025, 0.975))
    interval = Interval(min(exact.low, float(low)), max(exact.high, float(high)))
    return DetectionRate(rate, value, interval, chance, None)


def _allowed(others: int, rate: float) -> int:
    """Return how many of the non-members may be accused."""
    return math.floor(others * rate + 1e-9)


def _found(member_T: np.ndarray, other_H: np.ndarray, rate: float) -> int:
    """Return the number of members above all non-members but those that may be accused."""
    threshold = np.sort(other_H)[::-1][_allowed(other_H.size, rate)]
    return int((member_T > threshold).sum())


def _by_chance(found: int, members: int, others: int, rate: float) -> float:
    """Return the chance of at least ``found`` members, were all graphs alike.

    The share of alike graphs above the k-th largest of H others has a beta distribution, so that
    the number of members among them has a beta-binomial one.
    """
    from scipy.stats import betabinom

    allowed = _allowed(others, rate)
    return float(betabinom.sf(found - 1, members, allowed + 1, others - allowed))


def _clopper_pearson(fraction: float, count: int) -> Interval:
    """Return the exact 95 % interval of a binomial share."""
    from scipy.stats import beta

    found = fraction * count
    low = 0.0 if found <= 0 else float(beta.ppf(0.025, found, count - found + 1))
    high = 1.0 if found >= count else float(beta.ppf(0.975, found + 1, count - found))
    return Interval(low, high)


class _Draws:
    """Resampled members and non-members, drawn once for all rates."""

    def __init__(self, name: str, folds: Sequence[Scores], seed: int) -> None:
        self._name, self._folds, self._seed = name, folds, seed

    @cached_property
    def _resamples(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Scores in falling order and how often each was drawn up to there, of either side."""
        rng = numpy_generator(self._seed, "detection rate", self._name)
        weight_RT = bootstrap_weights(rng, REPLICATES, self._folds[0][0].size)
        found = []
        for member_T, other_H in self._folds:
            weight_RH = bootstrap_weights(rng, REPLICATES, other_H.size)
            order_T = np.argsort(-member_T, kind="stable")
            order_H = np.argsort(-other_H, kind="stable")
            upto_RT = np.cumsum(weight_RT[:, order_T], axis=1)
            upto_RH = np.cumsum(weight_RH[:, order_H], axis=1)
            found.append((member_T[order_T], upto_RT, other_H[order_H], upto_RH))
        return found

    def rates(self, rate: float) -> np.ndarray:
        """Return the true-positive rate of each resample, the mean over folds."""
        total_R = np.zeros(REPLICATES)
        for falling_T, upto_RT, falling_H, upto_RH in self._resamples:
            size = falling_H.size
            position_R = (upto_RH <= _allowed(size, rate)).sum(axis=1)
            threshold_R = falling_H[np.minimum(position_R, size - 1)]
            count_R = np.searchsorted(-falling_T, -threshold_R, side="left")
            found_R = upto_RT[np.arange(REPLICATES), np.maximum(count_R - 1, 0)]
            total_R += np.where(count_R > 0, found_R, 0.0) / falling_T.size
        return total_R / len(self._folds)
