"""The families of surrogates, one contract."""

from layerdag.surrogates.families.dag_transformer import DAGTransformer, TransformerSettings
from layerdag.surrogates.families.networks import ranking_loss

__all__ = [
    "DAGTransformer",
    "TransformerSettings",
    "ranking_loss",
]
