"""The fast model: a causal encoder, one node of every graph per step."""

from layerdag.models.fast.decisions import Heads, graphs_of_rows
from layerdag.models.fast.encoder import Encoder, NewestTokens, TokenGraphs
from layerdag.models.fast.model import FastLayerDAG

__all__ = [
    "Encoder",
    "FastLayerDAG",
    "Heads",
    "NewestTokens",
    "TokenGraphs",
    "graphs_of_rows",
]
