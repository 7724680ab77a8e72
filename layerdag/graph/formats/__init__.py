"""Flow graphs in files of other tools: DOT, GraphML, node-link JSON, WfFormat."""

from layerdag.graph.formats.dot import read_dot, write_dot
from layerdag.graph.formats.graphml import (
    decode_graphml,
    encode_graphml,
    read_graphml,
    read_node_link,
    write_graphml,
)
from layerdag.graph.formats.networkx_graphs import from_networkx, is_networkx, to_networkx
from layerdag.graph.formats.registry import (
    GraphRows,
    Value,
    decode_json,
    encode_json,
    read_json,
    write_json,
)
from layerdag.graph.formats.wfformat import read_wfformat, write_wfformat

__all__ = [
    "GraphRows",
    "Value",
    "decode_graphml",
    "decode_json",
    "encode_graphml",
    "encode_json",
    "from_networkx",
    "is_networkx",
    "read_dot",
    "read_graphml",
    "read_json",
    "read_node_link",
    "read_wfformat",
    "to_networkx",
    "write_dot",
    "write_graphml",
    "write_json",
    "write_wfformat",
]
