"""Samples as ``layerdag sample`` writes them: a folder of each, or numbered parts of many."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
