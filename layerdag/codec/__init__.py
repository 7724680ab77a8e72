"""Jobs as attributed graphs and back; the registry of file formats."""

from layerdag.codec.formats import read_any

__all__ = [
    "read_any",
]
