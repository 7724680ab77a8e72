"""The fast model: a causal encoder, one node of every graph per step."""

from layerdag.models.fast.config import FastConfig
from layerdag.models.fast.decisions import Heads, graphs_of_rows
from layerdag.models.fast.model import FastLayerDAG

__all__ = [
    "FastConfig",
    "FastLayerDAG",
    "Heads",
    "graphs_of_rows",
]
