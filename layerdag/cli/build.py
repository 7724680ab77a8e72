"""From settings to objects: the data set and the model that a config names."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig

from layerdag.cli.config import as_plain, nearest
from layerdag.datasets.base import GraphDataset
from layerdag.errors import ConfigError
from layerdag.graph.statistics import GraphStatistics
from layerdag.model.build import ModelSpec


def build_dataset(node: DictConfig) -> GraphDataset:
    """Load the data set that ``node.name`` names, with the rest of the node as arguments.

    Raises:
        ConfigError: If the name or an argument is unknown.
        DataError: If the files are missing or damaged.
    """
    arguments = as_plain(node)
    loader = _loader(str(arguments.pop("name")))
    _check_arguments(loader, arguments)
    return loader(**{k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()})


def build_spec(node: DictConfig, data: GraphDataset) -> ModelSpec:
    """Return the model that ``node`` describes, sized for ``data``."""
    arguments = as_plain(node)
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    return ModelSpec(str(arguments.pop("name")), sizes, statistics, arguments)


def _loader(name: str) -> Callable[..., GraphDataset]:
    """Return the loader of a data set; imported only when asked for."""
    if name == "corpus":
        from layerdag.datasets.corpus import load_corpus

        return load_corpus
    if name == "tpu_tile":
        from layerdag.datasets.tpu_tile import load_tpu_tile

        return load_tpu_tile
    known = ("corpus", "tpu_tile")
    raise ConfigError(f"There is no data set '{name}'.{nearest(name, known)}")


def _check_arguments(loader: Callable[..., GraphDataset], arguments: Mapping[str, Any]) -> None:
    """Refuse a setting that the loader does not take."""
    known = list(inspect.signature(loader).parameters)
    for name in arguments:
        if name not in known:
            raise ConfigError(f"Unknown setting 'data.{name}'.{nearest(name, known)}")
