"""Pictures, zoomable pages and timelines of graphs and traces."""

from layerdag.viz.drawing import (
    CLASS_COLORS,
    Picture,
    class_legend,
    classes_by_size,
    draw_svg,
    save_picture,
    write_picture,
)
from layerdag.viz.html import (
    Markup,
    element,
    interval,
    joined,
    number,
    percent,
    percents,
    scrolling,
    section,
    table,
    text,
)
from layerdag.viz.viewer import html_page, recorded_timing, simulated_timing
from layerdag.viz.views import (
    GraphView,
    chrome_trace,
    drawn_rows,
    graph_rows,
    view_of_graph,
    view_of_trace,
)

__all__ = [
    "CLASS_COLORS",
    "GraphView",
    "Markup",
    "Picture",
    "chrome_trace",
    "class_legend",
    "classes_by_size",
    "draw_svg",
    "drawn_rows",
    "element",
    "graph_rows",
    "html_page",
    "interval",
    "joined",
    "number",
    "percent",
    "percents",
    "recorded_timing",
    "save_picture",
    "scrolling",
    "section",
    "simulated_timing",
    "table",
    "text",
    "view_of_graph",
    "view_of_trace",
    "write_picture",
]
