"""Public operator names, scrubbing of private words, and the search for leaked strings.

PyTorch's own operators, data types and kinds of device are public: the only strings of a trace that
may enter a schema, and so a sample. Scopes, files, kernels, custom operators and whatever else a
trace may name become ``<other>``.

Scrubbing keeps the graph, node types, public operator names, sizes, operation counts, durations,
collectives, groups and messages. It removes all other strings, attributes that are not well known,
inputs and outputs, start times and file metadata, and renumbers ids, groups, tags, streams and
priorities. This lowers the risk of sharing; it is no proof of anonymity, since structure and sizes
remain.

The strings that scrubbing removes are private words. Every file of a folder to be shared is
searched for them: traces for strings, other files for words of the text.
"""

import functools
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np

from layerdag.errors import DataError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.hardware.collectives import COMMUNICATION_OPERATORS, CollectiveType
from layerdag.hardware.dtypes import SPELLINGS, UNKNOWN_DTYPE
from layerdag.runtime.notes import Note, NoteKind, merge_notes
from layerdag.runtime.reading import available_memory, read_whole
from layerdag.traces.analysis import WORLD_NAMES, program_order
from layerdag.traces.builder import NodeSpec, attribute_at, build_trace
from layerdag.traces.chakra.files import decode_trace
from layerdag.traces.trace import OPERATOR, Attribute, NodeType, Trace, Workload

# Attributes whose numbers are part of the workload; strings among them are checked one by one.
_NUMBERS = (
    *("is_cpu_op", "num_ops", "tensor_size", "duration_ns"),
    *("comm_type", "comm_size", "comm_src", "comm_dst"),
)
_NAMES = frozenset(
    (*_NUMBERS, "pg_name", "comm_tag", "stream", "comm_priority", "involved_dim", "device",
     "dtype", OPERATOR)
)  # fmt: skip
# What captured and derived steps say beside Chakra's attributes; names of modules are looked at.
_OF_CAPTURES = frozenset(
    {"phase", "forward", "backward", "optimizer", "module", "batch", "host_calls"}
)
# Names that programs give to their units, whatever the model called them.
_UNIT = re.compile(r"(units|blocks)\.\d{1,6}")
_DEVICE = re.compile(r"(cpu|cuda|hip|xpu|mtia|mps|meta)(:\d{1,4})?")
_DTYPES = frozenset({UNKNOWN_DTYPE, *SPELLINGS})
_SOURCE = "<scrubbed>"
_CALL_NUMBER = re.compile(r"\(\d+\)$")


@functools.cache
def public_operators() -> frozenset[str]:
    """Return the operator names that PyTorch registers itself, and those of communication."""
    text = resources.files("layerdag.codec").joinpath("public_operators.txt").read_text("utf-8")
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    known = {operator.name for operator in COMMUNICATION_OPERATORS.values()}
    return frozenset({*lines, *COMMUNICATION_OPERATORS, *known})


def scrub(workload: Workload) -> tuple[Workload, Counter[str]]:
    """Return the workload without what may not be shared, and counts of what was removed.

    Keys are "replaced names", "kept names", "io", "start times", "metadata", "nodes", "groups",
    "tags", "streams", "priorities" and "attribute NAME" for each name of an attribute. Raises
    TraceError if the dependencies of a trace are faulty.
    """
    groups = {name: str(at + 1) for at, name in enumerate(workload.groups)}
    levels = {v for trace in workload.traces for v in _values(trace, "comm_priority")}
    scrubber = _Scrubber(groups, {value: index for index, value in enumerate(sorted(levels))})
    done: dict[int, Trace] = {}
    for trace in workload.traces:
        if id(trace) not in done:
            done[id(trace)] = scrubber.trace(trace)
    clean = Workload(
        traces=tuple(done[id(trace)] for trace in workload.traces),
        groups={scrubber.groups[name]: ranks for name, ranks in workload.groups.items()},
        source=_SOURCE,
    )
    scrubber.removed.update(
        groups=len(scrubber.groups),
        tags=len(scrubber.tags),
        streams=len(scrubber.streams),
        priorities=len(scrubber.priorities),
    )
    return clean, scrubber.removed


