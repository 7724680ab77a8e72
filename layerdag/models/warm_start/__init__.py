"""Weights of a trained model carried over to a data set with other words, bins and conditions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
