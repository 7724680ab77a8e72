"""``model=fast``: every decision of every graph of a batch in one causal pass."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
