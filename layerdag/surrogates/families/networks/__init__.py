"""Surrogates that are graph neural networks: modules, training, one or several targets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
