"""Families of surrogates by name: fitting, rebuilding from files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.errors import UsageError
from layerdag.runtime.settings import did_you_mean
from layerdag.surrogates.families.base import SurrogateModel, TargetScale
from layerdag.surrogates.families.trees import (
    BoostedTrees,
    BoostingSettings,
    StackedEnsemble,
    fit_boosting,
    fit_stacked,
)

if TYPE_CHECKING:
    from layerdag.surrogates.families.networks import NetworkSettings


_MAX_MEMBERS, _MAX_OUTPUTS = 100, 1000


def rebuild(family: str, config: dict[str, Any], arrays: dict[str, np.ndarray]) -> SurrogateModel:
    """Return the model of ``SurrogateModel.config()`` and ``SurrogateModel.arrays()``.

    Raises:
        KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError, OverflowError:
            If a part is missing, out of bounds or misshapen.
    """
    return _REBUILD[family](config, arrays)


def rebuild_output(model: SurrogateModel, config: dict[str, Any]) -> SurrogateModel:
    """Return the model of another target of a network, by its ``SurrogateModel.config()``.

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


def _rebuild_network(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> SurrogateModel:
    """Return a network with its weights; a missing or misshapen weight raises RuntimeError."""
    import torch

    from layerdag.surrogates.families.networks import (
        MessagePassingNetwork,
        NetworkSettings,
        NetworkSurrogate,
    )

    facts, outputs = config["settings"], _outputs(config)
    if not (0 < int(str(facts["width"])) <= 4096 and 0 < int(str(facts["rounds"])) <= 64):
        raise ValueError("width or rounds out of bounds")
    settings, sizes = NetworkSettings(**facts), _sizes(config)
    network = MessagePassingNetwork(sizes, settings.width, settings.rounds, max(1, len(outputs)))
    network.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
    network.eval()
    return NetworkSurrogate(sizes, _scale(config), settings, network, outputs, _output(config))


def _outputs(config: Mapping[str, Any]) -> tuple[str, ...]:
    outputs = tuple(map(str, config.get("outputs", ())))
    if len(outputs) > _MAX_OUTPUTS or len(set(outputs)) != len(outputs):
        raise ValueError("outputs out of bounds")
    return outputs


def _output(config: Mapping[str, Any]) -> int:
    output = int(config.get("output", 0))
    if not 0 <= output < max(1, len(_outputs(config))):
        raise ValueError(f"there is no output {output}")
    return output


def _rebuild_stacked(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> SurrogateModel:
    weight_M = np.asarray(config["weights"], dtype=float)
    facts = config["members"]
    if not 0 < len(facts) <= _MAX_MEMBERS or weight_M.shape != (len(facts),):
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


_REBUILD: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], SurrogateModel]] = {
    "boosting": _rebuild_boosting,
    "message_passing": _rebuild_network,
    "stacked": _rebuild_stacked,
}


Fit = Callable[[Sequence[DAG], np.ndarray, GraphSizes, int], SurrogateModel]
"""``fit(dags, target_B, sizes, seed)``."""
Settings = Mapping[str, Any]


def fit_with(family: str, settings: Settings) -> Fit:
    """Return the fitting function of a family with these settings in place of its defaults.

    Raises:
        UsageError: If the family has no such settings.
    """
    chosen = _settings_of(family, settings)
    if isinstance(chosen, BoostingSettings):
        return partial(_fit_boosting, settings=chosen)
    return partial(_fit_message_passing, settings=chosen)


def fit_shared_with(family: str, settings: Settings) -> Callable[..., tuple[SurrogateModel, ...]]:
    """Return ``fit_several``, which fits one network to several targets, with these settings.

    Raises:
        UsageError: If the family is no network or has no such settings.
    """
    if family != "message_passing":
        raise UsageError(
            f"'{family}' has no network that several targets could share; take 'message_passing', "
            "or leave out 'shared', for a model of its own for each target."
        )
    from layerdag.surrogates.families.networks import NetworkSettings, fit_several

    chosen = _settings_of(family, settings)
    assert isinstance(chosen, NetworkSettings)
    return partial(fit_several, settings=chosen)


def _settings_of(family: str, settings: Settings) -> "BoostingSettings | NetworkSettings":
    kind: type[Any]
    if family == "boosting":
        kind = BoostingSettings
    elif family == "message_passing":
        from layerdag.surrogates.families import networks

        kind = networks.NetworkSettings
    else:
        raise UsageError(f"'{family}' has no settings; leave out {', '.join(settings)}.")
    known = [one.name for one in fields(kind)]
    for name in settings:
        if name not in known:
            raise UsageError(
                f"'{family}' has no setting '{name}'.{did_you_mean(name, known)} "
                f"It has {', '.join(known)}."
            )
    chosen: BoostingSettings | NetworkSettings = kind(**settings)
    return chosen


def _fit_message_passing(
    dags: Sequence[DAG],
    target_B: np.ndarray,
    sizes: GraphSizes,
    seed: int,
    settings: "NetworkSettings | None" = None,
) -> SurrogateModel:
    # PyTorch Geometric takes seconds to import: only who needs it pays.
    from layerdag.surrogates.families.networks import fit_message_passing

    return fit_message_passing(dags, target_B, sizes, seed=seed, settings=settings)


def _fit_boosting(
    dags: Sequence[DAG],
    target_B: np.ndarray,
    sizes: GraphSizes,
    seed: int,
    settings: BoostingSettings | None = None,
) -> SurrogateModel:
    return fit_boosting(dags, target_B, sizes, seed=seed, settings=settings)


def _fit_stacked(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    members: dict[str, Fit] = {
        "boosting": _fit_boosting,
        "message_passing": _fit_message_passing,
    }
    return fit_stacked(dags, target_B, sizes, members, seed=seed)


FAMILIES: dict[str, Fit] = {
    "boosting": _fit_boosting,
    "message_passing": _fit_message_passing,
    "stacked": _fit_stacked,
}
"""Fitting function by family name: ``fit(dags, target_B, sizes, seed)``."""
