"""Scores of predictions, and their intervals by split-conformal calibration.

Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005; Lei, G'Sell, Rinaldo,
Tibshirani and Wasserman, JASA 113(523), 2018. The interval of a new graph is as wide as the error
that the wanted fraction of calibration graphs, which no fit saw, stayed below. Where new and
calibration graphs come from the same source, at least this fraction of intervals hold the target,
whatever the model, on average over graphs; some kinds of graphs may be covered less often.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np

from layerdag.errors import UsageError
from layerdag.evaluation.metrics.base import Declaration, Goal
from layerdag.runtime.rng import numpy_generator
from layerdag.statistics import (
    Interval,
    bootstrap_weights,
    kendall,
    pearson,
    spearman,
    weighted_mean,
)

LEVEL = 0.9
MIN_TESTED = 20
"""Labeled graphs that a test of predictors needs at least."""
MIN_CALIBRATED = 9
"""Calibration graphs that an interval of 90 % needs."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of B graphs with an interval each, in the unit of the training targets.

    Attributes:
        value_B: The predictions, float64.
        level: Fraction of graphs whose interval is to hold the target.
    """

    value_B: np.ndarray
    low_B: np.ndarray
    high_B: np.ndarray
    level: float


@dataclass(frozen=True, eq=False)
class Calibration:
    """How far predictions were off on S graphs that no fit saw.

    Attributes:
        log: True where errors are those of logarithms, so that an interval is a factor.
        error_S: Absolute errors in units of the model's own spread, ascending, float64.
    """

    log: bool
    error_S: np.ndarray

    @classmethod
    def measure(
        cls, target_S: np.ndarray, predicted_S: np.ndarray, spread_S: np.ndarray
    ) -> "Calibration | None":
        """Return the calibration; None for fewer than ``MIN_CALIBRATED`` graphs."""
        if target_S.size < MIN_CALIBRATED:
            return None
        log = bool((target_S > 0).all() and (predicted_S > 0).all())
        if log:
            target_S, predicted_S = np.log(target_S), np.log(predicted_S)
        return cls(log, np.sort(np.abs(target_S - predicted_S) / spread_S))

    @classmethod
    def from_dict(cls, data: object) -> "Calibration | None":
        """Return what ``to_dict`` wrote; None for anything else."""
        if not isinstance(data, Mapping):
            return None
        try:
            error_S = np.sort(np.asarray(data.get("errors"), dtype=float))
        except (TypeError, ValueError):
            return None
        fine = error_S.ndim == 1 and error_S.size >= MIN_CALIBRATED and bool((error_S >= 0).all())
        return cls(bool(data.get("log")), error_S) if fine else None

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {"log": self.log, "errors": self.error_S.tolist()}

    @property
    def highest_level(self) -> float:
        """The highest level that the calibration graphs suffice for."""
        return self.error_S.size / (self.error_S.size + 1)

    def around(
        self, predicted_B: np.ndarray, spread_B: np.ndarray, level: float = LEVEL
    ) -> Predictions:
        """Return predictions with their intervals.

        Raises:
            UsageError: If the level is not a fraction, or too high for the calibration graphs.
        """
        size = self.error_S.size
        if not 0 < level < 1:
            raise UsageError(f"The level of an interval is {level:g}; give a fraction, such as .9.")
        # One more than the graphs there are: the new graph counts as one of them.
        rank = math.ceil((size + 1) * level - 1e-9)
        if rank > size:
            raise UsageError(
                f"An interval of {level:.4g} needs more than the {size} graphs that the surrogate "
                f"was calibrated on; ask for at most {self.highest_level:.4f}."
            )
        reach_B = self.error_S[rank - 1] * spread_B
        if self.log:
            low_B, high_B = predicted_B * np.exp(-reach_B), predicted_B * np.exp(reach_B)
            return Predictions(predicted_B, low_B, high_B, level)
        return Predictions(predicted_B, predicted_B - reach_B, predicted_B + reach_B, level)


ScoreOf = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From targets, predictions and weights to one score for each row of weights."""


@final
@dataclass(frozen=True, kw_only=True)
class PredictionScore(Declaration):
    """How good predictions of B graphs are.

    Attributes:
        compute: Returns the score of targets and predictions, (B,) each, for each row of weights,
            (R, B); shape (R,).
    """

    compute: ScoreOf


