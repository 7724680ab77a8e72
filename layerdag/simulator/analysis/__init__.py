"""What a finished run shows: breakdown, critical path, memory, sensitivity, exports."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
