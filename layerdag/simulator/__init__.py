"""layerdag.simulator"""
