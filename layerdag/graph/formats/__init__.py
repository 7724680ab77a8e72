"""Flow graphs in files of other tools: DOT, GraphML, node-link JSON, WfFormat."""

from layerdag.graph.formats.dot import read_dot, write_dot
from layerdag.graph.formats.graphml import (
    decode_graphml,
    encode_graphml,
    read_graphml,
    write_graphml,
)
from layerdag.graph.formats.node_link import read_node_link
from layerdag.graph.formats.rows import GraphRows, Value, from_networkx, is_networkx, to_networkx
from layerdag.graph.formats.wfformat import read_wfformat, write_wfformat

__all__ = [
    "GraphRows",
    "Value",
    "decode_graphml",
    "encode_graphml",
    "from_networkx",
    "is_networkx",
    "read_dot",
    "read_graphml",
    "read_node_link",
    "read_wfformat",
    "to_networkx",
    "write_dot",
    "write_graphml",
    "write_wfformat",
]
