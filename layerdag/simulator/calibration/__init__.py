"""Fits a machine to measured runs, so that the simulator predicts runs that were not measured."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
