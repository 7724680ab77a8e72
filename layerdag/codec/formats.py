"""The one table of file formats: a file is recognized once, and its row reads and writes it.

A new format is a file with its reader and writer, and a row in ``FORMATS``.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.codec.foreign import foreign_format, foreign_json
from layerdag.codec.sample_files import is_run
from layerdag.errors import DataError, GraphError, TraceError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph, read_json, write_json
from layerdag.graph.formats.dot import read_dot, write_dot
from layerdag.graph.formats.graphml import read_graphml, write_graphml
from layerdag.graph.formats.node_link import read_node_link
from layerdag.graph.formats.program_json import (
    FORMAT as PROGRAM_FORMAT,
    read_program_json,
    write_program_json,
)
from layerdag.graph.formats.wfformat import read_wfformat, write_wfformat
from layerdag.runtime.files import write_bytes
from layerdag.runtime.reading import open_unpacked, read_whole, require_parsable
from layerdag.traces.analysis import summarize_trace, undescribed_groups
from layerdag.traces.astra_text import PARALLELISMS, parse_text, text_to_workload
from layerdag.traces.chakra.files import decode_trace
from layerdag.traces.chakra.json_forms import (
    FORMAT,
    decode_feeder_json,
    decode_trace_json,
    encode_trace_json,
    write_feeder_files,
)
from layerdag.traces.chakra.workload import (
    holds_rank_files,
    read_groups,
    read_workload,
    write_workload,
)
from layerdag.traces.hlo.parser import begins_program, read_program
from layerdag.traces.hlo.program import HARDWARE, DeviceSplit, Hardware, program_workload
from layerdag.traces.pytorch.importer import import_pytorch
from layerdag.traces.pytorch.ranks import (
    ImportedJob,
    PyTorchFile,
    RankFiles,
    find_rank_files,
    import_ranks,
    import_single_rank,
    pytorch_format,
    pytorch_kind,
    refuse_missing_ranks,
    replicate_rank,
)
from layerdag.traces.trace import NodeType, Trace, Workload

DEVICE = next(iter(HARDWARE))
"""The device whose rates time a compiled program where none is named."""

_START = 1 << 20
_KEYS = 1 << 16  # bytes in which the keys of a flow graph's JSON must stand
_WORDS = 1 << 12
_GRAPH_ENDINGS = (".dot", ".gv", ".graphml")
_ARCHIVES = (".gz", ".xz")
_JSON_SUFFIX = ".json"


class Content(Enum):
    """What a format holds."""

    TRACES = "traces"
    PROGRAM = "a compiled program"
    GRAPH = "a flow graph"
    SAMPLES = "samples in parts"


@dataclass(frozen=True, eq=False)
class Candidate:
    """What lies at a place, as far as formats are recognized by it; files are opened when needed.

    Attributes:
        path: A file, a folder or a prefix of files.
        error: What is raised where the file cannot be unpacked.
        whole: Whether all of the file is looked at rather than its first megabyte.
    """

    path: Path
    error: type[DataError] = TraceError
    whole: bool = False

    @cached_property
    def is_file(self) -> bool:
        """Whether it is a file."""
        return self.path.is_file()

    @cached_property
    def suffix(self) -> str:
        """The ending of the name before that of an archive, in lower case."""
        return graph_suffix(self.path)

    @cached_property
    def data(self) -> bytes:
        """The unpacked content, or its beginning."""
        if self.whole:
            return read_whole(self.path, error=self.error)
        with open_unpacked(self.path, self.error) as stream:
            return stream.read_full(_START)

    @cached_property
    def start(self) -> bytes:
        """The first bytes without white space and byte order mark."""
        return self.data[:_KEYS].removeprefix(b"\xef\xbb\xbf").lstrip()

    @cached_property
    def rank_files(self) -> RankFiles | None:
        """The files of PyTorch in a folder or behind a prefix; None beside ``PREFIX.<rank>.et``."""
        return None if holds_rank_files(self.path) else find_rank_files(self.path)

    @property
    def is_json(self) -> bool:
        """Whether the file begins like JSON."""
        return self.start[:1] in (b"{", b"[")

    @property
    def is_text(self) -> bool:
        """Whether the file begins like a text."""
        start = self.start[:_WORDS]
        return bool(start) and all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in start)


@dataclass(frozen=True)
class ReadOptions:
    """What some readers need beside the place.

    Attributes:
        groups_file: JSON with communicator groups, for traces.
        num_ranks: Of an ASTRA-sim text workload, which does not say.
        compute: Device whose rates give the operations of a compiled program their times.
    """

    groups_file: str | Path | None = None
    num_ranks: int = 1
    compute: str | None = None


Reader = Callable[[Candidate, ReadOptions], Workload | AttributedGraph]


@dataclass(frozen=True)
class Format:
    """One format of files.

    Attributes:
        name: For people.
        content: What it holds.
        sniff: Returns whether what lies at a place has this format.
        read: Reads it.
        write: Writes it to a path, if it can be written.
        word: What ``--to`` calls it, if it can be written.
        one_file: Whether it is a file; else a folder or a prefix of files.
        ending: Of a file's name, by which ``ld.write`` chooses the format.
    """

    name: str
    content: Content
    sniff: Callable[[Candidate], bool]
    read: Reader
    write: Callable[..., object] | None = None
    word: str = ""
    one_file: bool = True
    ending: str = ""

    def fits(self, found: Candidate) -> bool:
        """Return whether what lies at a place has this format."""
        return found.is_file == self.one_file and self.sniff(found)


def graph_suffix(path: str | Path) -> str:
    """Return the ending of a file before that of an archive, in lower case."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    while suffixes and suffixes[-1] in _ARCHIVES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _named(*suffixes: str) -> Callable[[Candidate], bool]:
    """Recognize files by their names, so that a damaged one is told as what it should be."""
    return lambda found: found.suffix in suffixes


