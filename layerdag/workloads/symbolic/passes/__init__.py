"""Forward and backward passes of a pipeline stage, written down node after node."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
