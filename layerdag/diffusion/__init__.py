"""layerdag.diffusion"""
