"""Fit a family to one target of a data set, or to several: each by itself, or one network to all.

Shape letters: B graphs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import UsageError
from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates._calibration import Calibration
from layerdag.surrogates._inputs import hide, targets, unlabeled
from layerdag.surrogates._seen import SeenCodes
from layerdag.surrogates.families import (
    FAMILIES,
    SharedFit,
    SurrogateModel,
    fit_shared_with,
    fit_with,
)

Settings = Mapping[str, int | float]


@dataclass(frozen=True, eq=False)
class KnownTargets:
    """Graphs with some of several targets.

    Attributes:
        dags: Graphs that have at least one of the targets.
        target_B: By name, float64, NaN where a graph has none.
    """

    dags: Sequence[DAG]
    target_B: Mapping[str, np.ndarray]

    @classmethod
    def of(
        cls, dags: Sequence[DAG], schema: GraphSchema, names: Sequence[str], exclude: Sequence[str]
    ) -> "KnownTargets":
        """Return the graphs that have a target, some of their attributes excluded.

        Raises:
            DataError: If no graph has one of the targets.
            UsageError: If a target is not finite, or an attribute is not in the schema.
        """
        columns = {name: targets(dags, name) for name in names}
        for name, target_B in columns.items():
            given = [isinstance(dag.conditions.get(name), int | float) for dag in dags]
            if not any(given):
                raise unlabeled(name)
            if strange := int((~np.isfinite(target_B[given])).sum()):
                raise UsageError(
                    f"{strange} graphs have a '{name}' that is not finite; label them, or leave "
                    "the label of these out."
                )
        kept = np.flatnonzero(np.any([np.isfinite(y_B) for y_B in columns.values()], axis=0))
        seen = hide([dags[i] for i in kept.tolist()], schema, exclude)
        return cls(seen, {name: target_B[kept] for name, target_B in columns.items()})

    def having(self, name: str) -> tuple[list[DAG], np.ndarray]:
        """Return the graphs that have one of the targets, and these targets."""
        row_b = np.flatnonzero(np.isfinite(self.target_B[name]))
        return [self.dags[i] for i in row_b.tolist()], self.target_B[name][row_b]

    def rows(self, row_b: np.ndarray) -> "KnownTargets":
        """Return some of the graphs."""
        columns = {name: target_B[row_b] for name, target_B in self.target_B.items()}
        return KnownTargets([self.dags[i] for i in row_b.tolist()], columns)


def separate_fits(family: str, settings: Settings | None) -> SharedFit:
    """Return what fits a model to each target by itself, on the graphs that have it."""
    fit = fit_with(family, settings) if settings else FAMILIES[family]

    def each(
        dags: Sequence[DAG], target_B: Mapping[str, np.ndarray], sizes: GraphSizes, seed: int
    ) -> tuple[SurrogateModel, ...]:
        known = KnownTargets(dags, target_B)
        return tuple(fit(*known.having(name), sizes, seed) for name in target_B)

    return each


def fits_of(family: str, settings: Settings | None, *, shared: bool) -> SharedFit:
    """Return what fits a family to several targets.

    Raises:
        UsageError: If the family has no network to share, or no such settings.
    """
    return fit_shared_with(family, settings or {}) if shared else separate_fits(family, settings)


def notes_of(data: GraphDataset, known: KnownTargets, target: str, seed: int) -> dict[str, Any]:
    """Return what a surrogate of one target was fitted on."""
    dags, _ = known.having(target)
    return {
        "data": data.name,
        "fingerprint": data.fingerprint,
        "seed": seed,
        "train": len(dags),
        "split": data.split.to_dict(),
        "seen": SeenCodes.of(dags).to_dict(),
    }


def calibration_of(
    model: SurrogateModel, data: GraphDataset, target: str, exclude: Sequence[str]
) -> Calibration | None:
    """Return the errors on the validation part of a data set."""
    val = data.graphs["val"]
    target_S = targets(val, target)
    known_s = np.flatnonzero(np.isfinite(target_S))
    if not known_s.size:
        return None
    seen = hide([val[i] for i in known_s.tolist()], data.schema, exclude)
    return Calibration.measure(target_S[known_s], model.predict(seen), model.spread(seen))
