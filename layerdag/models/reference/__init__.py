"""The reference model: layerwise discrete diffusion (LayerDAG)."""

from layerdag.models.reference.model import ReferenceLayerDAG

__all__ = [
    "ReferenceLayerDAG",
]
