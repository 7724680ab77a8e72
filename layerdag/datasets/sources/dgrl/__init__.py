"""The families of the DGRL benchmark: computational graphs, AMP, HLS, SR and TIME."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
