"""Numbers of sampled nodes that programs can have: FLOPs, bytes and sizes that go together."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
