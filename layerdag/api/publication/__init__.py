"""From the traces of somebody's jobs to a package that may be published, or the reasons why not."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