def _values(trace: Trace, name: str) -> Iterator[int]:
    codes = [code for code, text in enumerate(trace.strings) if text == name]
    for row in np.flatnonzero(np.isin(trace.attributes.name_A, codes)).tolist():
        value = attribute_at(trace.attributes, row, trace.strings).value
        if type(value) is int:
            yield value


class _Scrubber:
    def __init__(self, groups: dict[str, str], priorities: Mapping[int, int]) -> None:
        self.groups = groups
        self.priorities = priorities
        self.tags: dict[int, int] = {}
        self.streams: dict[int, int] = {}
        self.removed: Counter[str] = Counter()

    def trace(self, trace: Trace) -> Trace:
        """Return a scrubbed trace; nodes come in the order in which the rank issues them."""
        order = program_order(trace).tolist()
        new_id = {int(trace.id_N[row]): at for at, row in enumerate(order)}
        stated = (a for a in trace.metadata if a.name == "dtype")
        metadata = tuple(a for a in stated if self._public_value(a) is not None)
        self.removed["metadata"] += len(trace.metadata) - len(metadata)
        self.removed["io"] += int((trace.io_N6 >= 0).sum())
        self.removed["start times"] += int((trace.start_us_N > 0).sum())
        nodes = [
            NodeSpec(
                id=at,
                name=self._name(trace, row),
                type=int(trace.type_N[row]),
                data_deps=tuple(sorted(new_id[d] for d in trace.data_deps.of(row).tolist())),
                ctrl_deps=tuple(sorted(new_id[d] for d in trace.ctrl_deps.of(row).tolist())),
                duration_us=int(trace.duration_us_N[row]),
                attributes=self._public_attributes(trace, row),
            )
            for at, row in enumerate(order)
        ]
        self.removed["nodes"] += len(nodes)
        return build_trace(nodes, metadata=metadata, source=_SOURCE)

    def _name(self, trace: Trace, row: int) -> str:
        name = "" if trace.name_N[row] < 0 else trace.strings[trace.name_N[row]]
        word = public_name(_CALL_NUMBER.sub("", name))
        is_public = word != OTHER
        self.removed["kept names" if is_public else "replaced names"] += 1
        return word if is_public else NodeType(int(trace.type_N[row])).name

    def _public_attributes(self, trace: Trace, row: int) -> tuple[Attribute, ...]:
        table = trace.attributes
        kept = []
        for at in range(int(table.ptr_N1[row]), int(table.ptr_N1[row + 1])):
            attribute = attribute_at(table, at, trace.strings)
            value = self._public_value(attribute)
            if value is None:
                self.removed[f"attribute {attribute.name}"] += 1
            else:
                kept.append(Attribute(attribute.name, attribute.wire, value))
        return tuple(kept)

    def _public_value(self, attribute: Attribute) -> object | None:
        """Return the value that may stay, None if none may."""
        name, value = attribute.name, attribute.value
        if name == "pg_name":
            return self._group(value)
        if name == "comm_tag" and type(value) is int:
            return self.tags.setdefault(value, len(self.tags))
        if name == "stream" and type(value) is int:
            return self.streams.setdefault(value, len(self.streams))
        if name == "comm_priority" and type(value) is int:
            return self.priorities[value]
        if name in _NUMBERS and isinstance(value, int | float):
            return value
        if name == "involved_dim" and isinstance(value, tuple) and set(map(type, value)) <= {bool}:
            return value
        if name == "device" and isinstance(value, str) and _DEVICE.fullmatch(value):
            return value
        if name == "dtype" and isinstance(value, str) and value in _DTYPES:
            return value
        return None

    def _group(self, value: object) -> object | None:
        """Return the new name of a communicator group; an integer stays one, all else goes."""
        if type(value) not in (int, str):
            return None
        old = str(value)
        new = old if old in WORLD_NAMES else self.groups.setdefault(old, str(len(self.groups) + 1))
        return int(new) if isinstance(value, int) else new


