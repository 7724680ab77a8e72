"""From settings to objects: the data set and the model that a config names."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig

from layerdag.cli.settings._compose import as_plain, nearest
from layerdag.datasets import GraphDataset
from layerdag.errors import ConfigError
from layerdag.graph import shared_statistics
from layerdag.models import ModelSpec

LOADERS = {
    "corpus": ("layerdag.datasets.sources", "load_corpus"),
    "tpu_tile": ("layerdag.datasets.sources", "load_tpu_tile"),
    "dgrl": ("layerdag.datasets.sources", "load_dgrl"),
    "latent_preferential": ("layerdag.datasets.sources", "load_latent_preferential"),
    "folder": ("layerdag.datasets.sources", "load_folder"),
}


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

    ``plans: null`` leaves it to the kind of the graphs whether nodes announce their children:
    they do in flow graphs, not in jobs of traces (docs/explanation/fast-model.md).
    """
    arguments = as_plain(node)
    if "plans" in arguments and arguments["plans"] is None:
        arguments["plans"] = usual_plans(data)
    sizes = data.schema.sizes()
    statistics = shared_statistics(data.graphs["train"], sizes)
    return ModelSpec(str(arguments.pop("name")), sizes, statistics, arguments)


def usual_plans(data: GraphDataset) -> bool:
    """Return whether nodes announce their children where nothing else is asked for."""
    return data.schema.kind == "flow"


def loader_of(name: str) -> Callable[..., GraphDataset]:
    """Return the loader of a data set; imported only when asked for.

    Raises:
        ConfigError: If there is no data set of that name.
    """
    if name not in LOADERS:
        raise ConfigError(f"There is no data set '{name}'.{nearest(name, list(LOADERS))}")
    module, function = LOADERS[name]
    loader: Callable[..., GraphDataset] = getattr(importlib.import_module(module), function)
    return loader


def _check_arguments(loader: Callable[..., GraphDataset], arguments: Mapping[str, Any]) -> None:
    """Refuse a setting that the loader does not take."""
    known = list(inspect.signature(loader).parameters)
    for name in arguments:
        if name not in known:
            raise ConfigError(f"Unknown setting 'data.{name}'.{nearest(name, known)}")
