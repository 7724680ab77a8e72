"""How numbers of nodes follow from conditions: powers of width, length, degrees, by operator.

A model of relative numbers learns what a law does not explain; the law carries it to widths and
batches that no training graph has.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
