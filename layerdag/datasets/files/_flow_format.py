"""Which format a file of a flow graph has: told from its start."""

import re
from enum import Enum
from pathlib import Path

from layerdag._runtime import open_unpacked
from layerdag.errors import GraphError


class FlowFormat(Enum):
    """The formats of flow graphs that are read."""

    JSON = "JSON of layerdag"
    GRAPHML = "GraphML"
    WFFORMAT = "WfFormat"
    NODE_LINK = "node-link JSON"
    DOT = "DOT"


SUFFIXES = (".graphml", ".json", ".dot", ".gv")
"""Endings of the files, before that of an archive."""

_ARCHIVES = (".gz", ".xz")
_START = 1 << 16
_LINKS = re.compile(rb'"(links|edges)"\s*:\s*\[')
_OF_TRACES = (b'"traceEvents"', b'"workload_graph"', b'"schema"')


def flow_format(path: str | Path) -> FlowFormat | None:
    """Return the format of a flow graph's file, None for any other file.

    ``.graphml``, ``.dot`` and ``.gv`` are taken at their word, so that a damaged file is told as
    what it should be.

    Raises:
        GraphError: If the file cannot be unpacked.
    """
    suffix = graph_suffix(path)
    if suffix not in SUFFIXES:
        return None
    if suffix != ".json":
        return FlowFormat.GRAPHML if suffix == ".graphml" else FlowFormat.DOT
    with open_unpacked(path, GraphError) as stream:
        start = stream.read_full(_START).removeprefix(b"\xef\xbb\xbf").lstrip()
    return _json_format(start) if start[:1] == b"{" else None


def graph_suffix(path: str | Path) -> str:
    """Return the ending of a file before that of an archive, in lower case."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    while suffixes and suffixes[-1] in _ARCHIVES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _json_format(start: bytes) -> FlowFormat | None:
    """Return the format of a JSON object by its first keys."""
    if b'"layerdag-graph-' in start[:200]:
        return FlowFormat.JSON
    if any(key in start for key in _OF_TRACES) or b'"layerdag-trace' in start[:200]:
        return None
    if b'"workflow"' in start and any(
        key in start for key in (b'"schemaVersion"', b'"specification"')
    ):
        return FlowFormat.WFFORMAT
    if b'"nodes"' in start and (b'"directed"' in start or _LINKS.search(start)):
        return FlowFormat.NODE_LINK
    return None
