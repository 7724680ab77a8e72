"""The command ``layerdag``."""
