"""What every room stands on: files, the compiled library, progress bars, random streams."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
