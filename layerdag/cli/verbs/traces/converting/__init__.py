"""What ``layerdag convert`` reads and writes, by kind of file."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
