"""What a file of another tool is, by its first bytes, and what to do with it.

Looked at where a file could not be read as any format that layerdag knows.
"""

import re
from collections.abc import Sequence

GRAPHS = "GraphML, DOT, WfFormat or node-link JSON"

_NEEDED = 4096
_TAR_AT = 257

_MAGIC: Sequence[tuple[bytes, str]] = (
    (b"\x28\xb5\x2f\xfd", "is packed with zstd; unpack it (zstd -d), or pack it with gzip or xz"),
    (b"BZh", "is packed with bzip2; unpack it (bunzip2), or pack it with gzip or xz"),
    (b"\x04\x22\x4d\x18", "is packed with lz4; unpack it, or pack it with gzip or xz"),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive; unpack it and name a file in it"),
    (b"SQLite format 3\x00", "is an SQLite database, as Nsight Systems exports; layerdag reads "
     "PyTorch's own profiles: export one with torch.profiler (export_chrome_trace)"),
    (b"ML\xefR", "is MLIR bytecode; write the program as text (mlir-opt, or as_text() in JAX)"),
    (b"\x89HDF\r\n\x1a\n", f"is HDF5; export its graphs as {GRAPHS}"),
    (b"PAR1", "is Parquet; of samples in parts (layerdag sample format=parquet) name the folder"),
    (b"ARROW1", f"is an Arrow file; export its graphs as {GRAPHS}"),
    (b"\x93NUMPY", f"is an array of numpy; export its graph as {GRAPHS}"),
    (b"GGUF", "holds the weights of a model (GGUF); layerdag reads traces and graphs"),
    (b"\x7fELF", "is a program for a machine; layerdag reads traces and graphs"),
    (b"\x89PNG\r\n\x1a\n", "is a picture (PNG); name the file that it was drawn from"),
    (b"%PDF", "is a PDF; name the file that it was drawn from"),
    (b"\xff\xfe", "is a text in UTF-16; save it in UTF-8"),
    (b"\xfe\xff", "is a text in UTF-16; save it in UTF-8"),
)  # fmt: skip
_ZIP = b"PK\x03\x04"
_OF_TORCH = (b"/data.pkl", b"/byteorder", b"/version", b"archive/")
_UTF_16 = re.compile(rb"(?:[\t\n\r\x20-\x7e]\x00){8}|(?:\x00[\t\n\r\x20-\x7e]){8}")

_TEXTS: Sequence[tuple[re.Pattern[bytes], str]] = tuple(
    (re.compile(pattern, re.IGNORECASE), what)
    for pattern, what in (
        (rb"(?:creator\s[^\n]*\s+)?(?:version\s[^\n]*\s+)?graph\s*\[",
         f"is GML; write it as {GRAPHS} (networkx: read_gml, then write_graphml)"),
        (rb"(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<gexf\b",
         f"is GEXF; write it as {GRAPHS} (networkx: read_gexf, then write_graphml)"),
        (rb"(?:---\n.*?\n---\s*)?(?:%%[^\n]*\n\s*)*(?:flowchart|graph)\s+(?:TB|TD|BT|LR|RL)\b",
         f"is Mermaid; write the graph as {GRAPHS}"),
        (rb"(?:---\n.*?\n---\s*)?(?:%%[^\n]*\n\s*)*(?:sequencediagram|classdiagram|statediagram)",
         f"is Mermaid; write the graph as {GRAPHS}"),
        (rb"@startuml", f"is PlantUML; write the graph as {GRAPHS}"),
        (rb"(?:strict\s+)?digraph\b", "is DOT; give its name the ending .dot"),
        (rb"(?:strict\s+)?graph\s*\w*\s*\{",
         "is an undirected graph of DOT; a DAG needs 'digraph'"),
        (rb"(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:\w+:)?graphml\b",
         "is GraphML; give its name the ending .graphml"),
        (rb"(?:<\?xml[^>]*>\s*)?(?:<!doctype[^>]*>\s*)?<(?:svg|html)\b",
         "is a picture or page; name the file that it was made from"),
        (rb"<\?xml", f"is XML of another kind; write the graph as {GRAPHS}"),
        (rb"ir_version\s*:", f"is ONNX as text; export its graph as {GRAPHS}"),
    )
)  # fmt: skip


