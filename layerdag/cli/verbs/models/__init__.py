"""Verbs that train generators, sample them and use the samples; one file per verb."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
