"""Compiled programs: StableHLO and HLO text as operations with costs, and as traces of each device.

Parsing needs jaxlib, the extra ``hlo``. docs/how-to/compiled-programs.md lists the rules of costs
and of communication.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
