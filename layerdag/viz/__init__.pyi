from ._bitmap import write_picture as write_picture
from ._chrome_trace import chrome_trace as chrome_trace
from ._drawing import Picture as Picture
from ._figure import save_picture as save_picture
from ._flow_view import view_of_graph as view_of_graph
from ._graph_files import dot as dot, graphml as graphml
from ._layout import LayeredLayout as LayeredLayout, layered_layout as layered_layout
from ._markup import (
    Markup as Markup,
    element as element,
    interval as interval,
    joined as joined,
    number as number,
    percent as percent,
    percents as percents,
    scrolling as scrolling,
    section as section,
    table as table,
    text as text,
)
from ._svg import (
    CLASS_COLORS as CLASS_COLORS,
    class_legend as class_legend,
    classes_by_size as classes_by_size,
    draw as draw,
)
from ._view import (
    GraphView as GraphView,
    Timing as Timing,
    plain_details as plain_details,
    view_of_trace as view_of_trace,
)
from .viewer import html_page as html_page
