"""Fit a network to one target, or one network to several.

Shape letters: B graphs, T targets.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates.families import TargetScale
from layerdag.surrogates.families.networks._base import NetworkSettings, NetworkSurrogate
from layerdag.surrogates.families.networks._training import train_network

Kind = TypeVar("Kind", bound=NetworkSurrogate)


def fit_one(
    kind: type[Kind],
    dags: Sequence[DAG],
    target_B: np.ndarray,
    sizes: GraphSizes,
    settings: NetworkSettings,
    seed: int,
) -> Kind:
    """Fit a network to one target.

    Raises:
        UsageError: If there are fewer than two graphs, or a target is not finite.
        DataError: If a code lies outside ``sizes``.
    """
    target_B = np.asarray(target_B, dtype=float)
    scale = TargetScale.fit(target_B)
    standard_B1 = scale.standardize(target_B)[:, None]
    network = train_network(
        lambda: kind.build(sizes, settings), dags, standard_B1, sizes, settings, seed
    )
    return kind(sizes, scale, settings, network)


def fit_several(
    kind: type[Kind],
    dags: Sequence[DAG],
    targets: Mapping[str, np.ndarray],
    sizes: GraphSizes,
    settings: NetworkSettings,
    seed: int,
) -> tuple[Kind, ...]:
    """Fit one network to several targets, and return a surrogate for each of its outputs.

    Multitask learning with a shared encoder (Caruana, Machine Learning 28, 1997): the loss is the
    sum over the targets, each standardized by itself.

    Args:
        kind: Of network.
        dags: The graphs.
        targets: By name, float64 (B,) each, NaN where a graph has none.
        sizes: Codes that the graphs may have.
        settings: Of the training.
        seed: Of weights and order.

    Raises:
        UsageError: If fewer than two graphs have one of the targets.
        DataError: If a code lies outside ``sizes``.
    """
    names = tuple(targets)
    scales = [TargetScale.fit(y_B[np.isfinite(y_B)]) for y_B in targets.values()]
    columns = [scale.standardize(y_B) for scale, y_B in zip(scales, targets.values(), strict=True)]
    network = train_network(
        lambda: kind.build(sizes, settings, len(names)),
        dags,
        np.stack(columns, axis=1),
        sizes,
        settings,
        seed,
    )
    outputs = names if len(names) > 1 else ()  # of one target it is the network of that target
    return tuple(
        kind(sizes, scale, settings, network, outputs, output)
        for output, scale in enumerate(scales)
    )
