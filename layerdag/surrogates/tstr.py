"""Train on synthetic, test on real (TSTR): do synthetic graphs teach a surrogate what real ones do?

A score says nothing alone. Beside training on synthetic graphs stand the ceiling (training on all
real graphs), a real subsample, the real graphs drawn again with replacement, the floor (real graphs
with shuffled targets), and real plus synthetic graphs together. All are tested on the same real
graphs, which no training saw.

The other way round, surrogates that were fitted to real graphs and that no generator ever saw tell
whether samples have the labels that stand beside them: the conditional error.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.errors import UsageError
from layerdag.evaluation.metrics.base import Goal
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.terminal import track
from layerdag.statistics import Interval, bootstrap_weights
from layerdag.surrogates.families.base import SurrogateModel
from layerdag.surrogates.scoring import EVALUATED, SCORES, PredictionScore, scores, too_few_tested
from layerdag.surrogates.targets import Labeled
from layerdag.surrogates.training_sets import (
    CONDITIONS,
    REAL,
    RELABELED,
    SYNTHETIC,
    TOGETHER,
    require_condition,
    training_set,
)

RELATIVE = ("pearson", "spearman")
"""Scores that are also shown as a percentage of the real ones."""


@dataclass(frozen=True)
class Score:
    """One figure over several seeds.

    Attributes:
        interval: 95 % interval from the spread over seeds and over resampled test graphs.
    """

    mean: float
    interval: Interval | None
    by_seed: tuple[float, ...]


@dataclass(frozen=True)
class TransferRow:
    """One family of surrogates trained under one condition.

    Attributes:
        condition: One of ``CONDITIONS`` or of ``few_real``, or ``RELABELED``.
    """

    family: str
    condition: str
    trained_on: int
    scores: Mapping[str, Score]


@dataclass(frozen=True)
class ReachedFraction:
    """What training on synthetic graphs reaches of what training on all real graphs does.

    Attributes:
        value: Mean of the score over seeds, divided by the same mean for real graphs.
        interval: 95 % interval over seeds and resampled test graphs. Both scores are of the
            same resample, for what makes it hard to predict makes it hard for both.
    """

    family: str
    score: str
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Gain:
    """What synthetic graphs add to real ones.

    Attributes:
        condition: The condition that has both kinds of graphs.
        value: Its mean over seeds minus that of the same real graphs alone; of an error the other
            way round, so that positive is better.
        interval: 95 % interval over seeds and resampled test graphs, paired.
    """

    family: str
    condition: str
    score: str
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class ConditionalError:
    """How far the labels that stand beside synthetic graphs are from those of a surrogate.

    The surrogate was fitted to all real training graphs, and no generator ever saw it.

    Attributes:
        synthetic: Score on the synthetic graphs, by name of ``EVALUATED``.
        real: The same on real test graphs: what the surrogate gets wrong itself.
    """

    family: str
    synthetic: Mapping[str, Score]
    real: Mapping[str, Score]


@dataclass(frozen=True)
class TransferReport:
    """The outcome with what is needed to repeat it.

    Attributes:
        fractions: One per family and score, where both conditions "real" and "synthetic" were run.
        gains: One per family, score and condition of real and synthetic graphs together, where the
            same real graphs alone were run, too.
        conditional: One per family, where condition "real" was run.
    """

    rows: tuple[TransferRow, ...]
    fractions: tuple[ReachedFraction, ...]
    tested_on: int
    seeds: tuple[int, ...]
    gains: tuple[Gain, ...] = ()
    conditional: tuple[ConditionalError, ...] = ()

    def row(self, family: str, condition: str) -> TransferRow:
        """Return one row."""
        return next(r for r in self.rows if (r.family, r.condition) == (family, condition))

    def fraction(self, family: str, score: str) -> ReachedFraction:
        """Return what synthetic graphs reach of one score of real graphs."""
        return next(s for s in self.fractions if (s.family, s.score) == (family, score))

    def gain(self, family: str, condition: str, score: str) -> Gain:
        """Return what synthetic graphs add to one score."""
        wanted = (family, condition, score)
        return next(g for g in self.gains if (g.family, g.condition, g.score) == wanted)

    def __str__(self) -> str:
        """Return a line for each family and condition, then what the rows say together."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"tested on {self.tested_on} real graphs, seeds {', '.join(map(str, self.seeds))}"
        width = max(len(row.condition) for row in self.rows)
        for row in self.rows:
            figures = "  ".join(f"{name} {one.mean:7.3f}" for name, one in row.scores.items())
            yield f"{row.family:16} {row.condition:{width}}  {row.trained_on:5} graphs  {figures}"
        for reached in self.fractions:
            if reached.score in RELATIVE and reached.interval is not None:
                yield (
                    f"{reached.family:16} synthetic reaches {reached.value:.0%} of the real "
                    f"{reached.score} (95 % interval {reached.interval.low:.0%} to "
                    f"{reached.interval.high:.0%})"
                )
        for gain in self.gains:
            if gain.score in RELATIVE and gain.interval is not None:
                yield (
                    f"{gain.family:16} {gain.condition}: {gain.score} {gain.value:+.3f} beside the "
                    f"real ones alone (95 % interval {gain.interval.low:+.3f} to "
                    f"{gain.interval.high:+.3f})"
                )
        for one in self.conditional:
            off, off_real = (100 * found["mape"].mean for found in (one.synthetic, one.real))
            rank, rank_real = (found["spearman"].mean for found in (one.synthetic, one.real))
            yield (
                f"{one.family:16} fitted to real graphs: mean error {off:.0f} % on the labels of "
                f"samples, {off_real:.0f} % on those of real test graphs (spearman {rank:.3f} and "
                f"{rank_real:.3f})"
            )
        if few := too_few_tested(self.tested_on, "real test graphs"):
            yield few


