"""What is modelled: transformers by their sizes, by name or from a ``config.json``."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
