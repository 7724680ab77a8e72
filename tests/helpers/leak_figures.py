"""Figures of samples beside training and held-out graphs, from the graphs themselves."""

from collections.abc import Iterable, Sequence

from layerdag.dag.dag import DAG
from layerdag.privacy.attacks import attack_outcomes
from layerdag.privacy.copies import (
    CopyCounts,
    CopyTest,
    DistanceToClosestRecord,
    copy_counts,
    kernel_distances,
    nearness_by_distance,
)
from layerdag.privacy.membership import AttackResult
from layerdag.privacy.membership_attacks import AttackPool, DensityRatio, NearestSample


def count_copies(
    train: Sequence[DAG], held_out: Sequence[DAG], generated: Iterable[DAG]
) -> CopyCounts:
    test = CopyTest(train, held_out)
    return copy_counts(test, test.resemblances(generated))


def closer_to_training(
    train: Sequence[DAG], held_out: Sequence[DAG], generated: Sequence[DAG], seed: int = 0
) -> DistanceToClosestRecord:
    distance_KG = kernel_distances(generated, [*train, *held_out])
    return nearness_by_distance(distance_KG[:, : len(train)], distance_KG[:, len(train) :], seed)


def sample_attacks(
    train: Sequence[DAG], held_out: Sequence[DAG], generated: Sequence[DAG], seed: int = 0
) -> tuple[AttackResult, ...]:
    """Return the attacks by distances alone."""
    pool = AttackPool(train, held_out, generated)
    return attack_outcomes([NearestSample(pool), DensityRatio(pool)], pool.roles, seed)
