from ._graph import graph_lines as graph_lines, graph_summary as graph_summary
from ._parts import run_lines as run_lines, run_summary as run_summary
