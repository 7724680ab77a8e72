"""The compatibility mode of ``layerdag workload``: what STAGE writes for its own flags.

STAGE (https://github.com/astra-sim/stage, formerly symbolic_tensor_graph, MIT licence) describes a
model as tensors with symbolic shapes and finds collectives where a producer's sharding differs
from its consumer's. This room is written anew after its rules and restates its operator tables, so
that nodes, dependencies, operations, sizes, collectives and groups are equal, count by count.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
