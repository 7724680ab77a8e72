"""The kinds of graphs by their names in schemas and checkpoints."""

from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.kinds.flow import FLOW
from layerdag.kinds.graph_kind import GraphKind
from layerdag.kinds.job import JOB
from layerdag.kinds.program import PROGRAM

_KINDS = {kind.name: kind for kind in (PROGRAM, JOB, FLOW)}


def graph_kind(name: str | GraphKind) -> GraphKind:
    """Return the kind of graphs with a name; a kind is returned as it is.

    Raises UsageError if there is none.
    """
    if isinstance(name, GraphKind):
        return name
    if name not in _KINDS:
        raise UsageError(f"There is no kind of graphs '{name}'; known: {', '.join(_KINDS)}.")
    return _KINDS[name]


def kind_of_graph(graph: AttributedGraph) -> GraphKind:
    """Return the kind of a graph by its attributes."""
    return next(kind for kind in _KINDS.values() if kind.describes(graph))
