"""Reading whatever lies in a folder of traces, in any format, with whatever labels there are."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
