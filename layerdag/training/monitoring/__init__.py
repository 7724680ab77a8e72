"""Input and output of a run: loggers, meters, budget, signals."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
