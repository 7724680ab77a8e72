"""``model=reference``: LayerDAG as published (arXiv 2411.02322), its known faults mended."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
