"""A trace made larger: other degrees of parallelism, other numbers of layers, by rules.

The ranks of a job are folded into classes that run the same program, what the programs exchange is
read from their groups (`_mesh`, `_roles`), the programs are changed (`_shards` for fully sharded
data parallelism, `_tensor`, `_layers` for copies of repeated blocks), and traces of all ranks are
made again (`_unfold`). What a trace does not
determine is refused, with what was found and the flag that decides.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
