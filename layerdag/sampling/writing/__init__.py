"""Samples on disk: a folder or file for each with a manifest, or numbered parts of many."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
