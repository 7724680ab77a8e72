"""DOT, the language of Graphviz, as flow graphs.

Only the graph is read: nodes, edges, their attributes and the defaults for these, in subgraphs as
well. What is for drawing alone (shape, color, position) is left out.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from layerdag._runtime import read_parsed, write_text
from layerdag.codec import AttributedGraph
from layerdag.datasets.files._columns import columns_of, is_number
from layerdag.datasets.files._dot_parser import Parser
from layerdag.errors import GraphError
from layerdag.graph import Condition

_FOR_DRAWING = {
    *("shape", "style", "color", "fillcolor", "fontcolor", "fontname", "fontsize", "penwidth"),
    *("pos", "width", "height", "margin", "tooltip", "URL", "href", "target", "group"),
    *("peripheries", "sides", "skew", "orientation", "image", "labelloc", "labeljust", "fixedsize"),
    *("arrowhead", "arrowtail", "arrowsize", "dir", "constraint", "weight", "len", "minlen", "lp"),
    *("bb", "xlabel", "rank", "class", "comment", "layer", "z", "nojustify", "regular", "rects"),
    *("vertices", "samplepoints", "pencolor", "rankdir", "splines", "nodesep", "ranksep", "ratio"),
    *("size", "compound", "bgcolor"),
}


def read_dot(path: str | Path) -> AttributedGraph:
    """Read a directed graph; the file is not trusted.

    Attributes of nodes are categories, or numbers where all values are. An edge attribute "type",
    "deptype" or "dependency" gives the edge type; else dashed and dotted edges are "control".

    Raises:
        GraphError: If it is no directed graph in DOT, or has no node; names the line.
    """
    try:
        text = read_parsed(path, GraphError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GraphError(
            f"{path}: is no text in UTF-8 ({error.reason}); save it as such."
        ) from None
    parser = Parser(str(path), text)
    parser.parse()
    rows = [
        {k: v for k, v in row.items() if k not in _FOR_DRAWING and v}
        for row in parser.nodes.values()
    ]
    categories, numbers = columns_of(rows)
    index_of = {name: at for at, name in enumerate(parser.nodes)}
    types = tuple(dict.fromkeys(["data", *sorted(parser.edges.values())]))
    ends = [(index_of[source], index_of[target]) for source, target in parser.edges]
    conditions: dict[str, Condition] = {
        name: float(value) if is_number(value) else value
        for name, value in parser.values.items()
        if name not in _FOR_DRAWING
    }
    return AttributedGraph(
        name=_stem(path),
        categories=categories,
        numbers=numbers,
        edge_index_2E=np.array(ends, dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array([types.index(kind) for kind in parser.edges.values()], np.int64),
        edge_type_names=types,
        conditions=conditions,
    ).checked()


def _stem(path: str | Path) -> str:
    """Return the name of a file without its endings."""
    return re.sub(r"\.(dot|gv)(\.gz|\.xz)?$", "", Path(path).name, flags=re.IGNORECASE)


def write_dot(path: str | Path, graph: AttributedGraph) -> None:
    """Write a graph that ``read_dot`` reads again; absent numbers are left out of their node."""
    write_text(path, "\n".join(_lines(graph.checked())) + "\n")


def _lines(graph: AttributedGraph) -> Iterator[str]:
    """Yield the lines of a file."""
    yield f"digraph {_quoted(graph.name)} {{"
    for name, value in graph.conditions.items():
        yield f"  {_quoted(name)}={_quoted(_written(value))};"
    numbers = {name: value_N.tolist() for name, value_N in graph.numbers.items()}
    for node in range(graph.num_nodes):
        pairs = {name: column[node] for name, column in graph.categories.items()}
        pairs |= {n: _written(v[node]) for n, v in numbers.items() if not math.isnan(v[node])}
        inner = ", ".join(f"{_quoted(name)}={_quoted(text)}" for name, text in pairs.items())
        yield f"  {node} [{inner}];"
    kinds = graph.edge_type_E.tolist()
    for (source, target), kind in zip(graph.edge_index_2E.T.tolist(), kinds, strict=True):
        yield f"  {source} -> {target} [type={_quoted(graph.edge_type_names[kind])}];"
    yield "}"


def _written(value: Condition) -> str:
    """Return a value as text; whole numbers without a point."""
    if isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def _quoted(text: str) -> str:
    """Return a text in quotes."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
