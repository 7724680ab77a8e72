"""The one place that draws graphs: layout, SVG, bitmaps, pages, GraphML and DOT."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
