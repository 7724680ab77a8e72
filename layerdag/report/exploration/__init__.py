"""The page of an exploration: best plans, heat maps of plans, the Pareto front, every outcome."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
