"""Verbs that read, write, draw and check traces and graphs; one file per verb."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
