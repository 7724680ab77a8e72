from ._page import html_page as html_page
from ._rolled import (
    RolledBlock as RolledBlock,
    RolledGraph as RolledGraph,
    rolled_graph as rolled_graph,
)
from ._timing import recorded_timing as recorded_timing, simulated_timing as simulated_timing
