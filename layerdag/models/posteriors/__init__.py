"""Networks that tell conditions from graphs: of whole graphs, and sizes from the first nodes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
