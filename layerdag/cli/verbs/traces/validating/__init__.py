"""What ``layerdag validate`` does beside checking traces and graphs: repair, samples in parts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
