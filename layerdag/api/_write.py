"""Writing one thing in the format that its file's suffix names."""

from pathlib import Path

from layerdag._runtime import write_bytes
from layerdag.codec import AttributedGraph
from layerdag.datasets.files import write_dot, write_graphml, write_json, write_wfformat
from layerdag.errors import UsageError
from layerdag.sampling import GeneratedGraph
from layerdag.traces import Trace, Workload, write_workload
from layerdag.traces.chakra import encode_trace_json, write_trace

_GRAPH_WRITERS = {".graphml": write_graphml, ".json": write_json, ".dot": write_dot}
_WFFORMAT = ".wf.json"


def write(thing: Workload | Trace | AttributedGraph | GeneratedGraph, path: str | Path) -> None:
    """Write a workload, a trace, an attributed graph or a sample; the suffix decides the format.

    Args:
        thing: What to write.
        path: ``.graphml``, ``.dot`` or ``.wf.json`` (WfFormat) for a graph; ``.json`` for a graph
            or a workload, without loss; ``.et`` for one trace; without a suffix the prefix of
            ``PREFIX.<rank>.et``, one for each rank.

    Raises:
        UsageError: If the suffix does not fit.
        DataError: If a sample that is no job is to be written as traces.
        OSError: If the place cannot be written.
    """
    path = Path(path)
    if path.name.endswith(_WFFORMAT) and not isinstance(thing, Workload | Trace):
        write_wfformat(path, thing.graph if isinstance(thing, GeneratedGraph) else thing)
        return
    if isinstance(thing, GeneratedGraph):
        thing = thing.graph if path.suffix in _GRAPH_WRITERS else thing.workload()
    if isinstance(thing, AttributedGraph):
        if path.suffix not in _GRAPH_WRITERS:
            raise UsageError(
                f"{path}: a graph is written as .graphml, .dot, .wf.json or .json; name one."
            )
        _GRAPH_WRITERS[path.suffix](path, thing)
    elif isinstance(thing, Trace):
        _write_trace(thing, path)
    elif path.suffix == ".json":
        write_bytes(path, encode_trace_json(thing))
    elif path.suffix == ".et" and thing.num_ranks == 1:
        _write_trace(thing.traces[0], path)
    elif path.suffix in (".et", ".graphml"):
        raise UsageError(
            f"{path}: {thing.num_ranks} ranks need a file each; name the prefix "
            f"{path.with_suffix('')}, or a .json file."
        )
    else:
        write_workload(thing, path)


def _write_trace(trace: Trace, path: Path) -> None:
    """Write one trace as Chakra."""
    if path.suffix != ".et":
        raise UsageError(f"{path}: a trace is written as .et; name such a file.")
    write_trace(trace, path)