OTHER = "<other>"
DEVICES = frozenset(
    {
        "cpu", "cuda", "hip", "hpu", "ipu", "meta", "mps", "mtia", "npu", "privateuseone", "tpu",
        "vulkan", "xla", "xpu",
    }
)  # fmt: skip

_DTYPE = re.compile(
    r"bool|unknown|bfloat16|float(16|32|64)|q?u?int(4|8|16|32|64)|complex(32|64|128)"
    r"|float8_e[0-9]m[0-9](fn|fnuz)?|float4_e2m1fn_x2"
)


# The names that the importer gives to communication of any backend
# (traces/pytorch/operators.py).
COLLECTIVE_NAMES = {kind.name: f"c10d::{kind.name.lower()}" for kind in CollectiveType}
SEND, RECEIVE = "c10d::send", "c10d::recv"
_COMMUNICATION = frozenset({*COLLECTIVE_NAMES.values(), SEND, RECEIVE})


PublicWords = Sequence[str] | Literal["all"]
"""Words that a user allows beside the public ones; "all" for every word."""
ALL_WORDS = "all"
MAX_OTHER = 0.5
"""Largest share of nodes without a known operator that a data set may have."""
_STAGE_KINDS = frozenset(("A", "B", "C", "CUSTOM", "E", "E2", "I", "M", "R", "SLICE", "T", "W"))

# Names of ``layerdag workload``: product, what of the model, its layer, pass and micro-batch, part
# of the backward pass, token (workloads/transformer/layers.py, workloads/dlrm.py). A word that is
# made like such a name and is none stays private, however public its parts are.
_OF_MODELS = (
    ("absorb", "act", "attention", "compress", "condition", "down", "embedding", "kv_up", "logits",
     "look_up", "loss", "mix", "modulation", "modulation.head", "norm", "norm1", "norm2",
     "norm_latent", "out", "patches", "q_up", "qkv", "router", "sample", "shared_act",
     "shared_down", "shared_up", "up", "update_rows", "value_up", "bottom", "cross", "top",
     "act.bottom", "act.cross", "act.top")
)  # fmt: skip
_STEP_NAME = re.compile(
    r"(?P<what>(?:mm\.)?(?:"
    + "|".join(map(re.escape, sorted(_OF_MODELS, key=len, reverse=True)))
    + r"))\d*(?:\.\d+)?\.(?P<turn>[FB])\d*(?:\.(?P<part>dx|dw|again))?(?:\.T\d+)?"
    r"|(?P<optimizer>adam)"
)
_REGION = "region"
"""First word of the names that computation of a compiled program has (``traces/hlo``)."""
_DIGITS = "0123456789"
_LONE_NUMBER = re.compile(r"[^A-Za-z0-9]?(?<![A-Za-z0-9])[0-9]+(?![A-Za-z0-9])")


def public_name(name: str) -> str:
    """Return the operator without its overload if it is a public one, else ``<other>``.

    An operator of ``layerdag workload`` loses its layer, micro-batch and token: "mm.qkv.3.B1.dx" is
    "mm.qkv.B.dx". So does a region of a compiled program.
    """
    operator = name.partition(".")[0]
    if operator in _COMMUNICATION or operator in public_operators():
        return operator
    if name.rstrip(_DIGITS) == f"{_REGION} ":
        return _REGION
    found = _STEP_NAME.fullmatch(name)
    return ".".join(part for part in found.groups() if part) if found else OTHER


def operators(trace: Trace, allowed: PublicWords = ()) -> list[str]:
    """Return the operator of each node, ``<other>`` where it is not public.

    Communication that has a name of its own is called by what it does ("c10d::all_reduce"). Of
    computation the name counts if it is public or allowed, then what ``op_type`` states. Allowed
    are names as in the trace, or as ``operator_name`` shortens them; "all" keeps every one.
    """
    words = frozenset() if allowed == ALL_WORDS else frozenset(allowed)
    collective_N, _ = trace.integers("comm_type")
    stated_N, _ = trace.texts(OPERATOR)
    columns = (trace.names(), stated_N, trace.type_N.tolist(), collective_N.tolist())
    found: dict[tuple[str, str, int, int], str] = {}
    for key in zip(*columns, strict=True):
        if key not in found:
            name, stated, kind, collective = key
            word = public_name(name)
            if word == OTHER and kind in _EXCHANGES:
                word = _communication_name(kind, collective)
            elif word == OTHER:
                names = (name, name.partition(".")[0], operator_name(name))
                every = allowed == ALL_WORDS
                word = names[-1] if every else next((w for w in names if w in words), OTHER)
                word = word or OTHER
            if word == OTHER and stated in _STAGE_KINDS:
                word = stated
            found[key] = word
    return [found[key] for key in zip(*columns, strict=True)]


