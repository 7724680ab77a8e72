"""layerdag: generate, judge and use synthetic execution traces and flow graphs."""

__version__ = "0.1.0"
