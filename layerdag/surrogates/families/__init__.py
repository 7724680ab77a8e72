"""The families of surrogates, one contract."""

from layerdag.surrogates.families.base import SurrogateModel
from layerdag.surrogates.families.dag_transformer import DAGTransformer, TransformerSettings
from layerdag.surrogates.families.networks import ranking_loss
from layerdag.surrogates.families.registry import (
    FAMILIES,
    SharedFit,
    draw_settings,
    fit_shared_with,
    fit_with,
    rebuild,
    rebuild_output,
)

__all__ = [
    "FAMILIES",
    "DAGTransformer",
    "SharedFit",
    "SurrogateModel",
    "TransformerSettings",
    "draw_settings",
    "fit_shared_with",
    "fit_with",
    "ranking_loss",
    "rebuild",
    "rebuild_output",
]