def scores(
    target_B: np.ndarray,
    predicted_B: np.ndarray,
    weights_RB: np.ndarray | None = None,
    named: Sequence[PredictionScore] | None = None,
) -> dict[str, np.ndarray]:
    """Return every score for each row of weights, shape (R,); one row of ones by default.

    Weights say how often each graph is counted. Ranks are those of the whole set, so that the
    Spearman score of a resample is exact only for equal weights. A correlation with a constant is
    NaN, and so is that of the logarithms where a number is not positive; MAPE leaves out targets
    of 0. Where targets span decades, the plain Pearson score hangs on the few largest.
    """
    if weights_RB is None:
        weights_RB = np.ones((1, target_B.size))
    return {
        score.name: score.compute(target_B, predicted_B, weights_RB)
        for score in (SCORES if named is None else named)
    }


def _pearson_log(
    target_B: np.ndarray, predicted_B: np.ndarray, weights_RB: np.ndarray
) -> np.ndarray:
    """Return the correlation of logarithms; NaN where a number is not positive."""
    if not ((target_B > 0).all() and (predicted_B > 0).all()):
        return np.full(len(weights_RB), np.nan)
    return pearson(np.log(target_B), np.log(predicted_B), weights_RB)


def _mape(target_B: np.ndarray, predicted_B: np.ndarray, weights_RB: np.ndarray) -> np.ndarray:
    """Return weighted mean absolute errors relative to targets that are not 0."""
    nonzero_B = target_B != 0
    error_B = np.abs(predicted_B - target_B)[nonzero_B]
    return weighted_mean(error_B / np.abs(target_B[nonzero_B]), weights_RB[:, nonzero_B])


def _within_tenth(
    target_B: np.ndarray, predicted_B: np.ndarray, weights_RB: np.ndarray
) -> np.ndarray:
    close_B = np.abs(predicted_B - target_B) <= 0.1 * np.abs(target_B)
    return weighted_mean(close_B.astype(float), weights_RB)


_correlation = partial(PredictionScore, goal=Goal.MAXIMIZE, lower=-1.0, upper=1.0)
_error = partial(PredictionScore, goal=Goal.MINIMIZE)
SCORES = (
    _correlation("pearson", "linear correlation of prediction and target", compute=pearson),
    _correlation("pearson_log", "linear correlation of the logarithms", compute=_pearson_log),
    _correlation("spearman", "rank correlation of prediction and target", compute=spearman),
    _correlation(
        "kendall",
        "Kendall's tau-b of prediction and target",
        compute=lambda y_B, p_B, w_RB: kendall(y_B[None], p_B[None], w_RB),
    ),
    _error(
        "mae",
        "mean absolute error in the unit of the target",
        compute=lambda y_B, p_B, w_RB: weighted_mean(np.abs(p_B - y_B), w_RB),
    ),
    _error("mape", "mean absolute error relative to the target", compute=_mape),
)
EVALUATED = (
    *SCORES,
    PredictionScore(
        "within_10_percent",
        "fraction of predictions within 10 % of the target",
        Goal.MAXIMIZE,
        0.0,
        1.0,
        compute=_within_tenth,
    ),
)
"""What ``Surrogate.evaluate`` reports: ``SCORES``, the scores of reports, and one more."""


REPLICATES = 500
MIN_OF_A_GROUP = 5


@dataclass(frozen=True)
class ScoreEstimate:
    """One score on a set of graphs.

    Attributes:
        interval: 95 % interval over resampled graphs; None where it has none.
    """

    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Coverage:
    """How often intervals held the target.

    Attributes:
        level: Fraction that was asked for.
        covered: Fraction that held it.
        interval: 95 % interval of ``covered``, the exact one of Clopper and Pearson.
        width: Median width of the intervals: upper end divided by lower end where targets are
            positive, else the difference.
        is_factor: Whether ``width`` is a quotient.
    """

    level: float
    covered: float
    interval: Interval
    width: float
    is_factor: bool


def too_few_tested(graphs: int, what: str = "graphs") -> str:
    """Return a sentence where so many graphs are too few to judge predictions, else ""."""
    if graphs >= MIN_TESTED:
        return ""
    return f"too few to tell: {graphs} {what}, {MIN_TESTED} are needed"


