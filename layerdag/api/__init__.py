"""The functions of ``import layerdag as ld`` that take several rooms together."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
