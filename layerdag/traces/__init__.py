"""layerdag.traces"""
