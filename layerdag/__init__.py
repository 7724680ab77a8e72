"""layerdag: generate, evaluate and use synthetic execution traces and flow graphs.

The names below are the ones most programs need; they are imported when they are first used, so that
``import layerdag`` costs nothing and reading a trace never waits for torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
