"""The fast model: a causal encoder, one node of every graph per step."""

from layerdag.models.fast.encoder import Encoder, NewestTokens, TokenGraphs

__all__ = ["Encoder", "NewestTokens", "TokenGraphs"]
