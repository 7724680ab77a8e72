"""Chakra ``.et`` files: every schema version is read, schema 1.0.0 is written.

A file is a sequence of length-prefixed messages: one GlobalMetadata, then one Node each. The
schema versions look as follows (mlcommons/chakra, ``et_def.proto`` over time):

======================  =======================  =============================================
schema version          first message            a Node has
======================  =======================  =============================================
0.0.1 (2023-06)         Node                     numbers in fields 5 to 7 and from 12 on
0.0.2 (2023-07)         Node                     strings in fields 5 to 10, attributes in 11
0.0.3 (2023-08)         GlobalMetadata           strings in fields 5 to 10, attributes in 11
0.0.4 = 1.0.0           GlobalMetadata           packed ids in 4 and 5, attributes in 10
======================  =======================  =============================================

The first files of 0.0.4 held the metadata attributes in field 1, before the version took it; that
is read, too.
"""

from pathlib import Path

from layerdag._runtime import read_whole, write_bytes
from layerdag.errors import TraceError
from layerdag.traces import Attribute, Trace
from layerdag.traces.chakra._legacy import decode_legacy
from layerdag.traces.chakra._metadata import decode_metadata, encode_metadata
from layerdag.traces.chakra._protobuf import Cursor, varint
from layerdag.traces.chakra._schema_version import CURRENT, detect_schema_version
from layerdag.traces.chakra._wire import scan_nodes, write_nodes

VERSIONS = ("", "0.0.4", "1.0.0")
"""Values of ``GlobalMetadata.version`` that share the wire format of schema 1.0.0."""


def read_trace(path: str | Path) -> Trace:
    """Read one Chakra trace of any schema version, plain, gzip or xz.

    Only the encoding is checked here. Dangling and cyclic dependencies and double ids are kept as
    they are, so that a faulty trace can be looked at; ``edges.dependency_edges`` finds them.

    Raises:
        TraceError: If the file is missing, empty, cut off, damaged, or of an unknown version;
            names the file, and the node and byte where there is one.
    """
    return decode_trace(read_whole(path, error=TraceError), str(path))


def decode_trace(data: bytes, source: str = "<memory>") -> Trace:
    """Read a Chakra trace from the bytes of a plain file; see ``read_trace``."""
    try:
        return _decode_current(data, source)
    except TraceError:
        # Old files are rare, and telling schema versions apart costs more than a small file's scan.
        schema_version = detect_schema_version(data, source)
        if schema_version == CURRENT:
            raise
    return decode_legacy(data, schema_version, source)


def _decode_current(data: bytes, source: str) -> Trace:
    """Read a trace of schema 0.0.4 = 1.0.0."""
    version, metadata, start = _head(data, source)
    nodes = scan_nodes(data, start, source)
    return Trace(**vars(nodes), version=version, metadata=metadata, source=source)


def _head(data: bytes, source: str) -> tuple[str, tuple[Attribute, ...], int]:
    """Return version and attributes of the GlobalMetadata, and where the first node starts."""
    try:
        prefix = Cursor(data[:10])
        size, start = prefix.varint(), prefix.position
        if start + size > len(data):
            raise TraceError("its first message is cut off")
        version, metadata = decode_metadata(data[start : start + size])
    except TraceError as error:
        raise TraceError(
            f"{source}: does not begin with Chakra metadata ({error}); the file is damaged or no "
            "Chakra trace."
        ) from None
    if version not in VERSIONS:
        known = ", ".join(version for version in VERSIONS if version)
        raise TraceError(
            f"{source}: has Chakra version '{version[:40]}'; known are {known}. Convert it with "
            "the tool that wrote it."
        )
    return version, metadata, start + size


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write ``trace`` as a plain ``.et`` of schema 1.0.0, whole or not at all.

    Every field and attribute is kept with its wire type, so that reading the file gives the same
    trace again. Nothing is corrected; ``workload.write_workload`` does that.

    Raises:
        TraceError: If the columns of the trace contradict each other, or a node exceeds 2 GiB.
    """
    write_bytes(path, encode_trace(trace))


def encode_trace(trace: Trace) -> bytes:
    """Return the bytes of a plain ``.et`` of schema 1.0.0; see ``write_trace``."""
    metadata = encode_metadata(trace.version, trace.metadata)
    return write_nodes(trace, varint(len(metadata)) + metadata)
