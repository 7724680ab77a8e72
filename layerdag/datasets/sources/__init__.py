"""Where graphs come from: the embedded corpus, folders, public data sets, random graphs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
