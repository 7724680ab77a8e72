"""Surrogates from the parts of a file, which is not trusted: every size and index is checked."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from layerdag.graph import GraphSizes
from layerdag.surrogates.families._additive import AdditiveCosts
from layerdag.surrogates.families._base import SurrogateModel, TargetScale
from layerdag.surrogates.families._boosting import BoostedTrees

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
    """Return boosted trees after checking that every child and column exists."""
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
    """Return costs of nodes after checking the terms, with their trees."""
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
    """Return the message-passing network."""
    from layerdag.surrogates.families.networks import MessagePassingSurrogate, NetworkSettings

    return _rebuild_network(MessagePassingSurrogate, NetworkSettings, config, arrays)


def _rebuild_dag_transformer(
    config: dict[str, Any], arrays: dict[str, np.ndarray]
) -> SurrogateModel:
    """Return the transformer."""
    from layerdag.surrogates.families.networks import TransformerSettings, TransformerSurrogate

    return _rebuild_network(TransformerSurrogate, TransformerSettings, config, arrays)


def _outputs(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the targets that share a network, with their number bounded."""
    outputs = tuple(map(str, config.get("outputs", ())))
    if len(outputs) > _MOST_OUTPUTS or len(set(outputs)) != len(outputs):
        raise ValueError("outputs out of bounds")
    return outputs


def _output(config: Mapping[str, Any]) -> int:
    """Return which output of a network is meant."""
    output = int(config.get("output", 0))
    if not 0 <= output < max(1, len(_outputs(config))):
        raise ValueError(f"there is no output {output}")
    return output


def _rebuild_stacked(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> SurrogateModel:
    """Return the ensemble after checking its members and weights."""
    from layerdag.surrogates.families._stacked import StackedEnsemble

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
