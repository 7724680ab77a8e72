"""One step of a recommendation model (DLRM) on any number of ranks, from its shape.

Embedding tables lie whole on one rank each, the dense layers on all ranks.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
