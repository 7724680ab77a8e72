"""Graphs in the formats that other tools open: GraphML, DOT."""

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from layerdag.viz._view import GraphView

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def graphml(view: GraphView) -> str:
    """Return the graph as GraphML (graphml.graphdrawing.org), as networkx, yEd and Gephi read it.

    Every value of a node is a typed ``data`` element: long for integers, double, boolean, string.
    """
    keys = _keys(view)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
    ]
    for number, (name, kind) in enumerate(keys.items()):
        lines.append(
            f'<key id="n{number}" for="node" attr.name={_attribute(name)} attr.type="{kind}"/>'
        )
    lines.append('<key id="e0" for="edge" attr.name="dependency" attr.type="string"/>')
    lines.append(f'<graph id={_attribute(view.title)} edgedefault="directed">')
    lines += _graphml_nodes(view, list(keys))
    for source, target, dashed in zip(
        *view.edge_index_2E.tolist(), view.dashed_E.tolist(), strict=True
    ):
        kind = "control" if dashed else "data"
        lines.append(
            f"<edge source={_attribute(view.ids[source])} target={_attribute(view.ids[target])}>"
            f'<data key="e0">{kind}</data></edge>'
        )
    return "\n".join([*lines, "</graph>", "</graphml>", ""])


def _keys(view: GraphView) -> dict[str, str]:
    """Return the GraphML type of each value that some node has."""
    keys = {"name": "string", "kind": "string"}
    for details in view.details:
        for name, value in details.items():
            kind = _type_of(value)
            # A name that comes with several types is written as text.
            keys[name] = kind if keys.get(name, kind) == kind else "string"
    return keys


def _type_of(value: object) -> str:
    """Return the GraphML type of a value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -(2**63) <= value < 2**63 else "string"
    return "double" if isinstance(value, float) else "string"


def _graphml_nodes(view: GraphView, keys: list[str]) -> Iterator[str]:
    """Yield one line for each node."""
    number = {name: at for at, name in enumerate(keys)}
    for row, details in enumerate(view.details):
        values = {"name": view.labels[row], "kind": view.kinds[int(view.kind_N[row])], **details}
        data = "".join(
            f'<data key="n{number[name]}">{_content(value)}</data>'
            for name, value in values.items()
        )
        yield f"<node id={_attribute(view.ids[row])}>{data}</node>"


def _content(value: object) -> str:
    """Return a value as XML text."""
    if isinstance(value, bool):
        return str(value).lower()
    return escape(_NOT_XML.sub("\ufffd", str(value)))


def _attribute(text: str) -> str:
    """Return a quoted XML attribute value."""
    return quoteattr(_NOT_XML.sub("\ufffd", text))


def dot(view: GraphView) -> str:
    """Return the graph in the DOT language of Graphviz, colored like the pictures."""
    lines = [
        f"digraph {_quoted(view.title)} {{",
        'node [shape=box, style="rounded,filled", fontname="sans-serif", fontcolor=white];',
    ]
    for row, label in enumerate(view.labels):
        kind = int(view.kind_N[row])
        lines.append(
            f"{_quoted(view.ids[row])} [label={_quoted(label)}, fillcolor="
            f'"{view.colors[kind]}", tooltip={_quoted(view.kinds[kind])}];'
        )
    for source, target, dashed in zip(
        *view.edge_index_2E.tolist(), view.dashed_E.tolist(), strict=True
    ):
        style = " [style=dashed]" if dashed else ""
        lines.append(f"{_quoted(view.ids[source])} -> {_quoted(view.ids[target])}{style};")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    """Return a quoted DOT string; backslashes, which DOT would interpret, are doubled."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\0", "")
    return '"' + text.replace("\r", "").replace("\n", "\\n") + '"'
