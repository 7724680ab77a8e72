"""Checks that the columns of a trace agree with each other, before compiled code relies on it."""

import numpy as np

from layerdag.errors import TraceError
from layerdag.traces import NodeType, Trace, Wire


def checked_columns(trace: Trace) -> dict[str, np.ndarray]:
    """Return the columns under the names that ``native/wire/wire.h`` gives them, contiguous.

    Raises:
        TraceError: If lengths, pointers or indexes contradict each other.
    """
    table, nodes = trace.attributes, trace.num_nodes
    columns = {
        "id": (trace.id_N, np.uint64, nodes),
        "name": (trace.name_N, np.int32, nodes),
        "type": (trace.type_N, np.uint8, nodes),
        "start_us": (trace.start_us_N, np.uint64, nodes),
        "duration_us": (trace.duration_us_N, np.uint64, nodes),
        "data_ptr": (trace.data_deps.ptr_N1, np.int64, nodes + 1),
        "data_deps": (trace.data_deps.values, np.uint64, trace.data_deps.values.size),
        "ctrl_ptr": (trace.ctrl_deps.ptr_N1, np.int64, nodes + 1),
        "ctrl_deps": (trace.ctrl_deps.values, np.uint64, trace.ctrl_deps.values.size),
        "io": (trace.io_N6, np.int32, 6 * nodes),
        "attr_ptr": (table.ptr_N1, np.int64, nodes + 1),
        "attr_name": (table.name_A, np.int32, table.wire_A.size),
        "attr_wire": (table.wire_A, np.uint8, table.wire_A.size),
        "attr_word": (table.word_A, np.uint64, table.wire_A.size),
        "attr_doc": (table.doc_A, np.int32, table.wire_A.size),
    }
    for label, (column, _, size) in columns.items():
        _ensure(column.size == size, trace, f"column {label} has {column.size} values, not {size}")
    for label in ("data", "ctrl", "attr"):
        ends = "name" if label == "attr" else "deps"
        _check_pointers(columns[f"{label}_ptr"][0], columns[f"{label}_{ends}"][2], label, trace)
    _check_indexes(trace)
    return {label: np.ascontiguousarray(column, t) for label, (column, t, _) in columns.items()}


def _ensure(condition: object, trace: Trace, message: str) -> None:
    """Raise TraceError unless ``condition``."""
    if not condition:
        raise TraceError(f"{trace.source}: {message}; the trace was put together wrongly.")


def _check_pointers(ptr_N1: np.ndarray, total: int, label: str, trace: Trace) -> None:
    """Check that a pointer column starts at 0, never falls, and ends at ``total``."""
    fine = ptr_N1[0] == 0 and ptr_N1[-1] == total and (np.diff(ptr_N1) >= 0).all()
    _ensure(fine, trace, f"the {label} pointers do not run from 0 to {total}")


def _check_indexes(trace: Trace) -> None:
    """Check every index into the pools, and every type and wire number."""
    table, pool = trace.attributes, len(trace.strings)
    for label, column in (
        ("name", trace.name_N),
        ("io", trace.io_N6),
        ("attribute name", table.name_A),
        ("attribute doc", table.doc_A),
    ):
        low, high = column.min(initial=-1), column.max(initial=-1)
        _ensure(low >= -1 and high < pool, trace, f"a {label} points outside the string pool")
    types_fit = trace.type_N.max(initial=0) < len(NodeType)
    _ensure(types_fit, trace, "a node type lies outside 0 to 7")
    wire_A = table.wire_A
    wires_fit = ((wire_A == Wire.UNSET) | ((wire_A >= Wire.DOUBLE) & (wire_A <= 32))).all()
    _ensure(wires_fit, trace, "an attribute has a wire number outside 3 to 32")
    text_A = wire_A == Wire.STRING
    blob_A = (wire_A == Wire.BYTES) | ((wire_A % 2 == 0) & (wire_A > 0))
    for label, chosen_A, size in (
        ("string", text_A, pool),
        ("list or bytes", blob_A, len(table.blobs)),
    ):
        fits = not chosen_A.any() or table.word_A[chosen_A].max() < size
        _ensure(fits, trace, f"a {label} attribute points outside its pool")