_LINKS = re.compile(rb'"(links|edges)"\s*:\s*\[|"elements"\s*:\s*[\[{]')
_LISTED = re.compile(rb'"(nodes|elements)"\s*:\s*[\[{]')
_ENDS = re.compile(rb'"(source|from)"\s*:.{0,200}?"(target|to)"\s*:', re.DOTALL)
_OF_TRACES = (b'"traceEvents"', b'"workload_graph"', b'"schema"')


def _is_own_graph(found: Candidate) -> bool:
    named = found.suffix == _JSON_SUFFIX and found.start[:1] == b"{"
    return named and b'"layerdag-graph-' in found.start[:200]


def _has_keys_of_graph(found: Candidate, *keys: bytes) -> bool:
    if found.suffix != _JSON_SUFFIX or found.start[:1] != b"{":
        return False
    if any(key in found.start for key in _OF_TRACES) or b'"layerdag-trace' in found.start[:200]:
        return False
    return all(key in found.start for key in keys)


def _is_forward_program(found: Candidate) -> bool:
    named = found.suffix == _JSON_SUFFIX and found.start[:1] == b"{"
    return named and PROGRAM_FORMAT.encode() in found.start[:200]


def _is_wfformat(found: Candidate) -> bool:
    return _has_keys_of_graph(found, b'"workflow"') and any(
        key in found.start for key in (b'"schemaVersion"', b'"specification"')
    )


def _is_node_link(found: Candidate) -> bool:
    if not _has_keys_of_graph(found):
        return False
    if b'"nodes"' in found.start and (b'"directed"' in found.start or _LINKS.search(found.start)):
        return True
    return bool(_LISTED.search(found.start) and _ENDS.search(found.start))


_FORMAT_OF_TRACES = re.compile(rb'"format"\s*:\s*"' + re.escape(FORMAT.encode()))


def _is_trace_json(found: Candidate) -> bool:
    return found.is_json and _FORMAT_OF_TRACES.search(found.start[:_WORDS]) is not None


def _is_feeder_json(found: Candidate) -> bool:
    return found.is_json and b'"workload_graph"' in found.data


