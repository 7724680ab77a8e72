"""What the codes of a data set mean: categories, bins, conditions, requests."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
