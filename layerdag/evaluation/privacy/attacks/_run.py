"""Running attacks, each beside itself on held-out graphs that pose as samples."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from layerdag.evaluation.privacy import Attack, Scores, attack_by_scores, require_graphs
from layerdag.evaluation.privacy.attacks._alignment import Reconstruction
from layerdag.evaluation.privacy.attacks._classifier import CalibratedClassifier
from layerdag.evaluation.privacy.attacks._distance import (
    DensityRatio,
    NearestProgram,
    NearestSample,
)
from layerdag.evaluation.privacy.attacks._motifs import UniqueMotifs
from layerdag.evaluation.privacy.attacks._pool import Pool, Roles
from layerdag.graph import DAG


@runtime_checkable
class SampleAttack(Protocol):
    """A score of real graphs by samples, higher for what was likelier trained on.

    Attributes:
        name: Of the attack.
        description: The score, in a clause.
    """

    name: str
    description: str

    def folds(self, roles: Roles, seed: int) -> list[Scores]:
        """Return the scores of members and of others; none where there are too few graphs."""

    def fractions(self, roles: Roles) -> tuple[float, float] | None:
        """Return what the score is about, over all members and others; None for no fraction."""


def all_attacks(pool: Pool) -> tuple[SampleAttack, ...]:
    """Return every attack on the samples of a pool."""
    found: list[SampleAttack] = [NearestSample(pool), DensityRatio(pool)]
    if pool.measured:
        found.append(NearestProgram(pool))
    return (*found, CalibratedClassifier(pool), UniqueMotifs(pool), Reconstruction(pool))


def attacked(attacks: Sequence[SampleAttack], roles: Roles, seed: int) -> tuple[Attack, ...]:
    """Return what each attack finds, beside what it finds where nothing can leak.

    Args:
        attacks: Those of one pool.
        roles: The parts that its graphs play.
        seed: Of what an attack draws, and of the intervals.
    """
    return tuple(one for attack in attacks for one in _outcome(attack, roles, seed))


def sample_attacks(
    train: Sequence[DAG], held_out: Sequence[DAG], generated: Sequence[DAG], seed: int = 0
) -> tuple[Attack, ...]:
    """Return the attacks by distances alone, "nearest_sample" and "density_ratio".

    Args:
        train: Training graphs, the members.
        held_out: Real graphs that the generator never saw; the second attack needs two.
        generated: Samples.
        seed: Of the halves and of the bootstrap.

    Raises:
        UsageError: If a set is empty.
    """
    require_graphs("Membership attacks", train=train, held_out=held_out, generated=generated)
    pool = Pool(train, held_out, generated)
    return attacked([NearestSample(pool), DensityRatio(pool)], pool.roles, seed)


def _outcome(attack: SampleAttack, roles: Roles, seed: int) -> tuple[Attack, ...]:
    """Return the outcome of one attack, nothing where there are too few graphs for it."""
    folds = attack.folds(roles, seed)
    if not folds:
        return ()
    found = attack_by_scores(attack.name, attack.description, folds, seed)
    found = replace(found, fractions=attack.fractions(roles))
    honest = roles.honest(seed)
    posing = [fold for each in honest for fold in attack.folds(each, seed)]
    if not posing:
        return (found,)
    what = f"{honest[0].sample_K.size} held-out graphs pose as samples"
    return (replace(found, holdout=attack_by_scores(attack.name, what, posing, seed)),)
