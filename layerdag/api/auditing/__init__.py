"""Parts of an audit: graphs of three folders, words of private ones, and its text."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
