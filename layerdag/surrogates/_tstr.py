"""Train on synthetic, test on real: do synthetic graphs teach a surrogate what real ones do?

A score says nothing alone. Beside training on synthetic graphs stand the ceiling (training on all
real graphs), a real subsample, the floor (real graphs with shuffled targets), and real plus
synthetic graphs together. All are tested on the same real graphs, which no training saw.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerdag._runtime import numpy_generator, takes_old_names, track
from layerdag.errors import UsageError
from layerdag.evaluation.metrics import Interval, bootstrap_weights
from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates._scores import SCORES, PredictionScore, scores
from layerdag.surrogates.families import SurrogateModel

REAL, SYNTHETIC, SUBSAMPLE, SHUFFLED, AUGMENTED = CONDITIONS = (
    "real",
    "synthetic",
    "real subsample",
    "real, shuffled targets",
    "real + synthetic",
)
SUBSAMPLE_FRACTION = 0.25
RELATIVE = ("pearson", "spearman")
"""Scores that are also shown as a percentage of the real ones."""

Fit = Callable[[Sequence[DAG], np.ndarray, GraphSizes, int], SurrogateModel]


@dataclass(frozen=True, eq=False)
class Labeled:
    """Graphs with one target each.

    Attributes:
        dags: The graphs.
        target_B: float64 targets, the same unit everywhere.
    """

    dags: tuple[DAG, ...]
    target_B: np.ndarray

    def __post_init__(self) -> None:
        if len(self.dags) != self.target_B.size:
            raise UsageError(
                f"There are {len(self.dags)} graphs but {self.target_B.size} targets; "
                "pass one target per graph."
            )

    def taken(self, rows: np.ndarray) -> "Labeled":
        """Return the given rows."""
        return Labeled(tuple(self.dags[i] for i in rows.tolist()), self.target_B[rows])

    def joined(self, other: "Labeled") -> "Labeled":
        """Return the graphs of both."""
        return Labeled(self.dags + other.dags, np.concatenate([self.target_B, other.target_B]))


@dataclass(frozen=True)
class Score:
    """One figure over several seeds.

    Attributes:
        mean: Mean over the seeds.
        interval: 95 % interval from the spread over seeds and over resampled test graphs.
        by_seed: The figure of each seed.
    """

    mean: float
    interval: Interval | None
    by_seed: tuple[float, ...]


@dataclass(frozen=True)
class TransferRow:
    """One family of surrogates trained under one condition.

    Attributes:
        family: Name of the family.
        condition: One of ``CONDITIONS``.
        trained_on: Number of training graphs.
        scores: Score by name of ``SCORES``.
    """

    family: str
    condition: str
    trained_on: int
    scores: Mapping[str, Score]


@dataclass(frozen=True)
class ReachedFraction:
    """What training on synthetic graphs reaches of what training on all real graphs does.

    Attributes:
        family: Name of the family.
        score: Name of the score.
        value: Mean of the score over seeds, divided by the same mean for real graphs.
        interval: 95 % interval over seeds and resampled test graphs. Both scores are of the
            same resample, for what makes it hard to predict makes it hard for both.
    """

    family: str
    score: str
    value: float
    interval: Interval | None


@takes_old_names(shares="fractions", share="fraction")
@dataclass(frozen=True)
class TransferReport:
    """The outcome with what is needed to repeat it.

    Attributes:
        rows: One per family and condition.
        fractions: One per family and score, where both conditions "real" and "synthetic" were run.
        tested_on: Number of real test graphs.
        seeds: Seeds of the fits.
    """

    rows: tuple[TransferRow, ...]
    fractions: tuple[ReachedFraction, ...]
    tested_on: int
    seeds: tuple[int, ...]

    def row(self, family: str, condition: str) -> TransferRow:
        """Return one row."""
        return next(r for r in self.rows if (r.family, r.condition) == (family, condition))

    def fraction(self, family: str, score: str) -> ReachedFraction:
        """Return what synthetic graphs reach of one score of real graphs."""
        return next(s for s in self.fractions if (s.family, s.score) == (family, score))


def transfer(
    real: Labeled,
    synthetic: Labeled,
    test: Labeled,
    sizes: GraphSizes,
    families: Mapping[str, Fit],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    conditions: Sequence[str] = CONDITIONS,
) -> TransferReport:
    """Fit every family under every condition with every seed, and test on real graphs.

    Args:
        real: Real training graphs.
        synthetic: Generated graphs with the requested targets.
        test: Real test graphs.
        sizes: Codes that the graphs may have.
        families: Fitting function by family name.
        seeds: Seeds of the fits.
        conditions: Which of ``CONDITIONS`` to run.

    Raises:
        UsageError: If a set is too small, a target is not finite, a condition is unknown, or there
            is no seed.
    """
    if not seeds:
        raise UsageError("Surrogates are fitted once per seed; pass at least one seed.")
    unknown = [name for name in conditions if name not in CONDITIONS]
    if unknown:
        raise UsageError(
            f"There is no condition '{unknown[0]}'; known are {', '.join(CONDITIONS)}."
        )
    cases = [(family, condition) for family in families for condition in conditions]
    rows, draws = [], {}
    for family, condition in track(cases, "train on synthetic, test on real", len(cases)):
        trained = [training_set(condition, real, synthetic, seed) for seed in seeds]
        draws[family, condition] = _draws(families[family], trained, test, sizes, seeds)
        rows.append(_row(family, condition, trained, draws[family, condition]))
    fractions = [
        _reached(family, metric.name, draws[family, SYNTHETIC], draws[family, REAL])
        for family in families
        if {REAL, SYNTHETIC} <= set(conditions)
        for metric in SCORES
    ]
    return TransferReport(tuple(rows), tuple(fractions), len(test.dags), tuple(seeds))


def _draws(
    fit: Fit, trained: Sequence[Labeled], test: Labeled, sizes: GraphSizes, seeds: Sequence[int]
) -> dict[str, np.ndarray]:
    """Return each score with each seed, on the test graphs and on resamples of them, (S, 1 + R).

    The resamples depend on the seed alone, so that two conditions can be paired.
    """
    found = []
    for training, seed in zip(trained, seeds, strict=True):
        predicted_B = fit(training.dags, training.target_B, sizes, seed).predict(test.dags)
        rng = numpy_generator(seed, "test graphs")
        drawn_RB = bootstrap_weights(rng, 200, len(test.dags))
        weights_RB = np.concatenate([np.ones((1, len(test.dags))), drawn_RB])
        found.append(scores(test.target_B, predicted_B, weights_RB))
    return {metric.name: np.stack([one[metric.name] for one in found]) for metric in SCORES}


def _row(
    family: str, condition: str, trained: Sequence[Labeled], draws: Mapping[str, np.ndarray]
) -> TransferRow:
    """Summarize one family under one condition."""
    by_name = {metric.name: _score(metric, draws[metric.name]) for metric in SCORES}
    return TransferRow(family, condition, len(trained[-1].dags), by_name)


def _reached(
    family: str, score: str, synthetic: Mapping[str, np.ndarray], real: Mapping[str, np.ndarray]
) -> ReachedFraction:
    """Return what synthetic graphs reach of one score."""
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(synthetic[score][:, 0].mean() / real[score][:, 0].mean())
        resampled_SR = synthetic[score][:, 1:] / real[score][:, 1:]
    return ReachedFraction(family, score, value, Interval.around(value, resampled_SR))


def training_set(condition: str, real: Labeled, synthetic: Labeled, seed: int) -> Labeled:
    """Return the training graphs of one condition."""
    rng = numpy_generator(seed, "training set", condition)
    if condition == SYNTHETIC:
        return synthetic
    if condition == AUGMENTED:
        return real.joined(synthetic)
    if condition == SUBSAMPLE:
        size = max(int(SUBSAMPLE_FRACTION * len(real.dags)), 2)
        return real.taken(rng.permutation(len(real.dags))[:size])
    if condition == SHUFFLED:
        return Labeled(real.dags, rng.permutation(real.target_B))
    return real


def _score(metric: PredictionScore, draws_SR: np.ndarray) -> Score:
    """Summarize the draws of all seeds; the first draw of a seed is the figure itself."""
    mean = float(draws_SR[:, 0].mean())
    interval = Interval.around(mean, draws_SR[:, 1:], metric.lower, metric.upper)
    return Score(mean, interval, tuple(draws_SR[:, 0].tolist()))
