"""Model identification: which job made this sample, and what was its model like?

A sample ought to be like jobs of its family, not betray a single one. Of the training job nearest
to each sample the attacker guesses family, parallelism, depth and width as he reads them from the
sample. The same is done with the nearest held-out job, which no sample can betray.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm

from layerdag._runtime import numpy_generator
from layerdag.evaluation.privacy import MARGIN
from layerdag.evaluation.privacy.attacks._inference import Inference
from layerdag.evaluation.privacy.attacks._pool import Pool, Roles
from layerdag.evaluation.privacy.attacks._traits import Trait

RELABELINGS = 200


def identified_traits(
    pool: Pool, traits: Sequence[Trait], roles: Roles, seed: int
) -> tuple[Inference, ...]:
    """Return how often each trait of the nearest job is that which its sample shows.

    The larger one of the training and the held-out part is cut at random to the size of the other.
    Chance is a training job drawn at random among those that state what was asked for.

    Args:
        pool: The graphs.
        traits: What can be told of them.
        roles: The parts that they play.
        seed: Of the cut and of the intervals.
    """
    size = min(roles.member_T.size, roles.other_H.size)
    if not size or not roles.sample_K.size:
        return ()
    rng = numpy_generator(seed, "identification")
    cut = [np.sort(rng.permutation(part)[:size]) for part in (roles.member_T, roles.other_H)]
    real_S = np.concatenate(cut)
    is_train_RS = np.stack(
        [np.arange(2 * size) < size]
        + [rng.permutation(2 * size) < size for _ in range(RELABELINGS)]
    )
    to_samples_KS = _distances(pool, real_S, roles)
    nearest = [_nearest(to_samples_KS, is_train_S) for is_train_S in is_train_RS]
    asked_KT = _as_asked(traits, roles)
    return tuple(
        _identified(trait, roles, real_S, nearest, asked_KT, len(traits)) for trait in traits
    )


def _distances(pool: Pool, real_S: np.ndarray, roles: Roles) -> np.ndarray:
    """Return the distances of samples to real graphs, without measured columns."""
    return pool.program_distances(real_S, roles.sample_K).T


def _nearest(to_samples_KS: np.ndarray, is_train_S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the nearest training and the nearest other graph of each sample."""
    train, other = np.flatnonzero(is_train_S), np.flatnonzero(~is_train_S)
    return train[to_samples_KS[:, train].argmin(axis=1)], other[
        to_samples_KS[:, other].argmin(axis=1)
    ]


def _as_asked(traits: Sequence[Trait], roles: Roles) -> np.ndarray:
    """Return which training graphs state everything that was asked of each sample, (K, T)."""
    fits_KT = np.ones((roles.sample_K.size, roles.member_T.size), dtype=bool)
    for trait in traits:
        asked_K1 = trait.stated_P[roles.sample_K][:, None]
        fits_KT &= (asked_K1 < 0) | (asked_K1 == trait.stated_P[roles.member_T])
    nothing_K = ~fits_KT.any(axis=1)
    fits_KT[nothing_K] = True
    return fits_KT


def _identified(
    trait: Trait,
    roles: Roles,
    real_S: np.ndarray,
    nearest: Sequence[tuple[np.ndarray, np.ndarray]],
    asked_KT: np.ndarray,
    together: int,
) -> Inference:
    """Return the outcome for one trait."""
    read_K = trait.code_P[roles.sample_K]
    code_S = trait.code_P[real_S]
    right = [
        ((code_S[train_K] == read_K).mean(), (code_S[other_K] == read_K).mean())
        for train_K, other_K in nearest
    ]
    gain_R = np.array([train - other for train, other in right])
    same_KT = read_K[:, None] == trait.code_P[roles.member_T]
    by_chance = float(((same_KT & asked_KT).sum(axis=1) / asked_KT.sum(axis=1)).mean())
    spread = float(np.sqrt(np.mean(gain_R[1:] ** 2)))
    half = float(norm.ppf(1 - 0.025 / together)) * spread  # one false alarm in 40 over all traits
    # What never happened among so many may still happen in 3 of as many (the rule of three).
    half = max(half, 3 / min(read_K.size, real_S.size // 2))
    return Inference.of(
        f"model:{trait.name}",
        f"{trait.name} of the nearest job is that of the sample",
        (float(right[0][0]), float(right[0][1]), by_chance),
        (float(gain_R[0]), half),
        margin=MARGIN,
        samples=read_K.size,
        held_out=roles.other_H.size,
    )
