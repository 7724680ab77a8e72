"""layerdag.training"""
