"""Shadow models: trained as an attacked one was, on other halves of the graphs; their losses."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
