"""``spec_for``: the description of a model for a data set, with what is left open filled in."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from layerdag.dag.neighbors import edge_type_sets
from layerdag.datasets.cache import kept_statistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.graph.attributed_graph import SIZE_CONDITIONS
from layerdag.models.spec import ModelSpec, model_config


def spec_for(data: GraphDataset, name: str, settings: Mapping[str, Any] | object) -> ModelSpec:
    """Return model ``name`` with the sizes and statistics of a data set.

    ``predict_out_degree=None`` leaves it to the kind of the graphs whether the number of children
    is drawn with every node: it is in flow graphs, not in jobs of traces. For "fast" this is the
    default. So are ``neighbors=None`` and ``attributes=None`` of ``constraints``: "observed" in
    jobs, "unlimited" in flow graphs; ``edge_types=None`` is "observed" in programs alone.
    ``remaining_sizes=None`` of ``conditioning`` is "encoded" in
    jobs whose numbers of nodes and layers are conditions.

    Settings are nested plain data, or the tree that the model's constructor takes.

    Raises:
        ConfigError: If the model or a setting is unknown, or a value is out of bounds.
    """
    config, defaults = model_config(name, settings), data.schema.kind.models
    if getattr(config, "predict_out_degree", False) is None:
        config = replace(config, predict_out_degree=defaults.draws_out_degrees)
    if hasattr(config, "constraints"):
        left_open = {
            name: defaults.constraints
            for name in ("neighbors", "attributes")
            if getattr(config.constraints, name) is None
        }
        if config.constraints.edge_types is None:
            left_open["edge_types"] = defaults.edge_types
        config = replace(config, constraints=replace(config.constraints, **left_open))
    conditioning = getattr(config, "conditioning", None)
    if conditioning is not None and getattr(conditioning, "remaining_sizes", "none") is None:
        names = {condition.name for condition in data.schema.numeric_conditions}
        sized = defaults.encodes_sizes and names.issuperset(SIZE_CONDITIONS)
        choice = "encoded" if sized else "none"
        config = replace(config, conditioning=replace(conditioning, remaining_sizes=choice))
    sizes, graphs = data.schema.sizes(), data.graphs["train"]
    statistics = kept_statistics(graphs, sizes)
    if hasattr(config, "constraints") and config.constraints.edge_types == "observed":
        statistics = replace(statistics, edge_type_sets=edge_type_sets(graphs, sizes))
    return ModelSpec(name, sizes, statistics, asdict(config))
