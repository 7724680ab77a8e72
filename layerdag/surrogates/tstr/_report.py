"""The outcome of training on synthetic and testing on real graphs."""

from collections.abc import Mapping
from dataclasses import dataclass

from layerdag.evaluation.metrics import Interval

RELATIVE = ("pearson", "spearman")
"""Scores that are also shown as a percentage of the real ones."""


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
        condition: One of ``CONDITIONS`` or of ``few_real``, or ``RELABELED``.
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


@dataclass(frozen=True)
class Gain:
    """What synthetic graphs add to real ones.

    Attributes:
        family: Name of the family.
        condition: The condition that has both kinds of graphs.
        score: Name of the score.
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
        family: Name of its family.
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
        rows: One per family and condition.
        fractions: One per family and score, where both conditions "real" and "synthetic" were run.
        tested_on: Number of real test graphs.
        seeds: Seeds of the fits.
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
