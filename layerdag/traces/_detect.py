"""Detection of a file's format, by its content and never by its name."""

import re
from enum import Enum
from pathlib import Path

from layerdag._runtime import open_unpacked
from layerdag.errors import TraceError
from layerdag.traces.astra import PARALLELISMS
from layerdag.traces.chakra import FORMAT


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