@dataclass(frozen=True)
class SurrogateScores:
    """How good a surrogate is on one set of graphs.

    Attributes:
        scores: By the names of ``EVALUATED``.
        coverage: One for each level; none without calibration.
        groups: The same for each group of graphs, by the group's name.
    """

    target: str
    graphs: int
    scores: Mapping[str, ScoreEstimate]
    coverage: tuple[Coverage, ...] = ()
    groups: Mapping[str, "SurrogateScores"] | None = None

    @property
    def verdict(self) -> str:
        """Why the scores say little, "" where there are graphs enough."""
        return too_few_tested(self.graphs)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, None for a score that is not defined, so that it is valid JSON."""
        data = asdict(self) | ({"verdict": self.verdict} if self.verdict else {})
        for part in (data, *(data["groups"] or {}).values()):
            for score in part["scores"].values():
                score["value"] = score["value"] if np.isfinite(score["value"]) else None
        return data

    def __str__(self) -> str:
        """Return a line for each score and level, then a table of the groups."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for name, score in self.scores.items():
            around = score.interval
            shown = f"  ({around.low:.3g} to {around.high:.3g})" if around else ""
            yield f"  {name:18} {score.value:8.3g}{shown}"
        for one in self.coverage:
            factor = f"upper end {one.width:.2f} times the lower"
            width = factor if one.is_factor else f"width {one.width:.3g}"
            yield (
                f"  intervals of {one.level:.0%} hold {one.covered:.0%} of the targets "
                f"({one.interval.low:.0%} to {one.interval.high:.0%}); median {width}"
            )
        if self.verdict:
            yield f"  {self.verdict}"
        if not self.groups:
            return
        columns = ("spearman", "mape", "within_10_percent")
        first = max(len(name) for name in [*self.groups, "group"])
        level = next((one.level for one in self.coverage if one.level == 0.9), None)
        heads = "".join(f"{name:>19}" for name in columns) + ("   90 % held" if level else "")
        yield f"  {'group':{first}}  graphs{heads}"
        for name, group in self.groups.items():
            cells = "".join(f"{group.scores[column].value:19.3g}" for column in columns)
            held = "".join(f"{c.covered:12.0%}" for c in group.coverage if c.level == level)
            yield f"  {name:{first}}  {group.graphs:6}{cells}{held}"


def evaluation(
    target: str,
    target_B: np.ndarray,
    predicted_B: np.ndarray,
    intervals: Sequence[Predictions] = (),
    seed: int = 0,
) -> SurrogateScores:
    """Compare predictions with targets."""
    drawn_RB = bootstrap_weights(numpy_generator(seed, "evaluation"), REPLICATES, target_B.size)
    weights_RB = np.concatenate([np.ones((1, target_B.size)), drawn_RB])
    found = scores(target_B, predicted_B, weights_RB, EVALUATED)
    estimates = {}
    for score in EVALUATED:
        value, draws_R = float(found[score.name][0]), found[score.name][1:]
        around = Interval.around(value, draws_R, score.lower, score.upper)
        estimates[score.name] = ScoreEstimate(value, around)
    coverage = []
    for one in intervals:
        held_B = (one.low_B <= target_B) & (target_B <= one.high_B)
        is_factor = bool((one.low_B > 0).all() and (target_B > 0).all())
        width_B = one.high_B / one.low_B if is_factor else one.high_B - one.low_B
        covered, width = float(held_B.mean()), float(np.median(width_B))
        exact = Interval.clopper_pearson(covered, held_B.size)
        coverage.append(Coverage(one.level, covered, exact, width, is_factor))
    return SurrogateScores(target, target_B.size, estimates, tuple(coverage))


def by_group(
    whole: SurrogateScores,
    group_B: Sequence[str],
    target_B: np.ndarray,
    predicted_B: np.ndarray,
    intervals: Sequence[Predictions] = (),
) -> SurrogateScores:
    """Return an evaluation with that of each group of at least ``MIN_OF_A_GROUP`` graphs."""
    names = np.array(group_B)
    groups = {}
    for name in sorted(set(group_B)):
        row_b = np.flatnonzero(names == name)
        if row_b.size >= MIN_OF_A_GROUP:
            parts = [
                Predictions(one.value_B[row_b], one.low_B[row_b], one.high_B[row_b], one.level)
                for one in intervals
            ]
            groups[name] = evaluation(whole.target, target_B[row_b], predicted_B[row_b], parts)
    return replace(whole, groups=groups)
