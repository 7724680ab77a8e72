"""One attributed graph from whatever file holds it: a job's traces or a flow graph."""

from collections.abc import Callable, Mapping
from pathlib import Path

from layerdag.codec import AttributedGraph, job_graph, rank_classes
from layerdag.datasets.files._dot import read_dot
from layerdag.datasets.files._flow_files import read_json
from layerdag.datasets.files._flow_format import FlowFormat, flow_format
from layerdag.datasets.files._graphml import read_graphml
from layerdag.datasets.files._node_link import read_node_link
from layerdag.datasets.files._wfformat import read_wfformat
from layerdag.errors import GraphError
from layerdag.traces import read_any

READERS: Mapping[FlowFormat, Callable[[str | Path], AttributedGraph]] = {
    FlowFormat.JSON: read_json,
    FlowFormat.GRAPHML: read_graphml,
    FlowFormat.WFFORMAT: read_wfformat,
    FlowFormat.NODE_LINK: read_node_link,
    FlowFormat.DOT: read_dot,
}


def is_flow_file(path: str | Path) -> bool:
    """Return whether a path names a file of a flow graph, rather than anything with traces."""
    return Path(path).is_file() and flow_format(path) is not None


def read_flow(path: str | Path) -> AttributedGraph:
    """Read a file of a flow graph in whatever format it has.

    Raises:
        GraphError: If it is no flow graph, damaged, or contradicts itself.
    """
    kind = flow_format(path)
    if kind is None:
        raise GraphError(
            f"{path}: is no flow graph; known are {', '.join(each.value for each in FlowFormat)}."
        )
    return READERS[kind](path)


def read_graph(path: str | Path) -> AttributedGraph:
    """Read one workload (prefix, folder or file) or one flow graph.

    Raises:
        DataError: If it cannot be read, or its ranks contradict each other.
    """
    path = Path(path)
    if is_flow_file(path):
        return read_flow(path)
    workload = read_any(path)
    return job_graph(str(path), rank_classes(workload), workload.groups, {})
