"""Membership inference: from scores of members and of other graphs to an AUROC and low rates.

Distances of samples to real graphs alone miss leaks (Yao et al., "The DCR Delusion", ESORICS
2025), so the question is put as an attack: score each real graph, half of them members of the
training set and half not, and see how well the score separates them. The AUROC is a mean over
all graphs; that of a generator that gives a few training graphs away for sure, and nothing of the
others, is near one half (Carlini et al., IEEE S&P 2022). So the true-positive rate (TPR) at a low
false-positive rate (FPR) stands beside it. Attacks that need the samples alone are in
``membership_attacks`` and ``attacks``; the one here needs the weights.
"""

import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import encode_batch
from layerdag.errors import UsageError
from layerdag.models.base import DAGModel
from layerdag.runtime.native import set_openmp_passive
from layerdag.runtime.rng import derive_seed, numpy_generator
from layerdag.schema.schema import GraphSchema
from layerdag.statistics import (
    NORMAL_95,
    Interval,
    SampleSizeRequirement,
    Verdict,
    auroc,
    bootstrap_weights,
    chance_half_width,
    needed,
    resampled_wins,
)


def require_graphs(what: str, **sets: Sized) -> None:
    """Raise UsageError if a set is empty; ``what`` needs them, in the plural."""
    written = {"train": "training", "held_out": "held-out"}
    names = {name: written.get(name, name) for name in sets}
    empty = [names[name] for name, graphs in sets.items() if not len(graphs)]
    if empty:
        raise UsageError(
            f"{what} need {' and '.join(names.values())} graphs; the {empty[0]} set is empty."
        )


Scores = tuple[np.ndarray, np.ndarray]
"""Scores of members and of others."""

LOW_RATES = (0.01, 0.001)
CERTAIN = 0.001
"""Probability below which finding so many members is not chance; many rates are tested."""
REPLICATES = 500


@dataclass(frozen=True)
class DetectionRate:
    """The fraction of members that an attack finds at one false-positive rate.

    Attributes:
        false_positive_rate: At most so many of the non-members may be accused.
        true_positive_rate: Fraction of members found; None where so few non-members do not
            resolve the rate.
        interval: The wider of two 95 % intervals: the exact one of Clopper and Pearson, over
            members, and the bootstrap's, over members and threshold.
        by_chance: Chance that a score that says nothing finds at least as many; exact.
        need: How many non-members it takes; None where there are enough.
    """

    false_positive_rate: float
    true_positive_rate: float | None
    interval: Interval | None
    by_chance: float | None
    need: SampleSizeRequirement | None

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

    A rate is unknown where a fold may not accuse a single non-member. The bootstrap draws from a
    stream of ``seed`` and ``name``, the attack's. All folds have the same members.
    """
    members = folds[0][0].size
    smallest = min(other_H.size for _, other_H in folds)
    resamples: list[Resample] = []
    rates = []
    for rate in LOW_RATES:
        required = math.ceil(1 / rate - 1e-9)
        if smallest < required:
            total = sum(other_H.size for _, other_H in folds)
            need = SampleSizeRequirement("held-out graphs", total, required * len(folds))
            rates.append(DetectionRate(rate, None, None, None, need))
            continue
        resamples = resamples or _resamples(name, folds, seed)
        found = [_found(member_T, other_H, rate) for member_T, other_H in folds]
        value = float(np.mean(found)) / members
        chances = [
            _by_chance(count, members, other_H.size, rate)
            for count, (_, other_H) in zip(found, folds, strict=True)
        ]
        # Folds share their members: twice the mean of dependent p-values is one
        # (Vovk and Wang, 2020).
        chance = chances[0] if len(folds) == 1 else min(2 * float(np.mean(chances)), 1.0)
        exact = Interval.clopper_pearson(value, members)
        low, high = np.quantile(_resampled_rates(resamples, rate), (0.025, 0.975))
        interval = Interval(min(exact.low, float(low)), max(exact.high, float(high)))
        rates.append(DetectionRate(rate, value, interval, chance, None))
    return tuple(rates)


def _allowed(others: int, rate: float) -> int:
    return math.floor(others * rate + 1e-9)


def _found(member_T: np.ndarray, other_H: np.ndarray, rate: float) -> int:
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


Resample = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Falling scores of members with their cumulated weights (R, T), the same of others (R, H)."""