Fit = Callable[[Sequence[DAG], np.ndarray, GraphSizes, int], SurrogateModel]
_Draws = Mapping[str, np.ndarray]


def evaluate_tstr(
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
        conditions: Which of ``CONDITIONS`` and of ``few_real`` to run, and ``RELABELED``. Those of
            ``few_real`` show what a generator adds to few graphs only if it learned from no others.

    Raises:
        UsageError: If a set is too small, a target is not finite, a condition is unknown or needs
            more families, or there is no seed.
    """
    if not seeds:
        raise UsageError("Surrogates are fitted once per seed; pass at least one seed.")
    for condition in conditions:
        require_condition(condition)
    if RELABELED in conditions and len(families) < 2:
        raise UsageError(
            f"'{RELABELED}' gives each family the labels of the others, and there is only "
            f"{', '.join(families) or 'none'}; name two families."
        )
    cases = [(family, condition) for family in families for condition in conditions]
    # Surrogates of all real graphs serve several conditions: each is fitted once.
    of_real = cache(lambda family, seed: families[family](real.dags, real.target_B, sizes, seed))

    def training(family: str, condition: str, seed: int) -> Labeled:
        if condition != RELABELED:
            return training_set(condition, real, synthetic, seed)
        others = [of_real(name, seed) for name in families if name != family]
        label_FB = np.stack([other.predict(synthetic.dags) for other in others])
        return Labeled(synthetic.dags, np.median(label_FB, axis=0).astype(np.float64))

    rows, draws, conditional = [], {}, []
    for family, condition in track(cases, "train on synthetic, test on real", len(cases)):
        trained = [training(family, condition, seed) for seed in seeds]
        models = [
            of_real(family, seed)
            if condition == REAL
            else families[family](known.dags, known.target_B, sizes, seed)
            for known, seed in zip(trained, seeds, strict=True)
        ]
        draws[family, condition] = _draws(models, test, seeds)
        summary = _summary(draws[family, condition])
        rows.append(TransferRow(family, condition, len(trained[-1].dags), summary))
        if condition == REAL:
            found = (_summary(_draws(models, on, seeds, EVALUATED)) for on in (synthetic, test))
            conditional.append(ConditionalError(family, *found))
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
    return TransferReport(
        rows=tuple(rows),
        fractions=tuple(fractions),
        tested_on=len(test.dags),
        seeds=tuple(seeds),
        gains=tuple(gains),
        conditional=tuple(conditional),
    )


def _draws(
    models: Sequence[SurrogateModel],
    tested: Labeled,
    seeds: Sequence[int],
    named: Sequence[PredictionScore] = SCORES,
) -> dict[str, np.ndarray]:
    """Return each score with each seed, on graphs and on resamples of them, (S, 1 + R).

    The resamples depend on the seed alone, so that two conditions can be paired.
    """
    found = []
    for model, seed in zip(models, seeds, strict=True):
        predicted_B = model.predict(tested.dags)
        rng = numpy_generator(seed, "test graphs")
        drawn_RB = bootstrap_weights(rng, 200, len(tested.dags))
        weights_RB = np.concatenate([np.ones((1, len(tested.dags))), drawn_RB])
        found.append(scores(tested.target_B, predicted_B, weights_RB, named))
    return {metric.name: np.stack([one[metric.name] for one in found]) for metric in named}


def _summary(draws: _Draws) -> dict[str, Score]:
    """Summarize the draws of all seeds; the first draw of a seed is the figure itself."""
    found = {}
    for metric in EVALUATED:
        if metric.name in draws:
            draws_SR = draws[metric.name]
            mean = float(draws_SR[:, 0].mean())
            interval = Interval.around(mean, draws_SR[:, 1:], metric.lower, metric.upper)
            found[metric.name] = Score(mean, interval, tuple(draws_SR[:, 0].tolist()))
    return found


def _reached(family: str, score: str, synthetic: _Draws, real: _Draws) -> ReachedFraction:
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(synthetic[score][:, 0].mean() / real[score][:, 0].mean())
        resampled_SR = synthetic[score][:, 1:] / real[score][:, 1:]
    return ReachedFraction(family, score, value, Interval.around(value, resampled_SR))


def _gain(case: tuple[str, str], metric: PredictionScore, together: _Draws, alone: _Draws) -> Gain:
    added_SR = together[metric.name] - alone[metric.name]
    if metric.goal is Goal.MINIMIZE:
        added_SR = -added_SR
    value = float(added_SR[:, 0].mean())
    return Gain(*case, metric.name, value, Interval.around(value, added_SR[:, 1:]))
