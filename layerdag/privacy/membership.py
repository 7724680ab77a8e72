"""Membership inference: from scores of members and of other graphs to an AUROC and low rates.

Distances of samples to real graphs alone miss leaks (Yao et al., "The DCR Delusion", ESORICS
2025), so the question is put as an attack: score each real graph, half of them members of the
training set and half not, and see how well the score tells them apart. The AUROC is a mean over
all graphs; that of a generator that gives a few training graphs away for sure, and nothing of the
others, is near one half (Carlini et al., IEEE S&P 2022). So the true-positive rate (TPR) at a low
false-positive rate (FPR) stands beside it. Attacks that need the samples alone are in
``membership_attacks`` and ``attacks``; the one here needs the weights.
"""

import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property

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

_NAMES = {"train": "training", "held_out": "held-out"}


def require_graphs(what: str, **sets: Sized) -> None:
    """Raise UsageError if a set is empty, with its name.

    Args:
        what: What needs them, in the plural ("Membership attacks").
        **sets: Graphs, or what stands for each, by the name of the set.
    """
    names = {name: _NAMES.get(name, name) for name in sets}
    empty = [names[name] for name, graphs in sets.items() if not len(graphs)]
    if empty:
        raise UsageError(
            f"{what} need {' and '.join(names.values())} graphs; the {empty[0]} set is empty."
        )


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
        need = SampleSizeRequirement("held-out graphs", total, needed * len(folds))
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
    exact = Interval.clopper_pearson(value, members)
    low, high = np.quantile(draws.rates(rate), (0.025, 0.975))
    interval = Interval(min(exact.low, float(low)), max(exact.high, float(high)))
    return DetectionRate(rate, value, interval, chance, None)


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


class _Draws:
    def __init__(self, name: str, folds: Sequence[Scores], seed: int) -> None:
        self._name, self._folds, self._seed = name, folds, seed

    @cached_property
    def _resamples(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
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


MAX_SCORED = 256
FALSE_POSITIVE_RATE = 0.1


@dataclass(frozen=True)
class AttackResult:
    """How well one score tells members of the training set from other real graphs.

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
        verdict: What the interval says.
        need: How many graphs a verdict would take; None where there is one.
        rates: TPR at each of ``LOW_RATES``, with intervals.
        holdout: The same attack where nothing can leak: held-out graphs pose as samples, or, to
            attacks that need none, as training graphs. None with too few of them.
        fractions: What the score is about, over all training graphs and over all held-out ones,
            where it is a fraction: of motifs that recur, of nodes that are reconstructed.
        sampled: Number of samples that it looked at, where these are a random part of all; else
            None.
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
        need: SampleSizeRequirement,
    ) -> "AttackResult":
        """Return the result of an attack, without rates.

        Args:
            name: Of the attack.
            description: The score.
            auc: Chance that a member scores above a non-member.
            half: Half-width of its 95 % interval.
            counts: Numbers of members and of non-members.
            folds: Their scores.
            need: What a verdict takes, where there is none.
        """
        interval = Interval(max(auc - half, 0.0), min(auc + half, 1.0))
        verdict = Verdict.from_interval(interval)
        return cls(
            name=name,
            description=description,
            auc=auc,
            interval=interval,
            true_positive_rate=float(np.mean([true_positive_rate(*fold) for fold in folds])),
            members=counts[0],
            non_members=counts[1],
            verdict=verdict,
            need=need if verdict is Verdict.TOO_FEW else None,
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
    seed: int = 0,
) -> AttackResult:
    """Return the attack of somebody who has the weights: members have a higher likelihood.

    The score is minus the model's losses of a graph in nats per node (Yeom et al., CSF 2018). At
    most ``MAX_SCORED`` graphs of each set, drawn at random, are scored.

    Raises:
        UsageError: If a set is too small.
    """
    require_graphs("Membership attacks", train=train, held_out=held_out)
    rng = numpy_generator(seed, "membership-likelihood")
    scored = [
        [dags[i] for i in np.sort(rng.permutation(len(dags))[:MAX_SCORED])]
        for dags in (train, held_out)
    ]
    member_T, other_H = (graph_losses(model, schema, dags, seed) for dags in scored)
    what = "likelihood of the graph, by the weights"
    found = attack_by_scores("likelihood", what, [(-member_T, -other_H)], seed)
    return with_members_held_out(found, -other_H, seed)


@torch.no_grad()
def graph_losses(
    model: DAGModel, schema: GraphSchema, dags: Sequence[DAG], seed: int = 0
) -> np.ndarray:
    """Return the sum of all losses of each graph, in nats per node, float64 (B,).

    The noise of every graph comes from the same seed, so that graphs differ by themselves alone.

    Args:
        model: Its mode (training or evaluation) is kept.
        schema: By which the graphs and their conditions are encoded.
        dags: In layer order.
        seed: Of the noise.
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
    """Return how well a score tells members from others, the mean over folds.

    Args:
        name: Of the attack.
        what: The score.
        folds: Scores of the same members and of other others in each.
        seed: Of the bootstrap.
    """
    members, others = folds[0][0].size, sum(other_H.size for _, other_H in folds)
    auc = float(np.mean([auroc(*fold) for fold in folds]))
    draws_R = _bootstrap(name, folds, seed)
    half = max(NORMAL_95 * float(draws_R.std(ddof=1)), chance_half_width(members, others))
    need = SampleSizeRequirement("held-out graphs", others, needed(auc, half, others))
    found = AttackResult.from_auc(name, what, auc, half, (members, others), folds, need)
    return replace(found, rates=detection_rates(name, folds, seed))


def with_members_held_out(found: AttackResult, other_H: np.ndarray, seed: int) -> AttackResult:
    """Return an attack with itself beside, half of the held-out graphs posing as training graphs.

    So much it finds where there is nothing to be found; for attacks that need no samples.

    Args:
        found: The attack.
        other_H: Scores of the held-out graphs.
        seed: Of the halves.
    """
    if other_H.size < 2:
        return found
    order = numpy_generator(seed, "held-out graphs as members").permutation(other_H.size)
    posing, rest = other_H[order[: other_H.size // 2]], other_H[order[other_H.size // 2 :]]
    what = f"{posing.size} held-out graphs pose as training graphs"
    return replace(found, holdout=attack_by_scores(found.name, what, [(posing, rest)], seed))


def _bootstrap(name: str, folds: Sequence[Scores], seed: int) -> np.ndarray:
    rng = numpy_generator(seed, "membership-bootstrap", name)
    members = folds[0][0].size
    weight_RT = bootstrap_weights(rng, REPLICATES, members)
    total_R = np.zeros(REPLICATES)
    for member_T, other_H in folds:
        weight_RH = bootstrap_weights(rng, REPLICATES, other_H.size)
        wins_R = resampled_wins(member_T, other_H, weight_RT, weight_RH)
        total_R += wins_R / (members * other_H.size)
    return total_R / len(folds)


def true_positive_rate(member_T: np.ndarray, other_H: np.ndarray) -> float:
    """Return the TPR, the fraction of members found, at a FPR of ``FALSE_POSITIVE_RATE``."""
    return float((member_T > np.quantile(other_H, 1 - FALSE_POSITIVE_RATE)).mean())
