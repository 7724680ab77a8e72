"""Charts as inline SVG: colors come from the page's style, so that they follow its theme."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
