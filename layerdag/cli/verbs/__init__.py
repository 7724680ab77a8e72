"""What users type after ``layerdag``; a room for each kind of verb, a file for each verb."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