def _is_pytorch(kind: PyTorchFile) -> Callable[[Candidate], bool]:
    return lambda found: found.is_json and pytorch_kind(found.data) is kind


_TEXT_START = re.compile(rb"\s*(" + "|".join(PARALLELISMS).encode() + rb")\b[^\n]*\n\s*\d+\s*\n")


def _is_text_workload(found: Candidate) -> bool:
    return _TEXT_START.match(found.data) is not None


def _is_program(found: Candidate) -> bool:
    return begins_program(found.data)


def _is_parts(found: Candidate) -> bool:
    return is_run(found.path)


def _are_pytorch(found: Candidate) -> bool:
    return found.rank_files is not None


def _any(found: Candidate) -> bool:
    return True


def _is_chakra(found: Candidate) -> bool:
    return not (found.is_json or found.is_text)


def _of_path(read: Callable[[Path], AttributedGraph]) -> Reader:
    return lambda found, options: read(found.path)


def _of_content(decode: Callable[[bytes, str, ReadOptions], Workload]) -> Reader:
    def read(found: Candidate, options: ReadOptions) -> Workload:
        data = read_whole(found.path, error=TraceError)
        return _with_groups(decode(data, str(found.path), options), options)

    return read


def _with_groups(workload: Workload, options: ReadOptions) -> Workload:
    if not options.groups_file:
        return workload
    groups = read_groups(options.groups_file, workload.num_ranks)
    return replace(workload, groups=groups)


def _with_undescribed(workload: Workload) -> Workload:
    notes = undescribed_groups(workload)
    return replace(workload, job_notes=(*workload.job_notes, *notes)) if notes else workload


def _decode_chakra(data: bytes, source: str, options: ReadOptions) -> Workload:
    return Workload((decode_trace(data, source),), {}, source)


def _decode_feeder(data: bytes, source: str, options: ReadOptions) -> Workload:
    require_parsable(data, source, TraceError)
    return Workload((decode_feeder_json(data, source),), {}, source)


def _decode_trace_json(data: bytes, source: str, options: ReadOptions) -> Workload:
    require_parsable(data, source, TraceError)
    return decode_trace_json(data, source)


def _decode_text(data: bytes, source: str, options: ReadOptions) -> Workload:
    require_parsable(data, source, TraceError)
    return text_to_workload(parse_text(data, source), options.num_ranks, source)


def _read_host_trace(found: Candidate, options: ReadOptions) -> Workload:
    """Import a host trace as a stream; ``import_pytorch`` takes it with its profile together."""
    result = import_pytorch(found.path)
    return _with_groups(Workload((result.trace,), result.groups, str(found.path)), options)


def _read_kineto(found: Candidate, options: ReadOptions) -> Workload:
    result = import_pytorch(None, found.path)
    return _with_groups(Workload((result.trace,), result.groups, str(found.path)), options)


def _read_pytorch_ranks(found: Candidate, options: ReadOptions) -> Workload:
    assert found.rank_files is not None
    files = found.rank_files
    job = import_ranks(files.hosts, files.devices, files.notes)
    refuse_missing_ranks(job)
    return job.workload


def _read_rank_files(found: Candidate, options: ReadOptions) -> Workload:
    return read_workload(found.path, options.groups_file)


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


def _write_ranks(path: str | Path, workload: Workload) -> None:
    write_workload(workload, path, overwrite=True)


def _write_trace_json(path: str | Path, workload: Workload) -> None:
    write_bytes(path, encode_trace_json(workload))


