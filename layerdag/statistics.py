"""Intervals, resampling, correlations, AUROC, and what an interval says about chance.

Whatever is not defined is NaN: a correlation with numbers that are all alike, for one.

Shape letters: B items, H non-members, R rows of weights or resamples, T members.
"""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

NORMAL_95 = 1.96


@dataclass(frozen=True)
class Interval:
    """A 95 % interval around a figure, from the spread of its bootstrap draws.

    The spread and not the quantiles of the draws: a resample repeats graphs, which lengthens every
    distance between sets, so that quantiles may lie wholly above the figure itself.
    """

    low: float
    high: float

    @classmethod
    def around(
        cls, value: float, draws_R: np.ndarray, lower: float = -math.inf, upper: float = math.inf
    ) -> "Interval | None":
        """Return value +- 1.96 standard errors, cut at the bounds; None without finite draws."""
        finite = draws_R[np.isfinite(draws_R)]
        if finite.size < 2 or not math.isfinite(value):
            return None
        half = NORMAL_95 * float(finite.std(ddof=1))
        return cls(max(value - half, lower), min(value + half, upper))

    @classmethod
    def around_ratio(cls, value: float, draws_R: np.ndarray) -> "Interval | None":
        """Return the interval of a positive ratio, symmetric in its logarithm."""
        finite = draws_R[np.isfinite(draws_R) & (draws_R > 0)]
        if not (value > 0 and math.isfinite(value)) or finite.size < 2:
            return None
        factor = math.exp(NORMAL_95 * float(np.log(finite).std(ddof=1)))
        return cls(value / factor, value * factor)

    @classmethod
    def wilson(cls, fraction: float, count: int) -> "Interval":
        """Return the 95 % Wilson score interval of a fraction of ``count`` trials."""
        z2 = NORMAL_95**2
        center = (fraction + z2 / (2 * count)) / (1 + z2 / count)
        half = NORMAL_95 * math.sqrt(fraction * (1 - fraction) / count + z2 / (4 * count**2))
        half /= 1 + z2 / count
        return cls(center - half, center + half)

    @classmethod
    def clopper_pearson(cls, fraction: float, count: int) -> "Interval":
        """Return the exact 95 % interval of a binomial fraction."""
        from scipy.stats import beta

        found = fraction * count
        low = 0.0 if found <= 0 else float(beta.ppf(0.025, found, count - found + 1))
        high = 1.0 if found >= count else float(beta.ppf(0.975, found + 1, count - found))
        return cls(low, high)


def bootstrap_weights(rng: np.random.Generator, replicates: int, size: int) -> np.ndarray:
    """Return how often each of ``size`` graphs is drawn in each resample, shape (R, B)."""
    return rng.multinomial(size, np.full(size, 1 / size), size=replicates).astype(float)


def weighted_mean(value_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return weighted means, (R,); NaN where there is no weight."""
    total_R = weights_RB.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((weights_RB @ value_B) / total_R)


def pearson(x_B: np.ndarray, y_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return the linear correlation under each row of weights, (R,)."""
    x_RB = x_B - weighted_mean(x_B, weights_RB)[:, None]
    y_RB = y_B - weighted_mean(y_B, weights_RB)[:, None]
    cross_R = (weights_RB * x_RB * y_RB).sum(axis=1)
    norm_R = np.sqrt((weights_RB * x_RB**2).sum(axis=1) * (weights_RB * y_RB**2).sum(axis=1))
    # What rounding leaves of a constant is no spread, whatever the unit of the numbers.
    rounding = 1e-12 * x_B.size * float(np.abs(x_B).max() * np.abs(y_B).max())
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(norm_R > rounding, cross_R / norm_R, np.nan))


