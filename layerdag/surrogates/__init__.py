"""Performance models of graphs: boosted trees, message passing, scores, transfer."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
