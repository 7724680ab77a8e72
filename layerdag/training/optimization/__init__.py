"""One optimizer step: AdamW, learning rate, precision, moving average of weights."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
