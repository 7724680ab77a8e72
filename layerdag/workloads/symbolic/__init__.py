"""One step of a transformer on any number of ranks, from its shape and a plan.

No device, no weights, no framework: sizes and operations follow from formulas, which
docs/how-to/workloads.md lists.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
