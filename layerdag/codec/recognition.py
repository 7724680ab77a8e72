"""By what files are recognized: the ending of their names and what they begin with.

Each function that begins with ``is_`` or ``are_`` says whether a path has a format;
``formats.FORMATS`` asks them in its order.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from layerdag.errors import DataError, TraceError
from layerdag.graph.formats.program_json import FORMAT as PROGRAM_FORMAT
from layerdag.runtime.reading import open_unpacked, read_whole
from layerdag.traces.astra_text import PARALLELISMS
from layerdag.traces.chakra.json_forms import FORMAT
from layerdag.traces.chakra.workload import holds_rank_files
from layerdag.traces.hlo.parser import begins_program
from layerdag.traces.pytorch.ranks import PyTorchFile, RankFiles, find_rank_files, pytorch_kind

JSON_SUFFIX = ".json"
RUN = "samples.json"
"""The file that a folder of samples in parts has."""
_START = 1 << 20
_KEYS = 1 << 16  # bytes in which the keys of a flow graph's JSON must stand
_WORDS = 1 << 12
_ARCHIVES = (".gz", ".xz")


def suffix_of(path: str | Path) -> str:
    """Return the ending of a file before that of an archive, in lower case."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    while suffixes and suffixes[-1] in _ARCHIVES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def stem_of(path: Path) -> str:
    """Return the name of a file without its ending and that of an archive."""
    suffix = suffix_of(path)
    return path.name[: path.name.lower().rindex(suffix)] if suffix else path.name


@dataclass(frozen=True, eq=False)
class Candidate:
    """A file, folder or prefix of files as formats recognize it; files are opened when needed.

    ``error`` is raised if the file cannot be unpacked; without ``whole`` only its first megabyte is
    examined.
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
        return suffix_of(self.path)

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


_LINKS = re.compile(rb'"(links|edges)"\s*:\s*\[|"elements"\s*:\s*[\[{]')
_LISTED = re.compile(rb'"(nodes|elements)"\s*:\s*[\[{]')
_ENDS = re.compile(rb'"(source|from)"\s*:.{0,200}?"(target|to)"\s*:', re.DOTALL)
_OF_TRACES = (b'"traceEvents"', b'"workload_graph"', b'"schema"')


def is_own_graph(found: Candidate) -> bool:
    """A graph as layerdag writes it."""
    named = found.suffix == JSON_SUFFIX and found.start[:1] == b"{"
    return named and b'"layerdag-graph-' in found.start[:200]


def _has_keys_of_graph(found: Candidate, *keys: bytes) -> bool:
    if found.suffix != JSON_SUFFIX or found.start[:1] != b"{":
        return False
    if any(key in found.start for key in _OF_TRACES) or b'"layerdag-trace' in found.start[:200]:
        return False
    return all(key in found.start for key in keys)


def is_forward_program(found: Candidate) -> bool:
    """A forward program."""
    named = found.suffix == JSON_SUFFIX and found.start[:1] == b"{"
    return named and PROGRAM_FORMAT.encode() in found.start[:200]


def is_wfformat(found: Candidate) -> bool:
    """A workflow."""
    return _has_keys_of_graph(found, b'"workflow"') and any(
        key in found.start for key in (b'"schemaVersion"', b'"specification"')
    )


def is_node_link(found: Candidate) -> bool:
    """A graph in a JSON of nodes and edges."""
    if not _has_keys_of_graph(found):
        return False
    if b'"nodes"' in found.start and (b'"directed"' in found.start or _LINKS.search(found.start)):
        return True
    return bool(_LISTED.search(found.start) and _ENDS.search(found.start))


_FORMAT_OF_TRACES = re.compile(rb'"format"\s*:\s*"' + re.escape(FORMAT.encode()))


def is_trace_json(found: Candidate) -> bool:
    """Traces as layerdag writes them."""
    return found.is_json and _FORMAT_OF_TRACES.search(found.start[:_WORDS]) is not None


def is_feeder_json(found: Candidate) -> bool:
    """JSON of Chakra's feeder v1."""
    return found.is_json and b'"workload_graph"' in found.data


def is_kineto(found: Candidate) -> bool:
    """A profile of PyTorch."""
    return found.is_json and pytorch_kind(found.data) is PyTorchFile.KINETO


def is_host_trace(found: Candidate) -> bool:
    """An execution trace of PyTorch."""
    return found.is_json and pytorch_kind(found.data) is PyTorchFile.HOST


_TEXT_START = re.compile(rb"\s*(" + "|".join(PARALLELISMS).encode() + rb")\b[^\n]*\n\s*\d+\s*\n")


def is_text_workload(found: Candidate) -> bool:
    """A workload of ASTRA-sim 1.0."""
    return _TEXT_START.match(found.data) is not None


def is_compiled_program(found: Candidate) -> bool:
    """HLO or StableHLO."""
    return begins_program(found.data)


def is_parts(found: Candidate) -> bool:
    """A folder of samples in parts."""
    return (found.path / RUN).is_file()


def are_pytorch(found: Candidate) -> bool:
    """The traces of ranks."""
    return found.rank_files is not None


def is_chakra(found: Candidate) -> bool:
    """Neither JSON nor a text."""
    return not (found.is_json or found.is_text)
