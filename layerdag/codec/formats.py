"""The one table of file formats: a file is recognized once, and its row reads and writes it.

A new format is a file with its reader and writer, and a row in ``FORMATS``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.codec.foreign import foreign_format, foreign_json
from layerdag.codec.recognition import (
    JSON_SUFFIX,
    Candidate,
    are_pytorch,
    is_chakra,
    is_compiled_program,
    is_feeder_json,
    is_forward_program,
    is_host_trace,
    is_kineto,
    is_node_link,
    is_own_graph,
    is_parts,
    is_text_workload,
    is_trace_json,
    is_wfformat,
    suffix_of,
)
from layerdag.errors import DataError, GraphError, TraceError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph, read_json, write_json
from layerdag.graph.formats.dot import read_dot, write_dot
from layerdag.graph.formats.graphml import read_graphml, write_graphml
from layerdag.graph.formats.node_link import read_node_link
from layerdag.graph.formats.program_json import read_program_json, write_program_json
from layerdag.graph.formats.wfformat import read_wfformat, write_wfformat
from layerdag.hardware.devices import HARDWARE, Hardware
from layerdag.runtime.files import write_bytes
from layerdag.runtime.reading import read_whole, require_parsable
from layerdag.traces.analysis import undescribed_groups
from layerdag.traces.astra_text import parse_text, text_to_workload
from layerdag.traces.chakra.files import decode_trace
from layerdag.traces.chakra.json_forms import (
    decode_feeder_json,
    decode_trace_json,
    encode_trace_json,
    write_feeder_files,
)
from layerdag.traces.chakra.workload import read_groups, read_workload, write_workload
from layerdag.traces.hlo.parser import read_program
from layerdag.traces.hlo.program import program_workload
from layerdag.traces.pytorch.importer import import_pytorch
from layerdag.traces.pytorch.ranks import import_ranks, refuse_missing_ranks
from layerdag.traces.trace import Trace, Workload

DEVICE = next(iter(HARDWARE))
"""The device whose rates time a compiled program where none is named."""

_GRAPH_ENDINGS = (".dot", ".gv", ".graphml")
_COMMON_ENDINGS = (".txt",)
"""Endings that mean little: only the content says whether such a file has a format."""


class Content(Enum):
    """What a format holds."""

    TRACES = "traces"
    PROGRAM = "a compiled program"
    GRAPH = "a flow graph"
    SAMPLES = "samples in parts"


@dataclass(frozen=True)
class ReadOptions:
    """What some readers need beside the place.

    ``groups_file`` is JSON with communicator groups, ``num_ranks`` that of an ASTRA-sim text
    workload, and ``compute`` the device that times the operations of a compiled program.
    """

    groups_file: str | Path | None = None
    num_ranks: int = 1
    compute: str | None = None


Reader = Callable[[Candidate, ReadOptions], Workload | AttributedGraph]


@dataclass(frozen=True)
class Format:
    """One format of files.

    Attributes:
        endings: Of files with this format; none if it is a folder or a prefix of files.
        sniff: Recognizes the content; None if the ending decides, so that a damaged file is
            reported as what it should be.
        word: Its name in ``--to``, if it can be written.
        written_ending: Of a file's name, by which ``ld.write`` chooses the format.
    """

    name: str
    content: Content
    read: Reader
    endings: tuple[str, ...] = ()
    sniff: Callable[[Candidate], bool] | None = None
    write: Callable[..., object] | None = None
    word: str = ""
    written_ending: str = ""

    def recognizes(self, found: Candidate) -> bool:
        """Return whether a file, or what else such a format is of, has this format."""
        return found.suffix in self.endings if self.sniff is None else self.sniff(found)

    def fits(self, found: Candidate) -> bool:
        """Return whether a path has this format."""
        return found.is_file == bool(self.endings) and self.recognizes(found)


def _of_path(read: Callable[[Path], AttributedGraph]) -> Reader:
    return lambda found, options: read(found.path)


def _of_content(
    decode: Callable[[bytes, str], Trace | Workload], *, is_text: bool = True
) -> Reader:
    def read(found: Candidate, options: ReadOptions) -> Workload:
        data, source = read_whole(found.path, error=TraceError), str(found.path)
        if is_text:
            require_parsable(data, source, TraceError)
        made = decode(data, source)
        workload = made if isinstance(made, Workload) else Workload((made,), {}, source)
        return _with_groups(workload, options)

    return read


def _read_text(found: Candidate, options: ReadOptions) -> Workload | AttributedGraph:
    def decode(data: bytes, source: str) -> Workload:
        return text_to_workload(parse_text(data, source), options.num_ranks, source)

    return _of_content(decode)(found, options)


def _of_pytorch(*, is_profile: bool) -> Reader:
    """Import one trace or profile as a stream; ``import_pytorch`` takes both together."""

    def read(found: Candidate, options: ReadOptions) -> Workload:
        files = (None, found.path) if is_profile else (found.path,)
        result = import_pytorch(*files)
        return _with_groups(Workload((result.trace,), result.groups, str(found.path)), options)

    return read


def _with_groups(workload: Workload, options: ReadOptions) -> Workload:
    if not options.groups_file:
        return workload
    groups = read_groups(options.groups_file, workload.num_ranks)
    return replace(workload, groups=groups)


def with_undescribed_groups(workload: Workload) -> Workload:
    """Return a workload with a note on groups that nothing describes."""
    notes = undescribed_groups(workload)
    return replace(workload, job_notes=(*workload.job_notes, *notes)) if notes else workload


def _read_pytorch_ranks(found: Candidate, options: ReadOptions) -> Workload:
    assert found.rank_files is not None
    files = found.rank_files
    job = import_ranks(files.hosts, files.devices, files.notes)
    refuse_missing_ranks(job)
    return job.workload


def _read_program(found: Candidate, options: ReadOptions) -> Workload:
    if options.compute is None:
        raise TraceError(
            f"{found.path}: is a compiled program, whose operations have no times; make traces of "
            f"it with 'layerdag convert {found.path} --compute {DEVICE} --out PREFIX'."
        )
    return program_workload(read_program(found.path), Hardware.from_name(options.compute))


def _refuse_samples(found: Candidate, options: ReadOptions) -> Workload:
    raise TraceError(
        f"{found.path}: holds samples in parts, which are many graphs; read them one after the "
        "other with layerdag.iter_samples."
    )


_GRAPH, _TRACES = Content.GRAPH, Content.TRACES
_PYTORCH_ENDINGS = (JSON_SUFFIX, ".pt", ".trace")
FORWARD_PROGRAM = Format(
    "forward program", _GRAPH, _of_path(read_program_json), (JSON_SUFFIX,), is_forward_program,
    write_program_json, "program", ".program.json",
)  # fmt: skip
KINETO = Format(
    "Kineto profile", _TRACES, _of_pytorch(is_profile=True), _PYTORCH_ENDINGS, is_kineto
)
HOST_TRACE = Format(
    "PyTorch execution trace",
    _TRACES,
    _of_pytorch(is_profile=False),
    _PYTORCH_ENDINGS,
    is_host_trace,
)
CHAKRA = Format(
    "Chakra .et", _TRACES, _of_content(decode_trace, is_text=False), (".et",), is_chakra
)
FORMATS: Sequence[Format] = (
    Format(
        "GraphML", _GRAPH, _of_path(read_graphml), (".graphml",), None,
        write_graphml, "graphml", ".graphml",
    ),
    Format("DOT", _GRAPH, _of_path(read_dot), (".dot", ".gv"), None, write_dot, "dot", ".dot"),
    Format(
        "JSON of layerdag", _GRAPH, _of_path(read_json), (JSON_SUFFIX,), is_own_graph,
        write_json, "json", JSON_SUFFIX,
    ),
    Format(
        "WfFormat", _GRAPH, _of_path(read_wfformat), (JSON_SUFFIX,), is_wfformat,
        write_wfformat, "wfformat", ".wf.json",
    ),
    FORWARD_PROGRAM,
    Format("node-link JSON", _GRAPH, _of_path(read_node_link), (JSON_SUFFIX,), is_node_link),
    Format(
        "StableHLO or HLO text", Content.PROGRAM, _read_program, (".mlir", ".hlo", ".txt"),
        is_compiled_program,
    ),
    Format(
        "JSON of layerdag", _TRACES, _of_content(decode_trace_json), (JSON_SUFFIX,), is_trace_json,
        lambda path, workload: write_bytes(path, encode_trace_json(workload)), "json", JSON_SUFFIX,
    ),
    Format(
        "Chakra JSON of feeder v1", _TRACES, _of_content(decode_feeder_json), (JSON_SUFFIX,),
        is_feeder_json, write_feeder_files, "feeder-json",
    ),
    KINETO,
    HOST_TRACE,
    Format(
        "ASTRA-sim text workload", _TRACES, _read_text, (".txt",), is_text_workload
    ),
    CHAKRA,
    Format("samples in parts", Content.SAMPLES, _refuse_samples, sniff=is_parts),
    Format("PyTorch traces of ranks", _TRACES, _read_pytorch_ranks, sniff=are_pytorch),
    Format(
        "PREFIX.<rank>.et", _TRACES,
        lambda found, options: read_workload(found.path, options.groups_file),
        (), lambda found: True,
        lambda path, workload: write_workload(workload, path, overwrite=True), "et",
    ),
)  # fmt: skip
"""All formats, in the order in which they are looked for: the only list of file formats."""

ENDINGS = tuple(dict.fromkeys(ending for each in FORMATS for ending in each.endings))
"""Endings of the files that a folder of traces, programs or graphs may hold."""


def format_of_file(path: Path) -> Format | None:
    """Return the format of a file in a folder; None for a file of another ending or content.

    Where one format alone has the ending of the file, the content is not looked at. Raises
    DataError if the file cannot be unpacked.
    """
    error = GraphError if suffix_of(path) == JSON_SUFFIX else TraceError
    found = Candidate(path, error)
    fitting = [each for each in FORMATS if found.suffix in each.endings]
    if len(fitting) == 1 and found.suffix not in _COMMON_ENDINGS:
        return fitting[0]
    return next((each for each in fitting if each.fits(found)), None)


def may_be_read(path: Path) -> bool:
    """Return whether the name of a file says that it is a trace, a program or a graph.

    Of endings that mean little the content decides.
    """
    suffix = suffix_of(path)
    if suffix in _COMMON_ENDINGS:
        try:
            return format_of_file(path) is not None
        except DataError:
            return False
    return suffix in ENDINGS


@dataclass(frozen=True)
class Recognized:
    """A place and the format of what lies there."""

    format: Format
    found: Candidate

    @property
    def content(self) -> Content:
        """What it holds."""
        return self.format.content

    def read(self, options: ReadOptions | None = None) -> Workload | AttributedGraph:
        """Read it.

        Raises:
            DataError: If it is damaged or incomplete, or a file of another tool, which is named.
        """
        try:
            return self.format.read(self.found, options or ReadOptions())
        except DataError as error:
            what = _what_else(self.found)
            if not what:
                raise
            raise type(error)(f"{self.found.path}: {what}.") from error

    def traces(self, options: ReadOptions | None = None) -> Workload:
        """Read traces. Raises TraceError if it holds none, or they are damaged or incomplete."""
        read = self.read(options) if self.content is not Content.GRAPH else None
        if not isinstance(read, Workload):
            raise TraceError(
                f"{self.found.path}: is a flow graph ({self.format.name}), where traces are "
                "needed; name another file."
            )
        return with_undescribed_groups(read)

    def graph(self, options: ReadOptions | None = None) -> AttributedGraph:
        """Read a flow graph, or traces as the graph of their job.

        Raises DataError if it is damaged or contradicts itself.
        """
        read = self.read(options)
        if isinstance(read, AttributedGraph):
            return read
        graph = job_graph(str(self.found.path), rank_classes(read), read.groups, {})
        # What is written of it is handed on, so its name says nothing of folders.
        return replace(graph, name=self.found.path.name)


def _what_else(found: Candidate) -> str:
    """Return what a file of another tool is; "" if that is not known."""
    try:
        what = foreign_format(found.data) if found.is_file else ""
    except DataError:
        return ""
    # A damaged file of its own format is told by that format's reader.
    own = found.suffix in _GRAPH_ENDINGS and ("DOT;" in what or "is GraphML" in what)
    return "" if own else what


def recognize(location: str | Path) -> Recognized:
    """Return the format of a path: a file, a folder, or a prefix of files.

    Raises:
        DataError: If a file is JSON or a text of an unknown kind, or cannot be unpacked. Any other
            unknown content counts as Chakra, whose reader says what is wrong with it.
    """
    path = Path(location)
    is_json = suffix_of(path) == JSON_SUFFIX
    return _recognized(Candidate(path, GraphError if is_json else TraceError))


def _recognized(found: Candidate) -> Recognized:
    for candidate in (found, replace(found, whole=True)):
        kind = next((each for each in FORMATS if each.fits(candidate)), None)
        if kind is not None:
            return Recognized(kind, found)
        if found.path.suffix == ".py":
            raise TraceError(
                f"{found.path}: is a Python program and no trace; 'layerdag collect --out "
                f"traces/mine {found.path}' runs it and writes its trace."
            )
        if not found.is_json:
            raise TraceError(
                f"{found.path}: {_what_else(found)}."
                if _what_else(found)
                else f"{found.path}: is a text, but no workload of ASTRA-sim (parallelism on line "
                "1, number of layers on line 2), and no graph: those in GraphML and DOT have the "
                "endings .graphml and .dot; name another file."
            )
    if found.start[:1] == b"[" and b'"ph"' in found.start:
        raise TraceError(
            f"{found.path}: is a bare list of Chrome trace events, as the legacy profiler of "
            "PyTorch and torch_npu write; it lacks what ties kernels to their launches "
            "(correlation). Profile with torch.profiler and its export_chrome_trace."
        )
    what = foreign_json(found.data)
    if what:
        raise TraceError(f"{found.path}: {what}.")
    raise TraceError(
        f"{found.path}: is JSON, but neither a PyTorch execution trace, a Kineto profile, nor a "
        "Chakra JSON, nor a graph (WfFormat, node-link JSON, in a file .json); name another file."
    )


def words(content: Content) -> tuple[str, ...]:
    """Return the words of ``--to`` by which such content is written, in the order of the table."""
    written = (each.word for each in FORMATS if each.content is content and each.write)
    return tuple(dict.fromkeys(filter(None, written)))


def writer(word: str, content: Content) -> Callable[..., object]:
    """Return what writes a format by its word in ``--to``, given the path and the thing.

    Raises UsageError if there is no such format.
    """
    of_word = {each.word: each.write for each in FORMATS if each.content is content and each.write}
    if word not in of_word:
        raise UsageError(f"'{word}' is no format of {content.value}; name {', '.join(of_word)}.")
    return of_word[word]


def write_graph(graph: AttributedGraph, path: Path) -> None:
    """Write a graph in the format of the file's ending. Raises UsageError if there is none."""
    write = writer_of(path, Content.GRAPH)
    if write is None:
        endings = [
            each.written_ending
            for each in FORMATS
            if each.content is Content.GRAPH and each.written_ending
        ]
        known = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise UsageError(f"{path}: a graph is written as {known}; name one.")
    write(path, graph)


