"""Drawing samples, and rejecting copies and whatever else may not be published."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
