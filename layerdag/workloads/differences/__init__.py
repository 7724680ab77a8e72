"""What differs between two traces, jobs or graphs, once their operators are aligned."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
