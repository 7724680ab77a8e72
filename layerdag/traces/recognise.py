"""Open whatever a user has: the format is told from the content, never from the name."""

import re
from enum import Enum
from pathlib import Path

from layerdag.errors import TraceError
from layerdag.traces.astra_step import text_to_workload
from layerdag.traces.astra_text import PARALLELISMS, parse_text
from layerdag.traces.chakra import decode_trace
from layerdag.traces.json_feeder import decode_feeder_json
from layerdag.traces.trace import Workload
from layerdag.traces.trace_json import FORMAT, decode_trace_json
from layerdag.traces.unpack import read_unpacked
from layerdag.traces.workload import read_groups, read_workload


class Format(Enum):
    """The formats that ``read_any`` tells apart."""

    CHAKRA = "Chakra .et"
    FEEDER_JSON = "Chakra JSON of feeder v1"
    LAYERDAG_JSON = "JSON of layerdag"
    ASTRA_TEXT = "ASTRA-sim text workload"
    PYTORCH_HOST = "PyTorch execution trace"
    KINETO = "Kineto profile"


# Keys that a JSON format must have, in the order in which they are looked for.
_JSON_KEYS = (
    (Format.FEEDER_JSON, (b'"workload_graph"',)),
    (Format.KINETO, (b'"traceEvents"',)),
    (Format.PYTORCH_HOST, (b'"schema"', b'"nodes"')),
)
_TEXT_START = re.compile(rb"\s*(" + "|".join(PARALLELISMS).encode() + rb")\b[^\n]*\n\s*\d+\s*\n")


def format_of(data: bytes, source: str) -> Format:
    """Return the format of an unpacked file.

    Raises:
        TraceError: If the file is JSON or text of an unknown kind. Other unknown content counts as
            Chakra, whose reader says what is wrong with it.
    """
    start = data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] in (b"{", b"["):
        if f'"format": "{FORMAT}"'.encode() in start:
            return Format.LAYERDAG_JSON
        for kind, keys in _JSON_KEYS:
            if all(key in data for key in keys):
                return kind
        raise TraceError(
            f"{source}: is JSON, but neither a PyTorch execution trace, a Kineto profile, nor a "
            "Chakra JSON; name another file."
        )
    if _TEXT_START.match(data):
        return Format.ASTRA_TEXT
    if len(start) > 16 and all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in start):
        raise TraceError(
            f"{source}: is a text, but no workload of ASTRA-sim (parallelism on line 1, number of "
            "layers on line 2); name another file."
        )
    return Format.CHAKRA


def read_any(
    location: str | Path, groups_file: str | Path | None = None, num_ranks: int = 1
) -> Workload:
    """Read a workload of any format that layerdag knows.

    Args:
        location: A file of any ``Format``, a prefix of ``PREFIX.<rank>.et``, or a folder with one
            such set.
        groups_file: JSON with communicator groups, as for ``workload.read_workload``.
        num_ranks: For an ASTRA-sim text workload, which does not say: for how many ranks.

    Raises:
        TraceError: If nothing is found, or the content is unknown, damaged or incomplete.
    """
    location = Path(location)
    if not location.is_file():
        return read_workload(location, groups_file)
    data = read_unpacked(location)
    source = str(location)
    workload = _read_file(format_of(data, source), data, location, num_ranks)
    if groups_file:
        groups = read_groups(groups_file, workload.num_ranks)
        workload = Workload(workload.traces, groups, workload.source)
    return workload


def _read_file(kind: Format, data: bytes, path: Path, num_ranks: int) -> Workload:
    """Read one file of a known format."""
    source = str(path)
    if kind is Format.CHAKRA:
        return Workload((decode_trace(data, source),), {}, source)
    if kind is Format.FEEDER_JSON:
        return Workload((decode_feeder_json(data, source),), {}, source)
    if kind is Format.LAYERDAG_JSON:
        return decode_trace_json(data, source)
    if kind is Format.ASTRA_TEXT:
        return text_to_workload(parse_text(data, source), num_ranks, source)
    return _import_pytorch(kind, path)


def _import_pytorch(kind: Format, path: Path) -> Workload:
    """Import a host trace or a profile; `pytorch.import_pytorch` also takes both together."""
    from layerdag.traces.pytorch import import_pytorch

    result = import_pytorch(None, path) if kind is Format.KINETO else import_pytorch(path)
    return Workload((result.trace,), result.groups, str(path))
