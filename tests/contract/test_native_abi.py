"""Structs and enums that Python and C both write down must agree, field by field."""

import ctypes
import re

import pytest

from layerdag.simulator import event_loop as _event_loop
from layerdag.simulator.collectives import Algorithm, PhaseType, QueueChoice
from layerdag.simulator.lowering import NodeKind, Slot
from layerdag.simulator.program import TopologyCode
from layerdag.traces.chakra import wire as _wire
from layerdag.traces.pytorch import host_trace as _scan

_WIDTHS = {
    "int64_t": ("i", 8),
    "uint64_t": ("u", 8),
    "int32_t": ("i", 4),
    "size_t": ("u", ctypes.sizeof(ctypes.c_size_t)),
    "double": ("f", 8),
    "int": ("i", ctypes.sizeof(ctypes.c_int)),
    "vector_t": ("vector_t", 24),
    "names_t": ("names_t", 32),
}
_POINTER = ("u", ctypes.sizeof(ctypes.c_void_p))


@pytest.fixture
def headers(repository) -> str:
    """Return all headers as one text without comments."""
    texts = (path.read_text() for path in sorted((repository / "native").rglob("*.h")))
    return re.sub(r"/\*.*?\*/", "", "\n".join(texts), flags=re.S)


@pytest.mark.parametrize(
    ("name", "mirror"),
    [
        ("Input", _event_loop._Input),
        ("Output", _event_loop._Output),
        ("columns_t", _wire._Columns),
        ("vector_t", _scan._Vector),
        ("names_t", _scan._Names),
        ("host_t", _scan._Host),
    ],
)
def test_structs_are_laid_out_alike(headers, name, mirror):
    assert _of_ctypes(mirror) == _of_c(headers, name)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("Phase", _event_loop._PHASE), ("node_t", _scan._NODE), ("tensor_t", _scan._TENSOR)],
)
def test_records_are_laid_out_alike(headers, name, dtype):
    assert dtype.names is not None
    fields = [(field, dtype[field].kind, dtype[field].itemsize) for field in dtype.names]
    assert fields == _of_c(headers, name)


@pytest.mark.parametrize(
    ("name", "mirror"),
    [
        ("NodeKind", NodeKind),
        ("Slot", Slot),
        ("Topology", TopologyCode),
        ("Algorithm", Algorithm),
        ("PhaseType", PhaseType),
        ("QueueChoice", QueueChoice),
    ],
)
def test_enums_have_the_same_members_in_the_same_order(headers, name, mirror):
    found = re.search(rf"enum {name} \{{(.*?)\}}", headers, re.S)
    assert found is not None
    members = [member.strip().split("_", 1)[1] for member in found[1].split(",")]
    assert members == [member.name for member in sorted(mirror)]
    assert [member.value for member in sorted(mirror)] == list(range(len(members)))


def _of_c(headers: str, name: str) -> list[tuple[str, str, int]]:
    """Return name, kind and width of every field of a C struct."""
    bodies = re.findall(r"typedef struct \{(.*?)\} (\w+);", headers, re.S)
    (body,) = (body for body, found in bodies if found == name)
    fields = []
    for line in body.split(";"):
        words = line.replace("const ", "").strip()
        if not words:
            continue
        base, _, names = words.partition(" ")
        for field in (part.strip() for part in names.split(",")):
            kind, width = _POINTER if field.startswith("*") else _WIDTHS[base]
            fields.append((field.lstrip("*"), kind, width))
    return fields


def _of_ctypes(mirror: type[ctypes.Structure]) -> list[tuple[str, str, int]]:
    """Return the same of its mirror in Python."""
    nested = {_scan._Vector: "vector_t", _scan._Names: "names_t"}
    kinds = {
        ctypes.c_void_p: "u",
        ctypes.c_int64: "i",
        ctypes.c_uint64: "u",
        ctypes.c_size_t: "u",
        ctypes.c_double: "f",
        ctypes.c_int: "i",
        **nested,
    }
    return [(str(field[0]), kinds[field[1]], ctypes.sizeof(field[1])) for field in mirror._fields_]
