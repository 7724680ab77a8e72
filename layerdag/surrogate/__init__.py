"""layerdag.surrogate"""
