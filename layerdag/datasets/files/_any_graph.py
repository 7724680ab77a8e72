"""One attributed graph from whatever file holds it: a job's traces or a flow graph."""

from pathlib import Path

from layerdag.codec import AttributedGraph, job_graph, rank_classes
from layerdag.datasets.files._flow_files import read_json
from layerdag.datasets.files._graphml import read_graphml
from layerdag.traces import read_any

READERS = {".graphml": read_graphml, ".json": read_json}


def is_flow_file(path: str | Path) -> bool:
    """Return whether a path names a file of a flow graph, rather than anything with traces."""
    path = Path(path)
    return path.suffix in READERS and path.is_file() and not _is_trace_json(path)


def read_graph(path: str | Path) -> AttributedGraph:
    """Read one workload (prefix, folder or file) or one flow graph.

    Raises:
        DataError: If it cannot be read, or its ranks contradict each other.
    """
    path = Path(path)
    if is_flow_file(path):
        return READERS[path.suffix](path)
    workload = read_any(path)
    return job_graph(str(path), rank_classes(workload), workload.groups, {})


def _is_trace_json(path: Path) -> bool:
    """Return whether a JSON file is a trace (host trace, feeder JSON) rather than a graph."""
    with path.open("rb") as stream:
        return path.suffix == ".json" and b"layerdag-graph" not in stream.read(200)
