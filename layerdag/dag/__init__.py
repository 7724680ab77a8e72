"""DAGs and batches of them as tensors, and their statistics."""

from layerdag.dag.graph_set import GraphSet

__all__ = [
    "GraphSet",
]
