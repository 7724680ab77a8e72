"""Latency of operators learned from measured traces: fitted on the spot, or from a folder."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
