"""Metrics of generated graphs beside real ones, each an object that computes itself."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
