"""What predictors learn from: real and synthetic graphs in the conditions of a test."""

import re
from collections.abc import Sequence

from layerdag.errors import UsageError
from layerdag.runtime.rng import numpy_generator
from layerdag.surrogates.targets import Labeled

REAL, SYNTHETIC, SUBSAMPLE, REDRAWN, SHUFFLED, AUGMENTED = CONDITIONS = (
    "real",
    "synthetic",
    "real subsample",
    "real, drawn again",
    "real, shuffled targets",
    "real + synthetic",
)
RELABELED = "synthetic, labels of surrogates"
"""Needs two families: each learns from the labels that the others, fitted to real graphs, give."""

SUBSAMPLE_FRACTION = 0.25
TOGETHER = " + synthetic"
_FEW = re.compile(r"\d+ real( \+ synthetic)?")
MIN_REAL = 4
"""Real graphs that a surrogate can be fitted to."""


def few_real(counts: Sequence[int], available: int) -> tuple[str, ...]:
    """Return the conditions of so many real graphs, alone and together with synthetic ones.

    Raises:
        UsageError: If a number is too small, or there are not so many.
    """
    for count in counts:
        if not MIN_REAL <= count <= available:
            raise UsageError(
                f"Surrogates cannot be fitted to {count} of {available} real training graphs; take "
                f"from {MIN_REAL} to {available}."
            )
    alone = [f"{count} real" for count in dict.fromkeys(counts)]
    return tuple(name + more for name in alone for more in ("", TOGETHER))


def require_condition(name: str) -> None:
    """Raise UsageError unless a condition is known."""
    known = (*CONDITIONS, RELABELED)
    if name not in known and not _FEW.fullmatch(name):
        raise UsageError(
            f"There is no condition '{name}'; known are {', '.join(known)}, and those of "
            "few_real(counts, available)."
        )


def training_set(condition: str, real: Labeled, synthetic: Labeled, seed: int) -> Labeled:
    """Return the training graphs of one condition.

    "20 real" and "20 real + synthetic" have the same twenty graphs with the same seed, and those
    are among the "50 real" of that seed.
    """
    if condition == SYNTHETIC:
        return synthetic
    if condition.endswith(TOGETHER):
        alone = training_set(condition.removesuffix(TOGETHER), real, synthetic, seed)
        return alone.joined(synthetic)
    if condition == REAL:
        return real
    count = len(real.dags)
    if condition[0].isdigit():
        few = int(condition.partition(" ")[0])
        return real.taken(numpy_generator(seed, "few real graphs").permutation(count)[:few])
    rng = numpy_generator(seed, "training set", condition)
    if condition == SHUFFLED:
        return Labeled(real.dags, rng.permutation(real.target_B))
    if condition == REDRAWN:
        return real.taken(rng.integers(count, size=count))
    return real.taken(rng.permutation(count)[: max(int(SUBSAMPLE_FRACTION * count), 2)])
