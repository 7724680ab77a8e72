"""Families of surrogates: what each is, how it is fitted, and how it is rebuilt from a file."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
