"""layerdag.datasets"""
