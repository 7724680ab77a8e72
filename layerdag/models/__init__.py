"""Generative models of DAGs: the contract, two implementations, the posterior of conditions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
