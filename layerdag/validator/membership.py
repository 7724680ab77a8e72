"""Can an attacker tell which real graphs a generator was trained on?

Distances of samples to real graphs alone miss leaks (Yao et al., "The DCR Delusion", ESORICS
2025), so the question is put as an attack: score each real graph, half of them members of the
training set and half not, and see how well the score tells them apart. Two attacks need the
samples alone, as somebody has to whom only those were given; the third needs the weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import rankdata

from layerdag.datasets.base import encode_batch
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import UsageError
from layerdag.graph.dag import DAG
from layerdag.model.base import DAGModel
from layerdag.rng import derive_seed, numpy_generator
from layerdag.validator.copying import kernel_distances
from layerdag.validator.histograms import bootstrap_weights
from layerdag.validator.metrics import Interval

REPLICATES = 500
MOST_SCORED = 256
FALSE_ALARMS = 0.1


@dataclass(frozen=True)
class Attack:
    """How well one score tells members of the training set from other real graphs.

    Attributes:
        name: "nearest_sample", "density_ratio" or "likelihood".
        what: The score, in one sentence.
        auc: Chance that a member scores above a non-member; 0.5 says nothing leaks to this attack,
            1 that every member is known.
        interval: 95 % bootstrap interval of ``auc`` over members and over others.
        caught: Share of members above the score that a share ``FALSE_ALARMS`` of others exceeds.
        members: Number of training graphs scored.
        others: Number of held-out graphs scored.
    """

    name: str
    what: str
    auc: float
    interval: Interval | None
    caught: float
    members: int
    others: int

    @property
    def leaks(self) -> bool:
        """Whether the attack does better than guessing, beyond chance."""
        return self.interval is not None and self.interval.low > 0.5


def sample_attacks(
    train: Sequence[DAG], held_out: Sequence[DAG], generated: Sequence[DAG], seed: int = 0
) -> tuple[Attack, ...]:
    """Return the attacks that need the samples alone.

    "nearest_sample" (Chen et al., GAN-Leaks, CCS 2020): the nearer a sample, the likelier a member.
    "density_ratio" (van Breugel et al., DOMIAS, AISTATS 2023): the same density of samples means
    more where real graphs are rare, so it is divided by the density of other real graphs, which
    the attacker has: a random half of the held-out ones; the other half are the non-members.
    Densities are Gaussian kernel estimates over Weisfeiler-Lehman distances.

    Args:
        train: Training graphs, the members.
        held_out: Real graphs that the generator never saw, at least 4.
        generated: Samples.
        seed: Of the halves and of the bootstrap.

    Raises:
        UsageError: If a set is too small.
    """
    _require(train, held_out, generated)
    order = numpy_generator(seed, "membership").permutation(len(held_out))
    reference = [held_out[i] for i in order[: len(held_out) // 2]]
    others = [held_out[i] for i in order[len(held_out) // 2 :]]
    distance = kernel_distances([*train, *others], [*generated, *reference])
    to_sample, to_reference = distance[:, : len(generated)], distance[:, len(generated) :]
    ratio_G = _log_density(to_sample, to_reference) - _log_density(to_reference, to_reference)
    nearest_G = -to_sample.min(axis=1)
    said = (
        ("nearest_sample", "how near the nearest sample is", nearest_G),
        ("density_ratio", "density of samples over that of other real graphs", ratio_G),
    )
    return tuple(
        _attack(name, what, score_G[: len(train)], score_G[len(train) :], seed)
        for name, what, score_G in said
    )


def likelihood_attack(
    model: DAGModel,
    schema: GraphSchema,
    train: Sequence[DAG],
    held_out: Sequence[DAG],
    seed: int = 0,
) -> Attack:
    """Return the attack of somebody who has the weights: members have a higher likelihood.

    The score is minus the model's losses of a graph in nats a node (Yeom et al., CSF 2018). At most
    ``MOST_SCORED`` graphs of each set, drawn at random, are scored.

    Raises:
        UsageError: If a set is too small.
    """
    _require(train, held_out)
    rng = numpy_generator(seed, "membership-likelihood")
    scored = [
        [dags[i] for i in np.sort(rng.permutation(len(dags))[:MOST_SCORED])]
        for dags in (train, held_out)
    ]
    member_T, other_H = (graph_losses(model, schema, dags, seed) for dags in scored)
    return _attack(
        "likelihood", "likelihood of the graph, by the weights", -member_T, -other_H, seed
    )


@torch.no_grad()
def graph_losses(
    model: DAGModel, schema: GraphSchema, dags: Sequence[DAG], seed: int = 0
) -> np.ndarray:
    """Return the sum of all losses of each graph, in nats a node, float64 (B,).

    The noise of every graph comes from the same seed, so that graphs differ by themselves alone.

    Args:
        model: Its mode (training or evaluation) is kept.
        schema: By which the graphs and their conditions are encoded.
        dags: In layer order.
        seed: Of the noise.
    """
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


def _attack(name: str, what: str, member_T: np.ndarray, other_H: np.ndarray, seed: int) -> Attack:
    """Return how well a score tells members from others."""
    auc = area_under_curve(member_T, other_H)
    rng = numpy_generator(seed, "membership-bootstrap", name)
    weight_RT = bootstrap_weights(rng, REPLICATES, member_T.size)
    weight_RH = bootstrap_weights(rng, REPLICATES, other_H.size)
    above_TH = (member_T[:, None] > other_H) + 0.5 * (member_T[:, None] == other_H)
    draws_R = ((weight_RT @ above_TH) * weight_RH).sum(axis=1) / (member_T.size * other_H.size)
    alarm = np.quantile(other_H, 1 - FALSE_ALARMS)
    return Attack(
        name=name,
        what=what,
        auc=auc,
        interval=Interval.around(auc, draws_R, 0.0, 1.0),
        caught=float((member_T > alarm).mean()),
        members=member_T.size,
        others=other_H.size,
    )


def _log_density(distance_GK: np.ndarray, reference_GK: np.ndarray) -> np.ndarray:
    """Return the logarithm of a kernel density from distances, up to one constant.

    The bandwidth, of both densities, is a third of the median distance to the nearest graph of the
    reference: a copy weighs as much as exp(9 / 2), about 90, neighbours at that distance.
    """
    width = max(float(np.median(reference_GK.min(axis=1))) / 3, 1e-3)
    exponent_GK = -0.5 * (distance_GK / width) ** 2
    return np.logaddexp.reduce(exponent_GK, axis=1) - np.log(distance_GK.shape[1])


def _require(*sets: Sequence[DAG]) -> None:
    """Raise UsageError if a set is too small to be told apart from another."""
    smallest = min(map(len, sets))
    if smallest < 4:
        raise UsageError(
            f"A membership attack needs at least 4 graphs of each kind, found {smallest}; give "
            "more training, held-out or sampled graphs."
        )
