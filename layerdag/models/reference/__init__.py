"""The reference model: layerwise discrete diffusion (LayerDAG)."""
