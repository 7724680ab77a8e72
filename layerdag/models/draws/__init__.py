"""Sampling's shared parts: uniforms by seed, categories, subsets, guidance, DAGs from flat rows."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
