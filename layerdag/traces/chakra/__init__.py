"""Chakra execution traces (``.et``): every schema version is read, 1.0.0 is written."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