def _resamples(name: str, folds: Sequence[Scores], seed: int) -> list[Resample]:
    rng = numpy_generator(seed, "detection rate", name)
    weight_RT = bootstrap_weights(rng, REPLICATES, folds[0][0].size)
    found = []
    for member_T, other_H in folds:
        weight_RH = bootstrap_weights(rng, REPLICATES, other_H.size)
        order_T = np.argsort(-member_T, kind="stable")
        order_H = np.argsort(-other_H, kind="stable")
        upto_RT = np.cumsum(weight_RT[:, order_T], axis=1)
        upto_RH = np.cumsum(weight_RH[:, order_H], axis=1)
        found.append((member_T[order_T], upto_RT, other_H[order_H], upto_RH))
    return found


def _resampled_rates(resamples: Sequence[Resample], rate: float) -> np.ndarray:
    """Return the true-positive rate of each resample, the mean over folds."""
    total_R = np.zeros(REPLICATES)
    for falling_T, upto_RT, falling_H, upto_RH in resamples:
        size = falling_H.size
        position_R = (upto_RH <= _allowed(size, rate)).sum(axis=1)
        threshold_R = falling_H[np.minimum(position_R, size - 1)]
        count_R = np.searchsorted(-falling_T, -threshold_R, side="left")
        found_R = upto_RT[np.arange(REPLICATES), np.maximum(count_R - 1, 0)]
        total_R += np.where(count_R > 0, found_R, 0.0) / falling_T.size
    return total_R / len(resamples)


MAX_SCORED = 256
FALSE_POSITIVE_RATE = 0.1


@dataclass(frozen=True)
class AttackResult:
    """How well one score separates members of the training set from other real graphs.

    Attributes:
        name: Of those in ``attacks``, or "likelihood", "schema_lookup" or "schema_density".
        description: The score, in one sentence.
        auc: Chance that a member scores above a non-member; 0.5 says nothing leaks to this attack,
            1 that every member is known.
        interval: 95 % bootstrap interval of ``auc`` over members and over others, no narrower than
            that of a score that says nothing.
        true_positive_rate: TPR, the fraction of members found, at a false-positive rate (FPR) of
            ``FALSE_POSITIVE_RATE``.
        members: Number of training graphs scored.
        non_members: Number of held-out graphs scored.
        verdict: Conclusion from the interval.
        need: How many graphs a verdict would take; None where there is one.
        rates: TPR at each of ``LOW_RATES``, with intervals.
        holdout: The same attack where nothing can leak: held-out graphs pose as samples, or, to
            attacks that need none, as training graphs. None with too few of them.
        fractions: What the score is about, over all training graphs and over all held-out ones,
            where it is a fraction: of motifs that recur, of nodes that are reconstructed.
        sampled: Number of samples that it used, where these are a random part of all.
    """

    name: str
    description: str
    auc: float
    interval: Interval
    true_positive_rate: float
    members: int
    non_members: int
    verdict: Verdict
    need: SampleSizeRequirement | None
    rates: tuple[DetectionRate, ...] = ()
    holdout: "AttackResult | None" = None
    fractions: tuple[float, float] | None = None
    sampled: int | None = None

    @classmethod
    def from_auc(
        cls,
        name: str,
        description: str,
        auc: float,
        half: float,
        counts: tuple[int, int],
        folds: Sequence[Scores],
        resampled: tuple[str, int],
        rates: tuple[DetectionRate, ...],
    ) -> "AttackResult":
        """Return the result of an attack.

        Args:
            name: Name of the attack.
            description: The score, in one sentence.
            auc: Area under the ROC curve.
            half: Half-width of its 95 % interval.
            counts: Numbers of members and of non-members.
            folds: Their scores.
            resampled: Of which graphs a verdict may take more, and how many there are.
            rates: Rates at few false positives.
        """
        interval = Interval(max(auc - half, 0.0), min(auc + half, 1.0))
        caught = [
            (member_T > np.quantile(other_H, 1 - FALSE_POSITIVE_RATE)).mean()
            for member_T, other_H in folds
        ]
        verdict = Verdict.from_interval(interval)
        need = SampleSizeRequirement(*resampled, needed(auc, half, resampled[1]))
        return cls(
            name=name,
            description=description,
            auc=auc,
            interval=interval,
            true_positive_rate=float(np.mean(caught)),
            members=counts[0],
            non_members=counts[1],
            verdict=verdict,
            need=need if verdict is Verdict.TOO_FEW else None,
            rates=rates,
        )

    def to_dict(self) -> dict[str, object]:
        """Return the fields as reports save them."""
        return {
            "name": self.name,
            "what": self.description,
            "auc": self.auc,
            "interval": self.interval,
            "caught": self.true_positive_rate,
            "members": self.members,
            "others": self.non_members,
            "verdict": self.verdict,
            "need": self.need,
            "rates": self.rates,
            "holdout": self.holdout,
            "fractions": self.fractions,
            **({} if self.sampled is None else {"sampled": self.sampled}),
        }

    @property
    def finds_some(self) -> bool:
        """Whether members are found at a low false-positive rate, far beyond chance."""
        return any(rate.is_above_chance for rate in self.rates)

    @property
    def leaks(self) -> bool:
        """Whether the attack does better than guessing, beyond chance."""
        return self.verdict is Verdict.LEAKS

    def in_words(self) -> str:
        """Return the verdict as a clause."""
        if self.need is None:
            return self.verdict.value
        return f"{self.verdict.value} ({self.need.in_words()})"


