"""Between the traces of a job and its graph: fold ranks into one graph, unfold it again."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
