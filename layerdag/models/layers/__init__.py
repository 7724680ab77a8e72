"""Layers and operations on rows that both models, the posterior and the surrogate share."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
