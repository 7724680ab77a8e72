"""Data sets as flat arrays in files, for more graphs than fit into memory."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
