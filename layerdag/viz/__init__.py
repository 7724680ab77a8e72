"""Pictures, zoomable pages and timelines of graphs and traces."""

from layerdag.viz.drawing import save_picture
from layerdag.viz.views import view_of_trace

__all__ = [
    "save_picture",
    "view_of_trace",
]
