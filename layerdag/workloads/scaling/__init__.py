"""A recorded job on other ranks or with other layers."""

from layerdag.workloads.scaling.rescaling import Scaled, scale

__all__ = [
    "Scaled",
    "scale",
]
