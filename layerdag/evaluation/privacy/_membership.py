"""Can an attacker tell which real graphs a generator was trained on?

Distances of samples to real graphs alone miss leaks (Yao et al., "The DCR Delusion", ESORICS
2025), so the question is put as an attack: score each real graph, half of them members of the
training set and half not, and see how well the score tells them apart. Attacks that need
the samples alone are in ``attacks``; the one here needs the weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.stats import rankdata

from layerdag._runtime import (
    derive_seed,
    numpy_generator,
    wait_briefly,
)
from layerdag.datasets import encode_batch
from layerdag.datasets.schema import GraphSchema
from layerdag.evaluation.metrics import NORMAL_95, Interval, bootstrap_weights
from layerdag.evaluation.privacy._rates import DetectionRate, Scores, detection_rates
from layerdag.evaluation.privacy._verdict import (
    Need,
    Verdict,
    chance_half_width,
    needed,
    require_graphs,
)
from layerdag.graph import DAG
from layerdag.models import DAGModel

REPLICATES = 500
MOST_SCORED = 256
FALSE_POSITIVE_RATE = 0.1


@dataclass(frozen=True)
class Attack:
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
    need: Need | None
    rates: tuple[DetectionRate, ...] = ()
    holdout: "Attack | None" = None
    fractions: tuple[float, float] | None = None
    sampled: int | None = None

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
) -> Attack:
    """Return the attack of somebody who has the weights: members have a higher likelihood.

    The score is minus the model's losses of a graph in nats per node (Yeom et al., CSF 2018). At
    most ``MOST_SCORED`` graphs of each set, drawn at random, are scored.

    Raises:
        UsageError: If a set is too small.
    """
    require_graphs("Membership attacks", train=train, held_out=held_out)
    rng = numpy_generator(seed, "membership-likelihood")
    scored = [
        [dags[i] for i in np.sort(rng.permutation(len(dags))[:MOST_SCORED])]
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
    wait_briefly()
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


def area_under_curve(member_T: np.ndarray, other_H: np.ndarray) -> float:
    """Return the chance that a member scores above another graph; a tie counts half."""
    rank_G = rankdata(np.concatenate([member_T, other_H]))
    wins = rank_G[: member_T.size].sum() - member_T.size * (member_T.size + 1) / 2
    return float(wins / (member_T.size * other_H.size))


def attack_by_scores(name: str, what: str, folds: Sequence[Scores], seed: int) -> Attack:
    """Return how well a score tells members from others, the mean over folds.

    Args:
        name: Of the attack.
        what: The score.
        folds: Scores of the same members and of other others in each.
        seed: Of the bootstrap.
    """
    members, others = folds[0][0].size, sum(other_H.size for _, other_H in folds)
    auc = float(np.mean([area_under_curve(*fold) for fold in folds]))
    draws_R = _bootstrap(name, folds, seed)
    half = max(NORMAL_95 * float(draws_R.std(ddof=1)), chance_half_width(members, others))
    interval = Interval(max(auc - half, 0.0), min(auc + half, 1.0))
    verdict = Verdict.of(interval)
    need = Need("held-out graphs", others, needed(auc, half, others))
    return Attack(
        name=name,
        description=what,
        auc=auc,
        interval=interval,
        true_positive_rate=float(np.mean([true_positive_rate(*fold) for fold in folds])),
        members=members,
        non_members=others,
        verdict=verdict,
        need=need if verdict is Verdict.TOO_FEW else None,
        rates=detection_rates(name, folds, seed),
    )


def with_members_held_out(found: Attack, other_H: np.ndarray, seed: int) -> Attack:
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
    """Return the area under the curve of resampled members and others, the mean over folds."""
    rng = numpy_generator(seed, "membership-bootstrap", name)
    members = folds[0][0].size
    weight_RT = bootstrap_weights(rng, REPLICATES, members)
    total_R = np.zeros(REPLICATES)
    for member_T, other_H in folds:
        weight_RH = bootstrap_weights(rng, REPLICATES, other_H.size)
        above_TH = (member_T[:, None] > other_H) + 0.5 * (member_T[:, None] == other_H)
        total_R += ((weight_RT @ above_TH) * weight_RH).sum(axis=1) / (members * other_H.size)
    return total_R / len(folds)


def true_positive_rate(member_T: np.ndarray, other_H: np.ndarray) -> float:
    """Return the TPR, the fraction of members found, at a FPR of ``FALSE_POSITIVE_RATE``."""
    return float((member_T > np.quantile(other_H, 1 - FALSE_POSITIVE_RATE)).mean())
