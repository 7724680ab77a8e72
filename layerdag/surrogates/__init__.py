"""Performance models of graphs: boosted trees, message passing, scores, transfer."""

import lazy_loader

from layerdag._runtime import with_old_names

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(__getattr__, __name__, Share="ReachedFraction", SHARED="RELATIVE")
