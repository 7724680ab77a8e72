"""Files, bounded reading, settings, random streams and the C library."""

from layerdag.runtime.settings import build_settings

__all__ = [
    "build_settings",
]
