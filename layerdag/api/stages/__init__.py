"""What the demo and a release have in common: stages of evaluating samples beside real graphs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