_GRAPH, _TRACES = Content.GRAPH, Content.TRACES
_IS_KINETO, _IS_HOST = _is_pytorch(PyTorchFile.KINETO), _is_pytorch(PyTorchFile.HOST)
_TRACE_JSON, _FEEDER, _TEXT = map(_of_content, (_decode_trace_json, _decode_feeder, _decode_text))
FORMATS: Sequence[Format] = (
    Format(
        "GraphML",
        _GRAPH,
        _named(".graphml"),
        _of_path(read_graphml),
        write_graphml,
        "graphml",
        ending=".graphml",
    ),
    Format(
        "DOT", _GRAPH, _named(".dot", ".gv"), _of_path(read_dot), write_dot, "dot", ending=".dot"
    ),
    Format(
        "JSON of layerdag",
        _GRAPH,
        _is_own_graph,
        _of_path(read_json),
        write_json,
        "json",
        ending=_JSON_SUFFIX,
    ),
    Format(
        "WfFormat",
        _GRAPH,
        _is_wfformat,
        _of_path(read_wfformat),
        write_wfformat,
        "wfformat",
        ending=".wf.json",
    ),
    Format(
        "forward program",
        _GRAPH,
        _is_forward_program,
        _of_path(read_program_json),
        write_program_json,
        "program",
        ending=".program.json",
    ),
    Format("node-link JSON", _GRAPH, _is_node_link, _of_path(read_node_link)),
    Format("StableHLO or HLO text", Content.PROGRAM, _is_program, _read_program),
    Format(
        "JSON of layerdag",
        _TRACES,
        _is_trace_json,
        _TRACE_JSON,
        _write_trace_json,
        "json",
        ending=_JSON_SUFFIX,
    ),
    Format(
        "Chakra JSON of feeder v1",
        _TRACES,
        _is_feeder_json,
        _FEEDER,
        write_feeder_files,
        "feeder-json",
    ),
    Format("Kineto profile", _TRACES, _IS_KINETO, _read_kineto),
    Format("PyTorch execution trace", _TRACES, _IS_HOST, _read_host_trace),
    Format("ASTRA-sim text workload", _TRACES, _is_text_workload, _TEXT),
    Format("Chakra .et", _TRACES, _is_chakra, _of_content(_decode_chakra)),
    Format("samples in parts", Content.SAMPLES, _is_parts, _refuse_samples, one_file=False),
    Format("PyTorch traces of ranks", _TRACES, _are_pytorch, _read_pytorch_ranks, one_file=False),
    Format("PREFIX.<rank>.et", _TRACES, _any, _read_rank_files, _write_ranks, "et", one_file=False),
)
"""All formats, in the order in which they are looked for."""


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
        """Read traces.

        Raises:
            TraceError: If it holds none, or they are damaged or incomplete.
        """
        read = self.read(options) if self.content is not Content.GRAPH else None
        if not isinstance(read, Workload):
            raise TraceError(
                f"{self.found.path}: is a flow graph ({self.format.name}), where traces are "
                "needed; name another file."
            )
        return _with_undescribed(read)

    def graph(self) -> AttributedGraph:
        """Read a flow graph, or traces as the graph of their job.

        Raises:
            DataError: If it is damaged or contradicts itself.
        """
        read = self.read()
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
    """Return the format of what lies at a place: a file, a folder, or a prefix of files.

    Raises:
        DataError: If a file is JSON or a text of an unknown kind, or cannot be unpacked. Any other
            unknown content counts as Chakra, whose reader says what is wrong with it.
    """
    path = Path(location)
    is_json = graph_suffix(path) == _JSON_SUFFIX
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

    Raises:
        UsageError: If there is no such format.
    """
    of_word = {each.word: each.write for each in FORMATS if each.content is content and each.write}
    if word not in of_word:
        raise UsageError(f"'{word}' is no format of {content.value}; name {', '.join(of_word)}.")
    return of_word[word]


def write_graph(graph: AttributedGraph, path: Path) -> None:
    """Write a graph in the format of the file's ending. Raises UsageError if there is none."""
    write = writer_of(path, Content.GRAPH)
    if write is None:
        endings = [each.ending for each in FORMATS if each.content is Content.GRAPH and each.ending]
        known = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise UsageError(f"{path}: a graph is written as {known}; name one.")
    write(path, graph)


