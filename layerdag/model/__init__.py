"""layerdag.model"""
