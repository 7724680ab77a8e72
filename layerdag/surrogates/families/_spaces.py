"""Which function fits a family, and its settings: which are worth trying, how a fit takes them."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerdag._runtime import derive_seed, did_you_mean
from layerdag.errors import UsageError
from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates.families._additive import AdditiveSettings, fit_additive
from layerdag.surrogates.families._base import SurrogateModel
from layerdag.surrogates.families._boosting import BoostingSettings, fit_boosting

if TYPE_CHECKING:
    from layerdag.surrogates.families.networks import NetworkSettings, NetworkSurrogate

Fit = Callable[[Sequence[DAG], np.ndarray, GraphSizes, int], SurrogateModel]
"""``fit(dags, target_B, sizes, seed)``."""
SharedFit = Callable[
    [Sequence[DAG], Mapping[str, np.ndarray], GraphSizes, int], tuple[SurrogateModel, ...]
]
"""``fit(dags, targets, sizes, seed)``; a target is NaN where a graph has none."""
Settings = Mapping[str, int | float]


def space_of(family: str) -> dict[str, Any]:
    """Return the values that a search draws from, a list or a distribution for each setting.

    Raises:
        UsageError: If the family has no settings of its own.
    """
    from scipy.stats import loguniform, randint, uniform

    network = {
        "rounds": [2, 3, 4, 5],
        "batch_size": [8, 16, 32],
        "learning_rate": loguniform(1e-3, 1e-2),
        "weight_decay": loguniform(1e-4, 1e-1),
        "ranking_weight": [0.0, 0.1, 0.3],
    }
    spaces = {
        "boosting": {
            "trees": randint(100, 801),
            "depth": randint(2, 8),
            "learning_rate": loguniform(0.01, 0.2),
            "subsample": uniform(0.5, 0.5),
            "feature_fraction": loguniform(0.05, 1.0),
        },
        "additive": {
            "steps": [12, 16, 20],
            "last_penalty": loguniform(1e-5, 1e-1),
            "trees": randint(50, 401),
        },
        "message_passing": network | {"width": [32, 48, 64, 96]},
        "dag_transformer": network
        | {"rounds": [1, 2, 3], "width": [32, 48, 64], "heads": [2, 4], "dropout": [0.0, 0.1, 0.2]},
    }
    if family not in spaces:
        raise UsageError(
            f"'{family}' has no settings that could be chosen.{did_you_mean(family, spaces)} "
            f"Tune one of {', '.join(spaces)}."
        )
    return spaces[family]


def draw_settings(family: str, count: int, seed: int) -> list[dict[str, int | float]]:
    """Return ``count`` settings at random, a mapping each; the same seed draws the same.

    Raises:
        UsageError: If the family has no settings of its own.
    """
    from sklearn.model_selection import ParameterSampler

    if count == 0:
        return []
    state = derive_seed(seed, "settings", family) % 2**32
    drawn = ParameterSampler(space_of(family), count, random_state=state)
    return [
        {name: getattr(value, "item", lambda value=value: value)() for name, value in one.items()}
        for one in drawn
    ]


def fit_with(family: str, settings: Settings) -> Fit:
    """Return the fitting function of a family with these settings in place of its defaults.

    Raises:
        UsageError: If the family has no such settings, or a value is out of range.
    """
    options = _known(family, settings)

    def fit(
        dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
    ) -> SurrogateModel:
        if family == "boosting":
            trees = BoostingSettings(**options)
            return fit_boosting(dags, target_B, sizes, seed=seed, settings=trees)
        if family == "additive":
            costs = AdditiveSettings(**options)
            return fit_additive(dags, target_B, sizes, seed=seed, settings=costs)
        from layerdag.surrogates.families.networks import fit_one

        kind, settings_of = _network(family)
        return fit_one(kind, dags, target_B, sizes, settings_of(**options), seed)

    return fit


def fit_shared_with(family: str, settings: Settings) -> SharedFit:
    """Return what fits one network to several targets, with settings in place of the defaults.

    Raises:
        UsageError: If the family is no network or has no such settings, or a value is out of range.
    """
    if family not in SHARED:
        raise UsageError(
            f"'{family}' has no network that several targets could share; take one of "
            f"{', '.join(SHARED)}, or leave out 'shared', for a model of its own for each target."
        )
    options = _known(family, settings)

    def fit(
        dags: Sequence[DAG], targets: Mapping[str, np.ndarray], sizes: GraphSizes, seed: int
    ) -> tuple[SurrogateModel, ...]:
        from layerdag.surrogates.families.networks import fit_several

        kind, settings_of = _network(family)
        return fit_several(kind, dags, targets, sizes, settings_of(**options), seed)

    return fit


def _known(family: str, settings: Settings) -> dict[str, Any]:
    """Return settings that the family has. Raises UsageError if it lacks one."""
    known = space_of(family)
    for name in settings:
        if name not in known:
            raise UsageError(
                f"'{family}' has no setting '{name}'.{did_you_mean(name, known)} "
                f"It has {', '.join(known)}."
            )
    return dict(settings)


def _network(family: str) -> "tuple[type[NetworkSurrogate], type[NetworkSettings]]":
    """Return what a family of networks is made of."""
    # PyTorch Geometric takes seconds to import: only who needs it pays.
    from layerdag.surrogates.families import networks

    if family == "message_passing":
        return networks.MessagePassingSurrogate, networks.NetworkSettings
    return networks.TransformerSurrogate, networks.TransformerSettings


def _fit_boosting(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    return fit_boosting(dags, target_B, sizes, seed=seed)


def _fit_message_passing(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    # PyTorch Geometric takes seconds to import: only who needs it pays.
    from layerdag.surrogates.families.networks import fit_message_passing

    return fit_message_passing(dags, target_B, sizes, seed=seed)


def _fit_dag_transformer(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    from layerdag.surrogates.families.networks import fit_dag_transformer

    return fit_dag_transformer(dags, target_B, sizes, seed=seed)


def _fit_stacked(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    from layerdag.surrogates.families._stacked import fit_stacked

    return fit_stacked(dags, target_B, sizes, SINGLE, seed=seed)


def _fit_additive(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    return fit_additive(dags, target_B, sizes, seed=seed)


SINGLE = {
    "boosting": _fit_boosting,
    "message_passing": _fit_message_passing,
    "dag_transformer": _fit_dag_transformer,
}
"""The members of the stacked ensemble."""

SHARED = ("message_passing", "dag_transformer")
"""Families of networks, which several targets can share."""

FAMILIES = SINGLE | {"additive": _fit_additive, "stacked": _fit_stacked}
"""Fitting function by family name: ``fit(dags, target_B, sizes, seed)``."""
