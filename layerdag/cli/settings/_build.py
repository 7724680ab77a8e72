"""From settings to objects: the data set and the model that a config names."""

from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from layerdag._runtime import flattened, grouped
from layerdag.cli.settings._compose import as_plain
from layerdag.cli.settings._places import config_dir
from layerdag.datasets import GraphDataset, data_config, load_config
from layerdag.models import ModelSpec, spec_for


def build_dataset(node: DictConfig) -> GraphDataset:
    """Load the data set that ``node.name`` names, with the rest of the node as its settings.

    Raises:
        ConfigError: If the name or a setting is unknown.
        DataError: If the files are missing or damaged.
    """
    return load_config(data_config(as_plain(node)))


def build_spec(node: DictConfig, data: GraphDataset) -> ModelSpec:
    """Return the model that ``node`` describes, sized for ``data``.

    ``predict_out_degree: null`` leaves it to the kind of the graphs whether the number of children
    is drawn with every node: it is in flow graphs, not in jobs of traces
    (docs/explanation/fast-model.md).
    """
    arguments = as_plain(node)
    return spec_for(data, str(arguments.pop("name")), arguments)


def given_model(node: DictConfig) -> tuple[str | None, dict[str, Any]]:
    """Return the model and those of its settings that the user asked for.

    They are what stands in the words of the command, and what a file changed from the defaults.

    Args:
        node: The settings of the model.

    Returns:
        Name and settings; None if no model was named.
    """
    overrides = list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []
    keys = {str(o.key_or_group) for o in OverridesParser.create().parse_overrides(overrides)}
    settings = as_plain(node)
    name = str(settings.pop("name"))
    file = config_dir() / "model" / f"{name}.yaml"
    usual = flattened(as_plain(DictConfig(OmegaConf.load(file)))) if file.is_file() else {}
    given = {
        key: value
        for key, value in flattened(settings).items()
        if f"model.{key}" in keys or value != usual.get(key)
    }
    return (name if {"model", "model.name"} & keys else None), grouped(given)
