"""Given layers of a graph, first and last ones, and how drawn ones are joined to them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