_EXCHANGES = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)


def operator_name(name: str) -> str:
    """Return the name of an operator without the numbers between its words.

    "triton_poi_fused_add_3" is "triton_poi_fused_add", "mb0.transformer.7.mha.qkv@1_COMP" is
    "mb0.transformer.mha.qkv_COMP".
    """
    return _LONE_NUMBER.sub("", _CALL_NUMBER.sub("", name)).strip() or name


def require_operators(graphs: Iterable[AttributedGraph], source: str) -> None:
    """Refuse jobs of whose nodes more than half are ``<other>``: nothing is to be learned there.

    Raises DataError if it is more than half; it names the most frequent words, and the way out.
    """
    nodes = unknown = 0
    noted: list[Note] = []
    for graph in graphs:
        nodes += graph.num_nodes
        unknown += graph.categories["op"].count(OTHER)
        noted += (note for note in graph.notes if note.kind == NoteKind.OPERATOR)
    if unknown > MAX_OTHER * nodes:
        often = sorted(merge_notes(noted), key=lambda note: -note.count)[:3]
        names = ", ".join(f"'{note.word}'" for note in often) or "nodes without a name"
        raise DataError(
            f"{source}: {unknown:,} of {nodes:,} nodes have operators that are not public, most "
            f"often {names}, and would all become '{OTHER}'. To keep their names, list them in "
            "'public_words', or set public_words=all."
        )


def _communication_name(kind: int, collective: int) -> str:
    if kind != NodeType.COMM_COLL:
        return SEND if kind == NodeType.COMM_SEND else RECEIVE
    known = collective in list(CollectiveType) and collective != CollectiveType.INVALID
    return COLLECTIVE_NAMES[CollectiveType(collective).name] if known else OTHER


def is_communication(name: str) -> bool:
    """Return whether a public name is that of a collective or a message."""
    return name.startswith(("c10d::", "_c10d_functional::"))


def public_dtype(word: str) -> str:
    """Return ``word`` if it is a data type such as "float32", else ``<other>``."""
    return word if _DTYPE.fullmatch(word) else OTHER


def public_device(word: str) -> str:
    """Return the kind of device without its index ("cuda:0" is "cuda"), else ``<other>``."""
    kind = word.partition(":")[0].lower()
    return kind if kind in DEVICES else OTHER


LEAST_LETTERS = 4
MAX_PARTS = 8
"""Parts of a path or name that are looked at together."""
OWN_NAMES = frozenset(
    ("sample", "samples", "manifest", "report", "release", "verdict", "croissant", "json", "html",
     "graphml", "trace", "traces", "rank", "data", "labels", "label")
)  # fmt: skip
"""Words in names of files that say nothing, private traces may use them or not."""
_TOKEN = re.compile(r"[\w./:+@~-]{4,}")
_SEPARATOR = re.compile(r"([./:+@~-])")
# A plain word or a short number cannot be told from prose; in traces and as a value of a graph it
# counts all the same.
_PLAIN = re.compile(r"[a-z]{1,11}|[A-Z]?[a-z]{1,10}|(?!\d{9})[\d.,:+-]+")
_GRAPH = re.compile(r".*\.(graphml|xml|json)(\.gz|\.xz)?")
_VALUE = re.compile(r'>([^<>]{4,})<|"([^"\n]{4,})"\s*[,\]}]')
_TRACE = re.compile(r".*\.et(\.gz|\.xz)?")