def writer_of(path: Path, content: Content) -> Callable[..., object] | None:
    """Return what writes a format by the ending of a file's name, given the path and the thing."""
    fitting = [
        each
        for each in FORMATS
        if each.content is content and each.ending and path.name.endswith(each.ending)
    ]
    return max(fitting, key=lambda each: len(each.ending)).write if fitting else None


def read_any(
    location: str | Path, groups_file: str | Path | None = None, num_ranks: int = 1
) -> Workload:
    """Read the traces of a workload, in any format.

    Args:
        location: A file, a prefix of ``PREFIX.<rank>.et``, a folder with one such set, or a folder
            or prefix of PyTorch traces, one host trace or profile per rank.
        groups_file: JSON with communicator groups, as for ``workload.read_workload``.
        num_ranks: For an ASTRA-sim text workload, which does not say: for how many ranks.

    Raises:
        TraceError: If nothing is found, or the content is unknown, damaged or incomplete.
    """
    found = _recognized(Candidate(Path(location)))
    return found.traces(ReadOptions(groups_file, num_ranks))


def is_flow_file(path: str | Path) -> bool:
    """Return whether a path names a file of a flow graph, rather than anything with traces."""
    return Path(path).is_file() and flow_format(path) is not None


def is_forward_program(path: str | Path) -> bool:
    """Return whether a file is a forward program of layerdag."""
    return _is_forward_program(Candidate(Path(path)))


def flow_format(path: str | Path) -> Format | None:
    """Return the format of a flow graph's file, None for any other file.

    Raises:
        GraphError: If the file cannot be unpacked.
    """
    found = Candidate(Path(path), GraphError)
    graphs = (each for each in FORMATS if each.content is Content.GRAPH)
    return next((each for each in graphs if each.sniff(found)), None)


def read_flow(path: str | Path) -> AttributedGraph:
    """Read a file of a flow graph in whatever format it has.

    Raises:
        GraphError: If it is no flow graph, damaged, or contradicts itself.
    """
    kind = flow_format(path)
    if kind is None:
        known = ", ".join(each.name for each in FORMATS if each.content is Content.GRAPH)
        raise GraphError(f"{path}: is no flow graph; known are {known}.")
    return Recognized(kind, Candidate(Path(path), GraphError)).graph()


def read_graph(path: str | Path) -> AttributedGraph:
    """Read one workload (prefix, folder or file) or one flow graph.

    Raises:
        DataError: If it cannot be read, or its ranks contradict each other.
    """
    return recognize(path).graph()


def read(path: str | Path, *, compute: str = DEVICE) -> Workload | AttributedGraph:
    """Read a workload or a graph of any format, detected from the content.

    Args:
        path: A trace file of any format, a prefix of ``PREFIX.<rank>.et``, a folder with one such
            set or with PyTorch traces, a compiled program (StableHLO or HLO text), or a flow graph
            (GraphML, DOT, WfFormat, node-link JSON, layerdag's ``.json``).
        compute: For a compiled program: the device whose rates give its operations their times, one
            of ``traces.hlo.HARDWARE`` or a JSON file.

    Returns:
        A ``Workload`` for traces and programs, an ``AttributedGraph`` for a flow graph.

    Raises:
        DataError: If nothing is there, or the content is unknown, damaged or incomplete.
    """
    return recognize(path).read(ReadOptions(compute=compute))


@dataclass(frozen=True)
class Inputs:
    """What ``layerdag convert`` reads.

    Attributes:
        paths: One place of any kind, or PyTorch traces of several ranks.
        profiles: A Kineto profile for each PyTorch trace.
        options: For the reader of one place.
        split: How the operations of a compiled program become nodes.
        only_rank: Take one rank of PyTorch alone.
        replicate: Let every rank run the one trace of PyTorch.
    """

    paths: Sequence[str]
    profiles: Sequence[str] = ()
    options: ReadOptions = field(default_factory=ReadOptions)
    split: DeviceSplit = DeviceSplit.LINEAR
    only_rank: bool = False
    replicate: bool = False


