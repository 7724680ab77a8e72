"""The description of a model that fits a data set."""

from collections.abc import Mapping
from typing import Any

from layerdag._runtime import with_new_names
from layerdag.datasets import GraphDataset
from layerdag.graph import shared_statistics
from layerdag.models._spec import RENAMED_ARGUMENTS, ModelSpec


def spec_for(data: GraphDataset, name: str, arguments: Mapping[str, Any]) -> ModelSpec:
    """Return model ``name`` with the sizes and statistics of a data set.

    ``predict_out_degree=None`` leaves it to the kind of the graphs whether the number of children
    is drawn with every node: it is in flow graphs, not in jobs of traces. For "fast" this is the
    default.
    """
    chosen = with_new_names(arguments, RENAMED_ARGUMENTS, "model.")
    if name == "fast":
        chosen = {"predict_out_degree": None, **chosen}
    if "predict_out_degree" in chosen and chosen["predict_out_degree"] is None:
        chosen["predict_out_degree"] = predicts_out_degree(data)
    sizes = data.schema.sizes()
    return ModelSpec(name, sizes, shared_statistics(data.graphs["train"], sizes), chosen)


def predicts_out_degree(data: GraphDataset) -> bool:
    """Return whether numbers of children are drawn where nothing else is asked for."""
    return data.schema.kind == "flow"