@dataclass(frozen=True)
class LeakedString:
    """A private word, and the path of the file below the folder that holds it."""

    file: str
    word: str

    def sentence(self) -> str:
        """Return the finding as a sentence."""
        return f"{self.file}: holds '{self.word}', a word of the private traces."


def private_strings(workload: Workload) -> set[str]:
    """Return the strings of a workload that anonymizing it takes out.

    Raises TraceError if the dependencies of a trace are faulty.
    """
    clean, _ = scrub(workload)
    removed = _strings(workload.traces) - _strings(clean.traces)
    removed -= _NAMES | _DTYPES | _OF_CAPTURES
    removed = {word for word in removed if not _UNIT.fullmatch(word)}
    return {word for word in removed if len(word) >= LEAST_LETTERS and public_name(word) != word}


def find_leaked_strings(folder: str | Path, private: Iterable[str]) -> Iterator[LeakedString]:
    """Yield each private word that a file below ``folder`` holds, once for each file.

    A trace may moreover hold no word that anonymizing it would take out, private or not.
    """
    folder = Path(folder)
    wanted = {word for word in private if len(word) >= LEAST_LETTERS}
    phrases = sorted(
        word
        for word in wanted
        if not _TOKEN.fullmatch(word) and sum(letter.isalpha() for letter in word) >= 6
    )
    in_prose = {word for word in wanted if not _PLAIN.fullmatch(word)}
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        found = set(_tokens(name)) & (in_prose | (wanted - OWN_NAMES))
        in_trace = _in_trace(path, wanted) if _TRACE.fullmatch(path.name) else None
        if in_trace is not None:
            found |= in_trace
        else:
            content = read_whole(path, error=DataError) if path.stat().st_size else b""
            for text in _texts(content, path):
                found |= set(_tokens(text)) & in_prose
                found |= {word for word in phrases if word in text}
                if _GRAPH.fullmatch(path.name):
                    values = {value for match in _VALUE.findall(text) for value in match}
                    found |= {
                        word for word in values & wanted if word in in_prose or not word.isdigit()
                    }
        yield from (LeakedString(name, word) for word in sorted(found))


_ARCHIVE = b"PK\x03\x04"


def _texts(content: bytes, path: Path) -> Iterator[str]:
    """Yield a file as text; of a zip archive, such as numpy's, each member, too.

    Raises DataError if the members are larger than memory allows, damaged or encrypted.
    """
    yield content.decode("utf-8", errors="replace")
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > available_memory() // 2:
                raise DataError(f"{path}: unpacks to {size:,} bytes, too many to be searched.")
            for name in archive.namelist():
                yield f"{name} {archive.read(name).decode('utf-8', errors='replace')}"
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        if not content.startswith(_ARCHIVE):
            return  # no archive, but a file that happens to end like one
        raise DataError(
            f"{path}: is an archive that cannot be searched for private words ({error}); take it "
            "out of the folder, or unpack it there."
        ) from error


def _in_trace(path: Path, wanted: set[str]) -> set[str] | None:
    """Return the strings of a trace that are private, or that anonymizing takes out.

    None if it cannot be read as a trace.
    """
    try:
        trace = decode_trace(read_whole(path, error=DataError), str(path))
    except DataError:
        return None
    held = _strings([trace])
    return (held & wanted) | private_strings(Workload((trace,)))


def _strings(traces: Iterable[Trace]) -> set[str]:
    found: set[str] = set()
    for trace in {id(trace): trace for trace in traces}.values():
        found.update(trace.strings)
        found.add(trace.version)
        for attribute in trace.metadata:
            found.add(attribute.name)
            if isinstance(attribute.value, str):
                found.add(attribute.value)
    return found - {"", OTHER}


def _tokens(text: str) -> Iterator[str]:
    for token in {match[0] for match in _TOKEN.finditer(text)}:
        pieces = _SEPARATOR.split(token)  # parts at even places, separators at odd ones
        for begin in range(0, len(pieces), 2):
            last = min(begin + 2 * MAX_PARTS, len(pieces))
            for end in range(begin + 1, last + 1, 2):
                yield "".join(pieces[begin:end])
        yield token
