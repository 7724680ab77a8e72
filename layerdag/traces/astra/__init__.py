"""Text workloads of ASTRA-sim 1.0."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
