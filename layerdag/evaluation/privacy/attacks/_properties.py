"""Property inference: do samples tell the training set from other sets of the same kind of jobs?

How often a family, a strategy or a size occurs among the training jobs is a property of the set as
a whole (Ateniese et al., IJSN 10(3), 2015; Suri and Evans, PETS 2022). Samples show about how often
it occurs among jobs of this kind, which is what they are for. The question is whether they follow
the training set where it happens to differ from other sets drawn as it was.
"""

from collections.abc import Sequence

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.evaluation.metrics import NORMAL_95
from layerdag.evaluation.privacy.attacks._inference import Inference
from layerdag.evaluation.privacy.attacks._pool import Pool, Roles
from layerdag.evaluation.privacy.attacks._traits import Trait

RELABELINGS = 1000
CLASSES = 8
"""Classes of a trait with many values, of equal numbers of real graphs."""
MARGIN = 0.5
"""Of the advantage: how far samples follow the training set, 1 is all the way."""
CLIP = 4.0
"""Standard deviations beyond which a main component counts no more: samples may lie far off."""


def inferred_properties(
    pool: Pool, traits: Sequence[Trait], roles: Roles, seed: int
) -> Inference | None:
    """Return how far the means of properties over samples follow those over the training set.

    Properties are whether a trait has a value, and the main components of sizes and counts; f are
    their means over training graphs, over samples, and over all real graphs. The advantage is the
    slope of f_samples - f_real over f_train - f_real, each property weighted by the inverse of its
    variance: 0 where samples follow the real graphs as a whole, 1 where they follow the training
    set all the way. If training and held-out graphs are alike, its mean over all ways to choose as
    many training graphs is 0 whatever the samples are, so that the spread over such choices says
    what is chance.

    Args:
        pool: The graphs.
        traits: What can be told of them.
        roles: The parts that they play.
        seed: Of the choices.

    Returns:
        The outcome; None if nothing differs between real graphs, or there are too few.
    """
    if not roles.sample_K.size or roles.other_H.size < 2 or roles.member_T.size < 2:
        return None
    values = [_values(trait.code_P, roles.real_G) for trait in traits]
    x_PV = np.concatenate([*values, _clipped(pool.components, roles.real_G)], axis=1)
    real_V, variance_V = x_PV[roles.real_G].mean(axis=0), x_PV[roles.real_G].var(axis=0)
    made_V = x_PV[roles.sample_K].mean(axis=0) - real_V
    differs_V = variance_V > 1e-9
    weight_V = np.where(differs_V, 1 / np.where(differs_V, variance_V, 1), 0)
    train_RV = _chosen(x_PV, roles, seed) - real_V
    length = float((weight_V * train_RV[0] ** 2).sum())
    if length <= 0:
        return None
    along_R = train_RV @ (weight_V * made_V) / length
    return Inference.of(
        "properties",
        "frequencies of families, sizes and other traits (1 - mean error)",
        _accuracies(np.concatenate(values, axis=1), values, roles),
        (float(along_R[0]), NORMAL_95 * float(along_R[1:].std())),
        margin=MARGIN,
        samples=roles.sample_K.size,
        held_out=roles.other_H.size,
    )


def _chosen(x_PV: np.ndarray, roles: Roles, seed: int) -> np.ndarray:
    """Return the means over the training graphs, then over as many real ones drawn at random."""
    rng = numpy_generator(seed, "properties")
    size = roles.member_T.size
    drawn = (rng.permutation(roles.real_G)[:size] for _ in range(RELABELINGS))
    return np.stack([x_PV[rows].mean(axis=0) for rows in (roles.member_T, *drawn)])


def _values(code_P: np.ndarray, real_G: np.ndarray) -> np.ndarray:
    """Return which graph has which value of a trait, float64 (P, V); classes of many values."""
    distinct = np.unique(code_P[real_G])
    if distinct.size > CLASSES:
        cuts = np.unique(np.quantile(code_P[real_G], np.linspace(0, 1, CLASSES + 1)[1:-1]))
        code_P = np.searchsorted(cuts, code_P)
        distinct = np.unique(code_P[real_G])
    return (code_P[:, None] == distinct).astype(float)


def _clipped(x_PC: np.ndarray, real_G: np.ndarray) -> np.ndarray:
    """Return columns in standard deviations of real graphs from their mean, cut at ``CLIP``."""
    mean_C, spread_C = x_PC[real_G].mean(axis=0), x_PC[real_G].std(axis=0)
    return np.clip((x_PC - mean_C) / np.where(spread_C > 1e-9, spread_C, 1), -CLIP, CLIP)


def _accuracies(
    x_PV: np.ndarray, values: Sequence[np.ndarray], roles: Roles
) -> tuple[float, float, float]:
    """Return 1 - mean error of frequencies: of training graphs, of held-out ones, and blind.

    Who is blind knows which values there are, no more.
    """
    train_V, held_V, made_V = (
        x_PV[rows].mean(axis=0) for rows in (roles.member_T, roles.other_H, roles.sample_K)
    )
    blind_V = np.concatenate([np.full(part.shape[1], 1 / part.shape[1]) for part in values])
    pairs = ((made_V, train_V), (made_V, held_V), (blind_V, train_V))
    of_train, of_held, blind = (1 - float(np.abs(one - other).mean()) for one, other in pairs)
    return of_train, of_held, blind
