"""Studies: which plan, on which cluster? Models x plans x clusters, each step simulated.

Memory decides what can run, the simulator how long a step takes; nothing is measured on a device.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
