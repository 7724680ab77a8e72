"""Surrogates as folders: what is written, what is believed of it when read, and the card."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
