"""Carrying the weights of a trained model over to a new one.

Shape letters: K rows of the new model, J rows of the old one, F all other entries of a row.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerdag._runtime import flattened, grouped
from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import ConfigError
from layerdag.models import DAGModel, ModelSpec, build_model, spec_for
from layerdag.models.autoregressive import FastConfig
from layerdag.models.warm_start._axes import Axis
from layerdag.models.warm_start._describe import axes_of, counterpart
from layerdag.models.warm_start._report import report
from layerdag.models.warm_start._sources import Source

# Settings of a model that may differ from the old one's: no weight means another thing by them.
TUNABLE = frozenset(
    {
        *("encoder.dropout", "encoder.token_dropout", "conditioning.dropout", "posterior.dropout"),
        *("constraints.out_degree", "constraints.neighbors", "budget", "sampling_precision"),
        "conditioning.remaining_sizes",
    }
)
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model and what its codes mean.

    Attributes:
        model: With its weights.
        spec: The same as plain data.
        schema: Of the data it was trained on.
    """

    model: DAGModel
    spec: ModelSpec
    schema: GraphSchema


@dataclass(frozen=True, eq=False)
class Carried:
    """Initial weights of a new model.

    Attributes:
        weights: Its whole state dict.
        report: What was taken from where, a phrase for each group of words, bins or conditions.
    """

    weights: Mapping[str, Tensor]
    report: tuple[str, ...]


def spec_from(
    old: Trained, data: GraphDataset, name: str | None = None, given: Mapping[str, Any] = _NOTHING
) -> ModelSpec:
    """Return the old model with the sizes and statistics of another data set.

    Args:
        old: The trained model.
        data: The new data set.
        name: The model that the user asks for; None leaves it to the old one.
        given: The model's settings that the user asks for, in groups.

    Raises:
        ConfigError: If what is asked for contradicts the old model.
    """
    if name not in (None, old.spec.name):
        raise ConfigError(
            f"A model '{name}' cannot start from the weights of a model '{old.spec.name}'; leave "
            f"model={name} out, or start from a checkpoint of such a model."
        )
    kept = flattened(_settings(old.spec))
    wanted = flattened(_plain(given))
    for key, value in wanted.items():
        if key in kept and key not in TUNABLE and value not in (None, kept[key]):
            raise ConfigError(
                f"model.{key}={value} contradicts the weights to start from, which are of a model "
                f"with {key}={kept[key]}; leave it out, or train without init."
            )
    chosen = {key: value for key, value in wanted.items() if value is not None}
    return spec_for(data, old.spec.name, grouped({**kept, **chosen}))


def carry_over(old: Trained, spec: ModelSpec, schema: GraphSchema, seed: int = 0) -> Carried:
    """Return the weights that a new model starts from.

    A weight that is the same for all data is copied. Of a weight with a row for each code, a row
    is copied from the row of the same word, a new word's is the mean over the known words of its
    kind, and a bin's is the mean over the old bins that hold its values
    (docs/how-to/few-graphs.md). What has no counterpart keeps its fresh initialization.

    Args:
        old: The trained model.
        spec: The new model, as ``spec_from`` returned it.
        schema: Of the new data set.
        seed: Of the fresh initialization.
    """
    new = build_model(spec, seed)
    axes, old_axes = axes_of(new, spec), axes_of(old.model, old.spec)
    old_weights = old.model.state_dict()
    weights = {}
    for name, fresh in new.state_dict().items():
        source = counterpart(name, schema, old.schema)
        if source not in old_weights:
            weights[name] = fresh
        elif name in axes and source in old_axes:
            rows = axes[name].source(old_axes[source], schema, old.schema)
            weights[name] = _mixed(fresh, old_weights[source], rows, (axes[name], old_axes[source]))
        else:
            weights[name] = old_weights[source].detach().cpu().clone()
    return Carried(weights, report(schema, old.schema))


def _mixed(fresh: Tensor, old: Tensor, rows: Source, axes: tuple[Axis, Axis]) -> Tensor:
    """Return a weight with its rows mixed from old ones; rows without a source stay fresh."""
    new_KF, old_JF = (
        _rows(weight.detach().cpu().double(), axis)
        for weight, axis in zip((fresh, old), axes, strict=True)
    )
    mixed_KF = torch.from_numpy(rows.matrix_KJ) @ old_JF
    if fresh.ndim == 1:
        mixed_KF = mixed_KF + torch.from_numpy(rows.offset_K)[:, None]
    known_K1 = torch.from_numpy(rows.matrix_KJ.any(axis=1))[:, None]
    mixed_KF = torch.where(known_K1, mixed_KF, new_KF)
    return _weight(mixed_KF, fresh, axes[0])


def _rows(weight: Tensor, axis: Axis) -> Tensor:
    """Return a weight as a matrix with a row for each row of the axis's segments."""
    rows = weight.movedim(axis.dim, 0).reshape(weight.shape[axis.dim], -1)
    return rows[list(axis.positions)] if axis.positions else rows


def _weight(rows_KF: Tensor, like: Tensor, axis: Axis) -> Tensor:
    """Return what ``_rows`` took apart, in the shape and precision of ``like``."""
    if axis.positions:
        rows_KF = rows_KF[np.argsort(axis.positions)]
    shape = like.movedim(axis.dim, 0).shape
    return rows_KF.reshape(shape).movedim(0, axis.dim).to(like.dtype).contiguous()


def _settings(spec: ModelSpec) -> dict[str, Any]:
    """Return every setting of a model in groups, those that were left open as they were settled."""
    config = spec.config
    if isinstance(config, FastConfig):
        plans = config.predict_out_degree is not False
        config = replace(config, predict_out_degree=plans)
    return _plain(asdict(config))


def _plain(settings: Any) -> Any:
    """Return settings as JSON holds them: groups as mappings, lists for tuples."""
    if is_dataclass(settings) and not isinstance(settings, type):
        settings = asdict(settings)
    if isinstance(settings, Mapping):
        return {name: _plain(value) for name, value in settings.items()}
    return list(settings) if isinstance(settings, tuple) else settings
