"""How a model is split over ranks, what a step does, and in which order."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