def writer_of(path: Path, content: Content) -> Callable[..., object] | None:
    """Return what writes a format by the ending of a file's name, given the path and the thing."""
    fitting = [
        each
        for each in FORMATS
        if each.content is content
        and each.written_ending
        and path.name.endswith(each.written_ending)
    ]
    return max(fitting, key=lambda each: len(each.written_ending)).write if fitting else None


def read_any(
    location: str | Path, groups_file: str | Path | None = None, num_ranks: int = 1
) -> Workload:
    """Read the traces of a workload, in any format.

    ``location`` is a file, a prefix of ``PREFIX.<rank>.et``, a folder with one such set, or a
    folder or prefix of PyTorch traces, one host trace or profile per rank. ``num_ranks`` is for
    ASTRA-sim text workloads. Raises TraceError if nothing is found, or the content is unknown or
    damaged.
    """
    found = _recognized(Candidate(Path(location)))
    return found.traces(ReadOptions(groups_file, num_ranks))


def flow_format(path: str | Path) -> Format | None:
    """Return the format of a flow graph's file, None for any other file.

    Raises GraphError if the file cannot be unpacked.
    """
    found = Candidate(Path(path), GraphError)
    graphs = (each for each in FORMATS if each.content is Content.GRAPH)
    return next((each for each in graphs if each.recognizes(found)), None)


def read_graph(path: str | Path) -> AttributedGraph:
    """Read one workload (prefix, folder or file) or one flow graph.

    Raises:
        DataError: If it cannot be read, or its ranks contradict each other.
    """
    return recognize(path).graph(ReadOptions(compute=DEVICE))


def read(path: str | Path, *, compute: str = DEVICE) -> Workload | AttributedGraph:
    """Read a workload or a graph of any format, detected from the content.

    Args:
        path: A trace file of any format, a prefix of ``PREFIX.<rank>.et``, a folder with one such
            set or with PyTorch traces, a compiled program (StableHLO or HLO text), or a flow graph
            (GraphML, DOT, WfFormat, node-link JSON, layerdag's ``.json``).
        compute: For a compiled program: the device whose rates give its operations their times, one
            of ``traces.hlo.HARDWARE`` or a JSON file.

    Raises:
        DataError: If nothing is there, or the content is unknown, damaged or incomplete.
    """
    return recognize(path).read(ReadOptions(compute=compute))
