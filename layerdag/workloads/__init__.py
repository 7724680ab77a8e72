"""Workloads that nobody has to own: execution traces made from a model's description or program.

One room per front; each ends in a `layerdag.traces.Workload` or in Chakra files. Importing it
does not load torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
