"""layerdag.validator"""
