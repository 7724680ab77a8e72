"""One optimizer step: AdamW, learning rate, precision, moving average of weights."""

import lazy_loader

from layerdag._runtime import with_old_names

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_old_names(
    __getattr__,
    __name__,
    WeightAverage="ExponentialMovingAverage",
    rate_factor="learning_rate_factor",
)
