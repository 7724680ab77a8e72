"""Train on synthetic, test on real: training sets, scores, and what samples add."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
