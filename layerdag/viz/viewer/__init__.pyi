from ._modules import ModuleGraph as ModuleGraph, module_graph as module_graph
from ._page import html_page as html_page
from ._rolled import (
    RolledBlock as RolledBlock,
    RolledGraph as RolledGraph,
    rolled_graph as rolled_graph,
)
from ._timing import recorded_timing as recorded_timing, simulated_timing as simulated_timing
