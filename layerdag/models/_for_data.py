"""The description of a model that fits a data set."""

from collections.abc import Mapping
from typing import Any

from layerdag.datasets import GraphDataset
from layerdag.graph import shared_statistics
from layerdag.models._spec import ModelSpec


def spec_for(data: GraphDataset, name: str, arguments: Mapping[str, Any]) -> ModelSpec:
    """Return model ``name`` with the sizes and statistics of a data set.

    ``plans=None`` leaves it to the kind of the graphs whether nodes announce their children, which
    they do in flow graphs, not in jobs of traces; for "fast" this is the default.
    """
    chosen = {"plans": None, **arguments} if name == "fast" else dict(arguments)
    if "plans" in chosen and chosen["plans"] is None:
        chosen["plans"] = usual_plans(data)
    sizes = data.schema.sizes()
    return ModelSpec(name, sizes, shared_statistics(data.graphs["train"], sizes), chosen)


def usual_plans(data: GraphDataset) -> bool:
    """Return whether nodes announce their children where nothing else is asked for."""
    return data.schema.kind == "flow"
