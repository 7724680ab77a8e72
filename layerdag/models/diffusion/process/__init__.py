"""Discrete diffusion, domain-free: noise schedule, forward and reverse process of categories."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
