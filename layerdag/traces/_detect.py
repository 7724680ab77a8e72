"""Read any format: it is detected from the content of a file, never from its name."""

import re
from enum import Enum
from pathlib import Path

from layerdag._runtime import open_unpacked, read_whole, require_parsable
from layerdag.errors import TraceError
from layerdag.traces._trace import Workload
from layerdag.traces._workload import holds_rank_files, read_groups, read_workload
from layerdag.traces.astra import PARALLELISMS, parse_text, text_to_workload
from layerdag.traces.chakra import FORMAT, decode_feeder_json, decode_trace, decode_trace_json


class Format(Enum):
    """The formats that ``read_any`` detects."""

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
_START = 1 << 20
"""Bytes in which the keys of a PyTorch file must stand."""

_TEXT_START = re.compile(rb"\s*(" + "|".join(PARALLELISMS).encode() + rb")\b[^\n]*\n\s*\d+\s*\n")


def detect_format(data: bytes, source: str) -> Format:
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


def pytorch_format(path: str | Path) -> Format | None:
    """Return the format of a file that PyTorch wrote, None for any other; only its start is read.

    Raises:
        TraceError: If the file is missing or a damaged archive.
    """
    with open_unpacked(path, TraceError) as stream:
        start = stream.read_full(_START)
    if start[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] != b"{":
        return None
    for kind, keys in _JSON_KEYS:
        if all(key in start for key in keys):
            return kind if kind in (Format.KINETO, Format.PYTORCH_HOST) else None
    return None


def read_any(
    location: str | Path, groups_file: str | Path | None = None, num_ranks: int = 1
) -> Workload:
    """Read a workload of any supported format.

    Args:
        location: A file of any ``Format``, a prefix of ``PREFIX.<rank>.et``, a folder with one
            such set, or a folder or prefix of PyTorch traces, one host trace or profile per rank.
        groups_file: JSON with communicator groups, as for ``workload.read_workload``.
        num_ranks: For an ASTRA-sim text workload, which does not say: for how many ranks.

    Raises:
        TraceError: If nothing is found, or the content is unknown, damaged or incomplete.
    """
    location = Path(location)
    if not location.is_file():
        job = None if holds_rank_files(location) else _import_job(location)
        return read_workload(location, groups_file) if job is None else job
    workload = _read_file(location, num_ranks)
    if groups_file:
        groups = read_groups(groups_file, workload.num_ranks)
        workload = Workload(workload.traces, groups, workload.source)
    return workload


def _read_file(path: Path, num_ranks: int) -> Workload:
    """Read one file of any format; what PyTorch wrote is never held as a whole."""
    written_by_pytorch = pytorch_format(path)
    if written_by_pytorch is not None:
        return _import_pytorch(written_by_pytorch, path)
    data, source = read_whole(path, error=TraceError), str(path)
    kind = detect_format(data, source)
    if kind is Format.CHAKRA:
        return Workload((decode_trace(data, source),), {}, source)
    if kind in (Format.FEEDER_JSON, Format.LAYERDAG_JSON, Format.ASTRA_TEXT):
        require_parsable(data, source, TraceError)
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


def _import_job(location: Path) -> Workload | None:
    """Import a folder or prefix of PyTorch traces; None if it has none."""
    from layerdag.traces.pytorch import find_rank_files, import_ranks, refuse_missing_ranks

    files = find_rank_files(location)
    if files is None:
        return None
    job = import_ranks(files.hosts, files.devices)
    refuse_missing_ranks(job)
    return job.workload
