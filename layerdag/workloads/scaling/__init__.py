"""A recorded job on other ranks or with other layers."""

from layerdag.workloads.scaling.rescaling import scale

__all__ = [
    "scale",
]