def read_inputs(found: Recognized, inputs: Inputs, tell: Callable[[str], None]) -> Workload:
    """Read one place of any kind, or PyTorch traces of several ranks.

    Args:
        found: The first of the inputs.
        inputs: All of them.
        tell: Called with a line for each thing worth knowing.

    Raises:
        UsageError: If an option does not go with them.
        DataError: If they cannot be read.
    """
    first = inputs.paths[0]
    if found.content is Content.PROGRAM:
        return _compiled(inputs)
    if inputs.options.compute:
        raise UsageError(
            f"--compute is for StableHLO and HLO text, which {first} is not; leave it out."
        )
    job = _import(found, inputs)
    if job is not None:
        return _imported(job, inputs, tell)
    if inputs.only_rank or inputs.replicate:
        raise UsageError(
            f"--only-rank and --replicate are for PyTorch's traces, of which {first} is none; "
            "leave them out."
        )
    return found.traces(inputs.options)


def _compiled(inputs: Inputs) -> Workload:
    options = inputs.options
    if not options.compute or len(inputs.paths) > 1:
        raise UsageError(
            "A compiled program is converted alone and takes its times from --compute HARDWARE: "
            f"{', '.join(HARDWARE)}, or a JSON file."
        )
    hardware = Hardware.from_name(options.compute)
    program = read_program(inputs.paths[0])
    ranks = options.num_ranks if options.num_ranks != 1 else None
    return program_workload(program, hardware, split=inputs.split, ranks=ranks)


def _import(found: Recognized, inputs: Inputs) -> ImportedJob | None:
    """Import the inputs if they are PyTorch's, else return None."""
    paths = [Path(path) for path in inputs.paths]
    kinds = {pytorch_format(path) if path.is_file() else None for path in paths}
    if kinds == {PyTorchFile.KINETO} and not inputs.profiles:
        return import_ranks((), paths)
    if len(paths) > 1 or inputs.profiles or kinds == {PyTorchFile.HOST}:
        return import_ranks(paths, inputs.profiles)
    files = None if found.found.is_file else found.found.rank_files
    return None if files is None else import_ranks(files.hosts, files.devices, files.notes)


def _imported(job: ImportedJob, inputs: Inputs, tell: Callable[[str], None]) -> Workload:
    for rank, result in enumerate(job.results):
        nodes, known = f"{result.trace.num_nodes:,}", f"{100 * result.joined_fraction:.1f} %"
        found = (
            f"{result.num_host_nodes:,} host nodes became {nodes}; {known} have a measured duration"
            if result.num_host_nodes
            else f"{nodes} nodes from the profile; the operator of {known} of its kernels is known"
        )
        guessed = f"; group of {result.guessed_groups} guessed" if result.guessed_groups else ""
        tell(f"rank {rank}: {found}{guessed}{_gaps(result.trace)}")
    if inputs.only_rank:
        return _alone(job, tell)
    if inputs.replicate:
        workload = replicate_rank(job)
        tell(f"every one of {workload.num_ranks} ranks runs this trace, with groups of its own")
        return workload
    refuse_missing_ranks(job)
    return _with_undescribed(job.workload)


def _gaps(trace: Trace) -> str:
    summary = summarize_trace(trace)
    if summary.span_us is None or summary.span_us <= summary.critical_path_us:
        return ""
    on_device = (trace.integers("is_cpu_op")[0] == 0) & (trace.type_N != NodeType.METADATA)
    busy_us = int(trace.duration_us_N[on_device].sum())
    return (
        f"; measured span {summary.span_us:,} us, device busy {busy_us:,} us, critical path "
        f"{summary.critical_path_us:,} us: 'simulate --host measured' also replays the gaps "
        "between the calls of the host"
    )


def _alone(job: ImportedJob, tell: Callable[[str], None]) -> Workload:
    workload, lost = import_single_rank(job)
    tell(
        f"one rank of {lost.num_ranks}, taken alone: {lost.collectives:,} collectives and "
        f"{lost.messages:,} messages of {lost.num_bytes:,} bytes became work of their measured "
        "time; who they were with, and how long another network would take, is lost"
    )
    return workload
