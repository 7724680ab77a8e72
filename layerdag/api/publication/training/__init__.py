"""Models of a release: the teacher that is sampled from, the student that may go out, its audit."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