def likelihood_attack(
    model: DAGModel,
    schema: GraphSchema,
    train: Sequence[DAG],
    held_out: Sequence[DAG],
) -> AttackResult:
    """Return the attack of somebody who has the weights: members have a higher likelihood.

    The score is minus the model's losses of a graph in nats per node (Yeom et al., CSF 2018). At
    most ``MAX_SCORED`` graphs of each set, drawn at random, are scored.

    Raises:
        UsageError: If a set is too small.
    """
    require_graphs("Membership attacks", train=train, held_out=held_out)
    rng = numpy_generator(0, "membership-likelihood")
    scored = [
        [dags[i] for i in np.sort(rng.permutation(len(dags))[:MAX_SCORED])]
        for dags in (train, held_out)
    ]
    member_T, other_H = (graph_losses(model, schema, dags) for dags in scored)
    what = "likelihood of the graph, by the weights"
    found = attack_by_scores("likelihood", what, [(-member_T, -other_H)], 0)
    return with_members_held_out(found, -other_H, 0)


@torch.no_grad()
def graph_losses(
    model: DAGModel, schema: GraphSchema, dags: Sequence[DAG], seed: int = 0
) -> np.ndarray:
    """Return the sum of all losses of each graph, in nats per node, float64 (B,).

    The noise of every graph comes from the same seed, so that graphs differ by themselves alone.
    The graphs are in layer order; the model's mode (training or evaluation) is kept.
    """
    set_openmp_passive()
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    losses = []
    for dag in dags:
        generator = torch.Generator(device).manual_seed(derive_seed(seed, "likelihood"))
        terms = model.losses(encode_batch(schema, [dag]).to(device), generator)
        losses.append(sum(float(term.total) for term in terms.values()) / dag.num_nodes)
    model.train(was_training)
    return np.array(losses)


def attack_by_scores(name: str, what: str, folds: Sequence[Scores], seed: int) -> AttackResult:
    """Return how well a score separates members from others, the mean over folds.

    All folds have the same members. ``name`` and ``seed`` define the stream of the bootstrap.
    """
    members, others = folds[0][0].size, sum(other_H.size for _, other_H in folds)
    auc = float(np.mean([auroc(*fold) for fold in folds]))
    rng = numpy_generator(seed, "membership-bootstrap", name)
    weight_RT = bootstrap_weights(rng, REPLICATES, members)
    total_R = np.zeros(REPLICATES)
    for member_T, other_H in folds:
        weight_RH = bootstrap_weights(rng, REPLICATES, other_H.size)
        wins_R = resampled_wins(member_T, other_H, weight_RT, weight_RH)
        total_R += wins_R / (members * other_H.size)
    spread = float((total_R / len(folds)).std(ddof=1))
    half = max(NORMAL_95 * spread, chance_half_width(members, others))
    rates = detection_rates(name, folds, seed)
    resampled = ("held-out graphs", others)
    return AttackResult.from_auc(name, what, auc, half, (members, others), folds, resampled, rates)


def with_members_held_out(found: AttackResult, other_H: np.ndarray, seed: int) -> AttackResult:
    """Return an attack that needs no samples, with itself where there is nothing to find.

    Half of the held-out graphs, whose scores are ``other_H``, pose as training graphs.
    """
    if other_H.size < 2:
        return found
    order = numpy_generator(seed, "held-out graphs as members").permutation(other_H.size)
    posing, rest = other_H[order[: other_H.size // 2]], other_H[order[other_H.size // 2 :]]
    what = f"{posing.size} held-out graphs pose as training graphs"
    return replace(found, holdout=attack_by_scores(found.name, what, [(posing, rest)], seed))
