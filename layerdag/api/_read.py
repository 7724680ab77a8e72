"""Reading one thing, whatever its format."""

from pathlib import Path

from layerdag.codec import AttributedGraph
from layerdag.datasets.files import is_flow_file, read_graph
from layerdag.traces import Workload, read_any


def read(path: str | Path) -> Workload | AttributedGraph:
    """Read a workload or a flow graph of any format, detected from the content.

    Args:
        path: A trace file of any format, a prefix of ``PREFIX.<rank>.et``, a folder with one such
            set or with PyTorch traces, or a flow graph (``.graphml``, layerdag's ``.json``).

    Returns:
        A ``Workload`` for traces, an attributed ``AttributedGraph`` for a flow graph.

    Raises:
        DataError: If nothing is there, or the content is unknown, damaged or incomplete.
    """
    return read_graph(path) if is_flow_file(path) else read_any(path)
