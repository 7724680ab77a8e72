"""Runs workloads on a described cluster, equal to ASTRA-sim's analytical backend tick by tick."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
