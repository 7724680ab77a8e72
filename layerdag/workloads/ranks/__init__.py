"""From the programs of classes of ranks to the traces of all ranks, made when asked for."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
