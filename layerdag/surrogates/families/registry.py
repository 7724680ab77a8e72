"""Families of surrogates by name: fitting, search spaces, rebuilding from files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.errors import UsageError
from layerdag.runtime.rng import derive_seed
from layerdag.runtime.settings import did_you_mean
from layerdag.surrogates.families.additive import AdditiveCosts, AdditiveSettings, fit_additive
from layerdag.surrogates.families.base import SurrogateModel, TargetScale
from layerdag.surrogates.families.trees import BoostedTrees, BoostingSettings, fit_boosting

if TYPE_CHECKING:
    from layerdag.surrogates.families.networks import NetworkSettings, NetworkSurrogate


_MOST_MEMBERS, _MOST_OUTPUTS = 100, 1000


def rebuild(family: str, config: dict[str, Any], arrays: dict[str, np.ndarray]) -> SurrogateModel:
    """Return the model of ``SurrogateModel.config()`` and ``SurrogateModel.arrays()``.

    Raises:
        KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError, OverflowError:
            If a part is missing, out of bounds or misshapen.
    """
    return _REBUILD[family](config, arrays)


def rebuild_output(model: SurrogateModel, config: dict[str, Any]) -> SurrogateModel:
    """Return the model of another target of a network, by its ``SurrogateModel.config()``.

    Args:
        model: Of one target of the network.
        config: Of the other one.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, OverflowError: If a part is missing or out
            of bounds, or the network is another one.
    """
    from layerdag.surrogates.families.networks import NetworkSurrogate

    if not isinstance(model, NetworkSurrogate) or model.outputs != _outputs(config):
        raise ValueError("the targets are not those of the network")
    return replace(model, scale=_scale(config), output=_output(config))


def _sizes(config: Mapping[str, Any]) -> GraphSizes:
    """Return the sizes, with counts bounded so that a file cannot ask for all memory."""
    attributes = tuple(int(k) for k in config["sizes"]["attributes"])
    edge_types = int(config["sizes"]["edge_types"])
    if not attributes or not all(0 < k <= 1_000_000 for k in (*attributes, edge_types)):
        raise ValueError("sizes out of bounds")
    return GraphSizes(attributes=attributes, edge_types=edge_types)


def _scale(config: Mapping[str, Any]) -> TargetScale:
    scale = config["scale"]
    numbers = (float(scale[name]) for name in ("mean", "std", "low", "high"))
    return TargetScale(bool(scale["log"]), *numbers)


def _rebuild_boosting(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> BoostedTrees:
    trees, nodes = arrays["left"].shape
    columns = {name: arrays[name] for name in ("feature", "threshold", "left", "right", "value")}
    if any(column.shape != (trees, nodes) for column in columns.values()):
        raise ValueError("arrays differ in shape")
    for name in ("left", "right"):
        if not ((columns[name] >= 0) & (columns[name] < nodes)).all():
            raise ValueError(f"'{name}' names a node that does not exist")
    depth = int(config["depth"])
    if not 0 <= depth <= nodes or not (columns["feature"] >= 0).all():
        raise ValueError("depth or feature out of bounds")
    return BoostedTrees(
        sizes=_sizes(config),
        scale=_scale(config),
        start=float(config["start"]),
        depth=depth,
        feature_TM=columns["feature"],
        threshold_TM=columns["threshold"],
        left_TM=columns["left"],
        right_TM=columns["right"],
        value_TM=columns["value"],
    )


def _rebuild_additive(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> AdditiveCosts:
    key_P, weight_P = arrays["key"], np.asarray(arrays["weight"], dtype=float)
    if key_P.ndim != 1 or not key_P.size or key_P.shape != weight_P.shape:
        raise ValueError("terms and weights differ in shape")
    if key_P.dtype != np.int64 or not (np.diff(key_P) > 0).all():
        raise ValueError("terms are not in ascending order")
    if not np.isfinite(weight_P).all():
        raise ValueError("a weight is no number")
    trees = {
        name.removeprefix("trees."): array
        for name, array in arrays.items()
        if name.startswith("trees.")
    }
    return AdditiveCosts(
        sizes=_sizes(config),
        scale=_scale(config),
        shift=float(config["shift"]),
        key_P=key_P,
        weight_P=weight_P,
        trees=_rebuild_boosting(config["trees"], trees),
    )


def _rebuild_network(
    kind: "type[NetworkSurrogate]",
    settings_of: "type[NetworkSettings]",
    config: dict[str, Any],
    arrays: dict[str, np.ndarray],
) -> SurrogateModel:
    """Return a network with its weights; a missing or misshapen weight raises RuntimeError."""
    import torch

    facts, outputs = config["settings"], _outputs(config)
    _bound(facts["width"], facts["rounds"])
    settings, sizes = settings_of(**facts), _sizes(config)
    network = kind.build(sizes, settings, max(1, len(outputs)))
    network.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
    network.eval()
    return kind(sizes, _scale(config), settings, network, outputs, _output(config))


def _rebuild_message_passing(
    config: dict[str, Any], arrays: dict[str, np.ndarray]
) -> SurrogateModel:
    from layerdag.surrogates.families.networks import MessagePassingSurrogate, NetworkSettings

    return _rebuild_network(MessagePassingSurrogate, NetworkSettings, config, arrays)


def _rebuild_dag_transformer(
    config: dict[str, Any], arrays: dict[str, np.ndarray]
) -> SurrogateModel:
    from layerdag.surrogates.families.dag_transformer import (
        TransformerSettings,
        TransformerSurrogate,
    )

    return _rebuild_network(TransformerSurrogate, TransformerSettings, config, arrays)


def _outputs(config: Mapping[str, Any]) -> tuple[str, ...]:
    outputs = tuple(map(str, config.get("outputs", ())))
    if len(outputs) > _MOST_OUTPUTS or len(set(outputs)) != len(outputs):
        raise ValueError("outputs out of bounds")
    return outputs


def _output(config: Mapping[str, Any]) -> int:
    output = int(config.get("output", 0))
    if not 0 <= output < max(1, len(_outputs(config))):
        raise ValueError(f"there is no output {output}")
    return output


def _rebuild_stacked(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> SurrogateModel:
    from layerdag.surrogates.families.trees import StackedEnsemble

    weight_M = np.asarray(config["weights"], dtype=float)
    facts = config["members"]
    if not 0 < len(facts) <= _MOST_MEMBERS or weight_M.shape != (len(facts),):
        raise ValueError("number of members or weights out of bounds")
    if not np.isfinite(weight_M).all():
        raise ValueError("a weight is no number")
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        prefix, _, rest = name.partition(".")
        parts.setdefault(prefix, {})[rest] = array
    members = []
    for index, one in enumerate(facts):
        if one["family"] == "stacked":
            raise ValueError("a member is an ensemble itself")
        members.append(rebuild(one["family"], one["config"], parts[str(index)]))
    difficulty = _rebuild_boosting(config["difficulty"], parts["difficulty"])
    return StackedEnsemble(_scale(config), tuple(members), weight_M, difficulty)


def _bound(width: object, rounds: object) -> None:
    """Raise ValueError where a file asks for a network that no fit would make."""
    if not (0 < int(str(width)) <= 4096 and 0 < int(str(rounds)) <= 64):
        raise ValueError("width or rounds out of bounds")


_REBUILD: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], SurrogateModel]] = {
    "additive": _rebuild_additive,
    "boosting": _rebuild_boosting,
    "message_passing": _rebuild_message_passing,
    "dag_transformer": _rebuild_dag_transformer,
    "stacked": _rebuild_stacked,
}


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
    known = space_of(family)
    for name in settings:
        if name not in known:
            raise UsageError(
                f"'{family}' has no setting '{name}'.{did_you_mean(name, known)} "
                f"It has {', '.join(known)}."
            )
    return dict(settings)


def _network(family: str) -> "tuple[type[NetworkSurrogate], type[NetworkSettings]]":
    # PyTorch Geometric takes seconds to import: only who needs it pays.
    from layerdag.surrogates.families.dag_transformer import (
        TransformerSettings,
        TransformerSurrogate,
    )
    from layerdag.surrogates.families.networks import MessagePassingSurrogate, NetworkSettings

    if family == "message_passing":
        return MessagePassingSurrogate, NetworkSettings
    return TransformerSurrogate, TransformerSettings


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
    from layerdag.surrogates.families.dag_transformer import fit_dag_transformer

    return fit_dag_transformer(dags, target_B, sizes, seed=seed)


def _fit_stacked(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    from layerdag.surrogates.families.trees import fit_stacked

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
