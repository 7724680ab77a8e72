"""Train on synthetic, test on real: do synthetic graphs teach a surrogate what real ones do?

A score says nothing alone. Beside training on synthetic graphs stand the ceiling (training on all
real graphs), a real subsample, the real graphs drawn again with replacement, the floor (real graphs
with shuffled targets), and real plus synthetic graphs together. All are tested on the same real
graphs, which no training saw.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from layerdag._runtime import numpy_generator, track
from layerdag.errors import UsageError
from layerdag.evaluation.metrics import Goal, Interval, bootstrap_weights
from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates import SCORES, PredictionScore, scores
from layerdag.surrogates.families import SurrogateModel
from layerdag.surrogates.tstr._report import (
    Gain,
    ReachedFraction,
    Score,
    TransferReport,
    TransferRow,
)
from layerdag.surrogates.tstr._training_sets import (
    CONDITIONS,
    REAL,
    SYNTHETIC,
    TOGETHER,
    Labeled,
    require_condition,
    training_set,
)

Fit = Callable[[Sequence[DAG], np.ndarray, GraphSizes, int], SurrogateModel]
_Draws = Mapping[str, np.ndarray]


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
        conditions: Which of ``CONDITIONS`` and of ``few_real`` to run. The latter show what a
            generator adds to few graphs only if it learned from no others.

    Raises:
        UsageError: If a set is too small, a target is not finite, a condition is unknown, or there
            is no seed.
    """
    if not seeds:
        raise UsageError("Surrogates are fitted once per seed; pass at least one seed.")
    for condition in conditions:
        require_condition(condition)
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
    gains = [
        _gain((family, condition), metric, draws[family, condition], draws[family, alone])
        for family, condition in cases
        if condition.endswith(TOGETHER)
        and (alone := condition.removesuffix(TOGETHER)) in conditions
        for metric in SCORES
    ]
    return TransferReport(tuple(rows), tuple(fractions), len(test.dags), tuple(seeds), tuple(gains))


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


def _row(family: str, condition: str, trained: Sequence[Labeled], draws: _Draws) -> TransferRow:
    """Summarize one family under one condition."""
    by_name = {metric.name: _score(metric, draws[metric.name]) for metric in SCORES}
    return TransferRow(family, condition, len(trained[-1].dags), by_name)


def _reached(family: str, score: str, synthetic: _Draws, real: _Draws) -> ReachedFraction:
    """Return what synthetic graphs reach of one score."""
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(synthetic[score][:, 0].mean() / real[score][:, 0].mean())
        resampled_SR = synthetic[score][:, 1:] / real[score][:, 1:]
    return ReachedFraction(family, score, value, Interval.around(value, resampled_SR))


def _gain(case: tuple[str, str], metric: PredictionScore, together: _Draws, alone: _Draws) -> Gain:
    """Return what synthetic graphs add to one score."""
    added_SR = together[metric.name] - alone[metric.name]
    if metric.goal is Goal.MINIMIZE:
        added_SR = -added_SR
    value = float(added_SR[:, 0].mean())
    return Gain(*case, metric.name, value, Interval.around(value, added_SR[:, 1:]))


def _score(metric: PredictionScore, draws_SR: np.ndarray) -> Score:
    """Summarize the draws of all seeds; the first draw of a seed is the figure itself."""
    mean = float(draws_SR[:, 0].mean())
    interval = Interval.around(mean, draws_SR[:, 1:], metric.lower, metric.upper)
    return Score(mean, interval, tuple(draws_SR[:, 0].tolist()))
