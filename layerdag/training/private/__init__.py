"""Tuning of few parameters of a public model under differential privacy of runs or owners."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