def spearman(x_B: np.ndarray, y_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return Spearman's rank correlation under each row of weights, (R,)."""
    from scipy.stats import rankdata

    return pearson(rankdata(x_B), rankdata(y_B), weights_RB)


def kendall(
    x_RB: np.ndarray, y_RB: np.ndarray, weights_RB: np.ndarray, tolerance: float = 0.0
) -> np.ndarray:
    """Return Kendall's tau-b of each row, (R,); a single row of numbers serves all rows of weights.

    Numbers that differ by less than ``tolerance`` are tied.
    """

    def signs(value_RB: np.ndarray) -> np.ndarray:
        difference_RBB = value_RB[:, :, None] - value_RB[:, None, :]
        return np.where(np.abs(difference_RBB) < tolerance, 0.0, np.sign(difference_RBB))

    def pairs(sign_RBB: np.ndarray) -> np.ndarray:
        if len(sign_RBB) == 1:
            half_RB = weights_RB @ sign_RBB[0]
        else:
            half_RB = np.matmul(weights_RB[:, None, :], sign_RBB)[:, 0]
        return np.asarray((half_RB * weights_RB).sum(axis=1))

    x_RBB, y_RBB = signs(x_RB), signs(y_RB)
    norm_R = np.sqrt(pairs(np.abs(x_RBB)) * pairs(np.abs(y_RBB)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(norm_R > 0, pairs(x_RBB * y_RBB) / norm_R, np.nan))


def auroc(member_T: np.ndarray, other_H: np.ndarray) -> float:
    """Return the chance that a member scores above another graph; a tie counts half."""
    from scipy.stats import rankdata

    rank_G = rankdata(np.concatenate([member_T, other_H]))
    wins = rank_G[: member_T.size].sum() - member_T.size * (member_T.size + 1) / 2
    return float(wins / (member_T.size * other_H.size))


def resampled_wins(
    member_T: np.ndarray, other_H: np.ndarray, weight_RT: np.ndarray, weight_RH: np.ndarray
) -> np.ndarray:
    """Return in how many pairs a member scores above another graph, in each resample, (R,)."""
    above_TH = (member_T[:, None] > other_H) + 0.5 * (member_T[:, None] == other_H)
    return np.asarray(((weight_RT @ above_TH) * weight_RH).sum(axis=1))


CHANCE = 0.5
MARGIN = 0.05
"""Distance from 0.5 within which an interval must lie to count as no better than chance."""


class Verdict(Enum):
    """What an interval around an AUROC, or another figure of which chance gives 0.5, says.

    That an interval contains 0.5 is no evidence of 0.5, however wide it is: "no better than chance"
    is said only if the whole interval lies within ``MARGIN`` of it (a test of equivalence).
    """

    LEAKS = "tells training graphs apart"
    CHANCE = "no better than chance"
    TOO_FEW = "too few graphs to tell"
    REVERSED = "prefers held-out graphs"

    @classmethod
    def from_interval(cls, interval: Interval) -> "Verdict":
        """Return the verdict on a 95 % interval.

        ``REVERSED`` is no leak and no all-clear: training and held-out graphs differ by more than
        that one part was trained on, so that the comparison is not between like and like.
        """
        if interval.low > CHANCE:
            return cls.LEAKS
        if interval.low >= CHANCE - MARGIN and interval.high <= CHANCE + MARGIN:
            return cls.CHANCE
        return cls.REVERSED if interval.high < CHANCE else cls.TOO_FEW


@dataclass(frozen=True)
class SampleSizeRequirement:
    """How many graphs a verdict would take.

    Attributes:
        of: Which graphs are too few, in the plural: "held-out graphs" or "samples".
        found: How many there are.
        count: About how many are needed, if the figure stays what it is.
    """

    of: str
    found: int
    count: int

    def in_words(self) -> str:
        """Return a clause for messages."""
        return f"{self.found:,} {self.of}, about {self.count:,} needed"


def half_width_for_verdict(value: float) -> float:
    """Return the half-width from which on an interval around ``value`` gets a verdict.

    It must either leave 0.5 out or lie within the margin, whichever takes less.
    """
    distance = abs(value - CHANCE)
    return max(distance, MARGIN - distance)


def needed(value: float, half: float, found: int) -> int:
    """Return about how many graphs bring the half-width of an interval down to a verdict.

    The half-width shrinks with the square root of the number of graphs.
    """
    return round_up(found * (half / half_width_for_verdict(value)) ** 2)


def chance_half_width(members: int, others: int) -> float:
    """Return the 95 % half-width of the AUROC of a score that says nothing.

    The variance of the Mann-Whitney statistic under exchange of members and others. The bootstrap
    of few graphs is narrower than that: of three graphs, resampled, all lie where the three lie.
    """
    variance = (members + others + 1) / (12 * members * others)
    return NORMAL_95 * math.sqrt(variance)


def round_up(count: float) -> int:
    """Return a number rounded up to two digits."""
    unit = 10 ** max(math.floor(math.log10(max(count, 1))) - 1, 0)
    return math.ceil(count / unit) * unit
