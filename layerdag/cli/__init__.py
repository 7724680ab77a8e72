"""layerdag.cli"""
