"""From settings to objects: the data set and the model that a config names."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig

from layerdag.cli.settings._compose import as_plain, nearest
from layerdag.datasets import GraphDataset, loader_of
from layerdag.errors import ConfigError
from layerdag.models import ModelSpec, spec_for


def build_dataset(node: DictConfig) -> GraphDataset:
    """Load the data set that ``node.name`` names, with the rest of the node as arguments.

    Raises:
        ConfigError: If the name or an argument is unknown.
        DataError: If the files are missing or damaged.
    """
    arguments = as_plain(node)
    loader = loader_of(str(arguments.pop("name")))
    _check_arguments(loader, arguments)
    return loader(**{k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()})


def build_spec(node: DictConfig, data: GraphDataset) -> ModelSpec:
    """Return the model that ``node`` describes, sized for ``data``.

    ``predict_out_degree: null`` leaves it to the kind of the graphs whether the number of children
    is drawn with every node: it is in flow graphs, not in jobs of traces
    (docs/explanation/fast-model.md).
    """
    arguments = as_plain(node)
    return spec_for(data, str(arguments.pop("name")), arguments)


def _check_arguments(loader: Callable[..., GraphDataset], arguments: Mapping[str, Any]) -> None:
    """Refuse a setting that the loader does not take."""
    known = list(inspect.signature(loader).parameters)
    for name in arguments:
        if name not in known:
            raise ConfigError(f"Unknown setting 'data.{name}'.{nearest(name, known)}")
