"""How good a surrogate is on graphs with known targets: scores with intervals, and coverage."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from layerdag._runtime import numpy_generator
from layerdag.evaluation.metrics import Interval, bootstrap_weights
from layerdag.surrogates._calibration import Predictions
from layerdag.surrogates._scores import EVALUATED, scores

REPLICATES = 500
FEWEST_OF_A_GROUP = 5


@dataclass(frozen=True)
class ScoreEstimate:
    """One score on a set of graphs.

    Attributes:
        value: The score.
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


@dataclass(frozen=True)
class Evaluation:
    """How good a surrogate is on one set of graphs.

    Attributes:
        target: What was predicted.
        graphs: Number of graphs.
        scores: By the names of ``EVALUATED``.
        coverage: One for each level; none without calibration.
        groups: The same for each group of graphs, by the group's name.
    """

    target: str
    graphs: int
    scores: Mapping[str, ScoreEstimate]
    coverage: tuple[Coverage, ...] = ()
    groups: Mapping[str, "Evaluation"] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, None for a score that is not defined, so that it is valid JSON."""
        data = asdict(self)
        for part in (data, *(data["groups"] or {}).values()):
            for score in part["scores"].values():
                score["value"] = score["value"] if np.isfinite(score["value"]) else None
        return data


def evaluation(
    target: str,
    target_B: np.ndarray,
    predicted_B: np.ndarray,
    intervals: Sequence[Predictions] = (),
    seed: int = 0,
) -> Evaluation:
    """Compare predictions with targets.

    Args:
        target: Name of what was predicted.
        target_B: What was measured.
        predicted_B: What was predicted.
        intervals: Intervals of the same graphs, one for each level.
        seed: Of the resamples.
    """
    drawn_RB = bootstrap_weights(numpy_generator(seed, "evaluation"), REPLICATES, target_B.size)
    weights_RB = np.concatenate([np.ones((1, target_B.size)), drawn_RB])
    found = scores(target_B, predicted_B, weights_RB, EVALUATED)
    estimates = {}
    for score in EVALUATED:
        value, draws_R = float(found[score.name][0]), found[score.name][1:]
        around = Interval.around(value, draws_R, score.lower, score.upper)
        estimates[score.name] = ScoreEstimate(value, around)
    covered = tuple(_coverage(target_B, one) for one in intervals)
    return Evaluation(target, target_B.size, estimates, covered)


def by_group(
    whole: Evaluation,
    group_B: Sequence[str],
    target_B: np.ndarray,
    predicted_B: np.ndarray,
    intervals: Sequence[Predictions] = (),
) -> Evaluation:
    """Return an evaluation with that of each group of at least ``FEWEST_OF_A_GROUP`` graphs."""
    names = np.array(group_B)
    groups = {}
    for name in sorted(set(group_B)):
        row_b = np.flatnonzero(names == name)
        if row_b.size >= FEWEST_OF_A_GROUP:
            parts = [
                Predictions(one.value_B[row_b], one.low_B[row_b], one.high_B[row_b], one.level)
                for one in intervals
            ]
            groups[name] = evaluation(whole.target, target_B[row_b], predicted_B[row_b], parts)
    return Evaluation(whole.target, whole.graphs, whole.scores, whole.coverage, groups)


def _coverage(target_B: np.ndarray, one: Predictions) -> Coverage:
    """Return how often the intervals of one level held the target."""
    held_B = (one.low_B <= target_B) & (target_B <= one.high_B)
    exact = binomtest(int(held_B.sum()), target_B.size).proportion_ci(0.95, "exact")
    is_factor = bool((one.low_B > 0).all() and (target_B > 0).all())
    width_B = one.high_B / one.low_B if is_factor else one.high_B - one.low_B
    interval = Interval(float(exact.low), float(exact.high))
    return Coverage(one.level, float(held_B.mean()), interval, float(np.median(width_B)), is_factor)
