"""Text workloads of ASTRA-sim 1.0, and the file of communicator groups that ASTRA-sim reads."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
