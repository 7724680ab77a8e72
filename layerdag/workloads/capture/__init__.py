"""One step of a PyTorch model on any number of ranks, without a device, weights or a cluster.

The step runs as it would on rank 0, operator by operator, on fake tensors (shapes without content)
and in a fake process group. What is dispatched below autograd is recorded and becomes a trace in
the way of the importer of real host traces, so that a captured and a profiled step compare.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
