"""Running attacks, each beside itself on held-out graphs that pose as samples."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from layerdag.evaluation.privacy import (
    Attack,
    ModelScores,
    Scores,
    attack_by_scores,
    pooled_attack,
    require_graphs,
)
from layerdag.evaluation.privacy.attacks._alignment import Reconstruction
from layerdag.evaluation.privacy.attacks._classifier import CalibratedClassifier
from layerdag.evaluation.privacy.attacks._distance import (
    DensityRatio,
    NearestProgram,
    NearestSample,
    halves_of,
)
from layerdag.evaluation.privacy.attacks._motifs import UniqueMotifs
from layerdag.evaluation.privacy.attacks._pool import Pool, Roles
from layerdag.graph import DAG

LEAST_REFERENCE = 4
"""Held-out graphs of a fold that an attack needs to compare with.

What it makes of fewer varies more than the interval allows for (docs/dev/experiments.md,
"Cross-fitting").
"""


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


@dataclass(frozen=True, eq=False)
class Fold:
    """A generator of several, which was trained on all real graphs but those of its fold.

    Attributes:
        pool: Its training graphs, those of its fold, and its samples.
        number_G: Number of each real graph of the pool among those of all folds.
    """

    pool: Pool
    number_G: np.ndarray


def cross_fitted_attacks(folds: Sequence[Fold], run_G: np.ndarray, seed: int) -> tuple[Attack, ...]:
    """Return what each attack finds over all folds, in each of which other graphs are held out.

    Every graph is a member for most generators and a held-out one for one of them, so that an
    attack has as many of both as there are graphs. Pairs are compared within a fold.

    Args:
        folds: One for each generator.
        run_G: The run of each graph of all folds, numbers from 0; what is resampled.
        seed: Of what an attack draws, and of the intervals.
    """
    found: dict[str, tuple[SampleAttack, list[ModelScores], list[ModelScores]]] = {}
    for fold in folds:
        for attack in all_attacks(fold.pool):
            _, scored, posing = found.setdefault(attack.name, (attack, [], []))
            scored += _scored(attack, fold, fold.pool.roles, run_G.size, seed)
            for roles in fold.pool.roles.honest(seed):
                posing += _scored(attack, fold, roles, run_G.size, seed)
    return tuple(_pooled(*parts, run_G, seed) for parts in found.values() if parts[1])


def _scored(
    attack: SampleAttack, fold: Fold, roles: Roles, graphs: int, seed: int
) -> Iterator[ModelScores]:
    """Yield the scores of an attack on one generator, by the number of each graph."""
    found = attack.folds(roles, seed)
    others = [roles.other_H]
    if len(found) > 1:  # half of the held-out graphs are what the attacker knows
        others = [rest for _, rest in halves_of(roles, seed)]
        if min(rest.size for rest in others) < LEAST_REFERENCE:
            return
    for (member_T, other_H), rows in zip(found, others, strict=False):
        score_G, member_G = np.full(graphs, np.nan), np.zeros(graphs, dtype=bool)
        member_G[fold.number_G[roles.member_T]] = True
        score_G[fold.number_G[roles.member_T]] = member_T
        score_G[fold.number_G[rows]] = other_H
        yield ModelScores(score_G, member_G, shares_reference=len(found) > 1)


def _pooled(
    attack: SampleAttack,
    scored: Sequence[ModelScores],
    posing: Sequence[ModelScores],
    run_G: np.ndarray,
    seed: int,
) -> Attack:
    """Return the outcome over all folds, beside that where held-out graphs pose as samples."""
    found = pooled_attack(attack.name, attack.description, scored, run_G, seed)
    assert found is not None  # a fold has members and held-out graphs
    what = "half of the graphs of each fold pose as samples"
    return replace(found, holdout=pooled_attack(attack.name, what, posing, run_G, seed))


def _outcome(attack: SampleAttack, roles: Roles, seed: int) -> tuple[Attack, ...]:
    """Return the outcome of one attack, nothing where there are too few graphs for it."""
    return outcome_of(attack, attack.folds(roles, seed), roles, seed, attack.fractions)


def outcome_of(
    attack: SampleAttack,
    folds: Sequence[Scores],
    roles: Roles,
    seed: int,
    fractions: Callable[[Roles], tuple[float, float] | None],
) -> tuple[Attack, ...]:
    """Return what scores say, beside the same attack where nothing can leak; nothing of no scores.

    Args:
        attack: Of held-out graphs that pose as samples.
        folds: The scores by the samples.
        roles: The parts of the graphs; of samples the number alone is looked at.
        seed: Of what an attack draws, and of the intervals.
        fractions: Returns what the score is about.
    """
    if not folds:
        return ()
    found = attack_by_scores(attack.name, attack.description, folds, seed)
    found = replace(found, fractions=fractions(roles))
    honest = roles.honest(seed)
    posing = [fold for each in honest for fold in attack.folds(each, seed)]
    if not posing:
        return (found,)
    what = f"{honest[0].sample_K.size} held-out graphs pose as samples"
    return (replace(found, holdout=attack_by_scores(attack.name, what, posing, seed)),)
