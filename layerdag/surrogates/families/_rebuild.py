"""Surrogates from the parts of a file, which is not trusted: every size and index is checked."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from layerdag.graph import GraphSizes
from layerdag.surrogates.families._base import SurrogateModel, TargetScale
from layerdag.surrogates.families._boosting import BoostedTrees


def rebuild(family: str, config: dict[str, Any], arrays: dict[str, np.ndarray]) -> SurrogateModel:
    """Return the model of ``SurrogateModel.config()`` and ``SurrogateModel.arrays()``.

    Raises:
        KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError, OverflowError:
            If a part is missing, out of bounds or misshapen.
    """
    return _REBUILD[family](config, arrays)


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


def _rebuild_boosting(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> SurrogateModel:
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


def _rebuild_message_passing(
    config: dict[str, Any], arrays: dict[str, np.ndarray]
) -> SurrogateModel:
    """Return the network with its weights; a missing or misshapen weight raises RuntimeError."""
    import torch

    from layerdag.surrogates.families._message_passing import (
        MessagePassingSurrogate,
        NetworkSettings,
    )
    from layerdag.surrogates.families._network import MessagePassingNetwork

    settings = NetworkSettings(**config["settings"])
    if not (0 < int(settings.width) <= 4096 and 0 < int(settings.rounds) <= 64):
        raise ValueError("width or rounds out of bounds")
    sizes = _sizes(config)
    network = MessagePassingNetwork(sizes, int(settings.width), int(settings.rounds))
    network.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
    network.eval()
    return MessagePassingSurrogate(sizes, _scale(config), settings, network)


_REBUILD: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], SurrogateModel]] = {
    "boosting": _rebuild_boosting,
    "message_passing": _rebuild_message_passing,
}
