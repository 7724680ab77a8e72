"""Rules on graphs, traces and workloads, as tables with evidence and remedy."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