_JSONS: Sequence[tuple[tuple[bytes, ...], str]] = (
    ((b'"devices"', b'"instances"', b'"edges"'),
     "is an InfraGraph (devices, instances and edges of a network), which is not read; 'layerdag "
     "simulate' takes the network as ASTRA-sim's network.yml"),
    ((b'"model_type"',),
     "is the description of a model (config.json); 'layerdag workload' makes traces of it"),
    ((b'"scheduling-policy"',),
     "describes a system of ASTRA-sim; give it to 'layerdag simulate' as --system"),
)  # fmt: skip


def foreign_json(data: bytes) -> str:
    """Return what JSON of another tool is, as `foreign_format`; by the keys that it holds."""
    fitting = (what for keys, what in _JSONS if all(key in data for key in keys))
    return next(fitting, "")


def foreign_format(data: bytes) -> str:
    """Return a phrase on what a file of another tool is and what to do with it, "" if unknown."""
    start = data[:_NEEDED]
    magic = next((what for magic, what in _MAGIC if start.startswith(magic)), "")
    if magic or start.startswith(_ZIP):
        return magic or _zip(data)
    return _by_pattern(start) or _text(start) or _protobuf(start)


def _by_pattern(start: bytes) -> str:
    if start[_TAR_AT : _TAR_AT + 5] == b"ustar":
        return "is a tar archive; unpack it and name a file in it, or the folder of its samples"
    if re.match(rb"\x80[\x02-\x05][\x28-\x95]", start):
        return f"is a pickle, which is not opened: it can run code; write the graph as {GRAPHS}"
    if start[4:8] == b"TFL3":
        return f"is a model of TensorFlow Lite; export its graph as {GRAPHS}"
    if re.match(rb".{8}\{\s*\"", start, re.DOTALL) and start[4:8] == b"\x00" * 4:
        return "holds the weights of a model (safetensors); layerdag reads traces and graphs"
    return "is a text in UTF-16; save it in UTF-8" if _UTF_16.match(start) else ""


def _text(start: bytes) -> str:
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((what for pattern, what in _TEXTS if pattern.match(text)), "")


def _zip(data: bytes) -> str:
    if any(name in data for name in _OF_TORCH):
        return (
            "is a file of torch.save or torch.export, which holds weights or a program; layerdag "
            "reads execution traces (ExecutionTraceObserver), profiles, StableHLO and graphs"
        )
    return "is a zip archive (torch.save writes such, too); unpack it and name a file in it"


def _protobuf(start: bytes) -> str:
    if re.match(rb"\x08[\x01-\x14](?:\x12.[\x20-\x7e]{2,}|\x1a|\x22|\x3a)", start, re.DOTALL):
        return f"looks like an ONNX model; export its graph as {GRAPHS}"
    plane = re.match(
        rb"\x0a[\x80-\xff]*[\x00-\x7f]\x08.{1,10}?\x12.(/device:|/host:)", start, re.DOTALL
    )
    if plane or b"/host:CPU" in start[:256] or b"/device:" in start[:256]:
        return (
            "looks like an XPlane of TensorFlow or JAX (.xplane.pb); write the compiled program as "
            "StableHLO or HLO text, which layerdag reads"
        )
    if start[:1] == b"\x0a" and _is_perfetto(start):
        return (
            "looks like a trace of Perfetto; export it as JSON in Chrome's format, or take "
            "PyTorch's own profile"
        )
    return ""


def _is_perfetto(start: bytes) -> bool:
    """Return whether a file is packets of Perfetto: field 1 over and over, with known fields."""
    at, packets = 0, 0
    while at + 1 < len(start) and start[at] == 0x0A:
        size, shift, at = 0, 0, at + 1
        while at < len(start) and start[at] & 0x80:
            size, shift, at = size | (start[at] & 0x7F) << shift, shift + 7, at + 1
        if at >= len(start) or shift > 28:
            return False
        size |= start[at] << shift
        at += 1 + size
        packets += 1
    return packets > 0 and at >= len(start)
