"""From a workload and a cluster to ticks: lowering, collectives, the compiled event loop."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
