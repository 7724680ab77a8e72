"""Is local structure that of programs? Type hashes, paths, blocks, inputs, numbers of nodes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
