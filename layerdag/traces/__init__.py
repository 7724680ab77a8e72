"""Execution traces: in memory as columns, on disk in every format that users have.

One `Trace` is one rank, one `Workload` is one job. Nothing in here imports torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
